/* SPDX-License-Identifier: MIT */
/*
 * Threads that are not what their last call says
 *
 * One waits past libc's blocking calls after it was in one: its memory comes home. One has
 * been in such a call, too, and is ended alone by a filter while another one runs, of which
 * nothing is known. One has no thread-local data of its own, so it shares those of the
 * thread that made it. No write may be missing.
 */
#include "healing.h"

#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define BYTES (4 * HUGE_PAGE)
#define LARGE (64 * HUGE_PAGE)

enum { ROUNDS = 3, TURNS = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int over, phase;
static uint32_t turns;

static uint32_t *word(const struct healing *h, size_t page)
{
	return (uint32_t *)(void *)(h->block + page * PAGE);
}

static void write_all(const struct healing *h)
{
	for (size_t page = 0; page < h->bytes / PAGE; page++)
		++*word(h, page);
	turns++;
}

static void check_all(const struct healing *h)
{
	unsigned char *model = malloc(h->bytes);

	check(model != NULL);
	fill(model, h->bytes, 2);
	for (size_t page = 0; page < h->bytes / PAGE; page++)
		*(uint32_t *)(void *)(model + page * PAGE) += turns;
	check(memcmp(model, h->block, h->bytes) == 0);
	free(model);
	turns = 0;
}

/* ---- Past libc's blocking calls ------------------------------------------------ */

static void *waits_in_a_lock(void *arg)
{
	if (arg)
		rest(); /* a call that is known */
	__atomic_store_n(&phase, 1, __ATOMIC_RELEASE);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void beside_a_waiter(void *was_known)
{
	struct healing h;
	pthread_t thread;

	pthread_mutex_lock(&lock);
	check(pthread_create(&thread, NULL, waits_in_a_lock, was_known) == 0);
	while (!__atomic_load_n(&phase, __ATOMIC_ACQUIRE))
		rest();
	phase = 0;
	for (int i = 0; i < ROUNDS; i++) {
		h = healing_begin(BYTES);
		healing_may_begin(&h);
		healing_end(&h);
	}
	pthread_mutex_unlock(&lock);
	check(pthread_join(thread, NULL) == 0);
}

/* ---- A signal while a child is waited for ---------------------------------------- */

static struct healing *reaped;
static volatile sig_atomic_t between;

static void looks(int sig)
{
	(void)sig;
	if (copied(reaped->block, PAGE) !=
	    copied(reaped->block + reaped->bytes - PAGE, PAGE))
		between = 1;
}

static void signals_while_it_heals(void)
{
	struct itimerval each = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };
	struct healing h = healing_begin(LARGE);

	reaped = &h;
	signal(SIGALRM, looks);
	setitimer(ITIMER_REAL, &each, NULL);
	healing_may_begin(&h);
	setitimer(ITIMER_REAL, &none, NULL);
	check(!library() || between || copied(h.block, h.bytes) == h.bytes / PAGE);
	healing_end(&h);
}

/* ---- Ended alone ----------------------------------------------------------------- */

static void *is_ended(void *arg)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(filter), filter };

	rest();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) {
		__atomic_store_n(&phase, 1, __ATOMIC_RELEASE);
		fsync(-1);
	}
	__atomic_store_n(&phase, 2, __ATOMIC_RELEASE);
	return arg;
}

/* No call: nothing is known of it. */
static void *writes(void *arg)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		write_all(arg);
	return NULL;
}

static void beside_one_that_was_ended(void)
{
	struct healing h = healing_begin(BYTES);
	pthread_t ended, writer;

	check(pthread_create(&ended, NULL, is_ended, NULL) == 0);
	while (!__atomic_load_n(&phase, __ATOMIC_ACQUIRE))
		rest();
	check(pthread_create(&writer, NULL, writes, &h) == 0);
	healing_may_begin(&h);
	for (int i = 0; i < TURNS; i++)
		rest();
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	check(pthread_join(writer, NULL) == 0);
	check_all(&h);
	close(h.gate[0]);
	close(h.gate[1]);
	free(h.block);
}

/* ---- Without thread-local data of its own ------------------------------------------ */

static int waits_by_number(void *arg)
{
	for (;;)
		syscall(SYS_futex, arg, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return 0;
}

static void beside_one_without_data(void)
{
	static _Alignas(16) char stack[64 << 10];
	static uint32_t never;
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
	            CLONE_SYSVSEM;
	struct healing h;

	rest();
	check(clone(waits_by_number, stack + sizeof(stack), flags, &never) > 0);
	for (int i = 0; i < ROUNDS; i++) {
		h = healing_begin(BYTES);
		healing_may_begin(&h);
		syscall(SYS_futex, &never, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		for (int k = 0; k < 20 * TURNS; k++)
			write_all(&h);
		check_all(&h);
		close(h.gate[0]);
		close(h.gate[1]);
		free(h.block);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		beside_a_waiter(NULL);
		beside_a_waiter(&lock);
		signals_while_it_heals();
	} else if (argv[1][0] == 'e') {
		beside_one_that_was_ended();
	} else {
		beside_one_without_data();
	}
	puts("odd_threads: done");
	fflush(stdout);
	_exit(0);
}

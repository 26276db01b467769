/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers that interrupt a thread that waits, while a block comes home
 *
 * Handlers write the block, are reset (SA_RESETHAND), leave by siglongjmp(), run on a signal
 * stack in the block, fork and vfork. A call that is interrupted fails with EINTR, or goes on
 * (SA_RESTART), as it would without an allocator that moves pages.
 */
#include "healing.h"
#include "later.h"

#include <setjmp.h>
#include <sys/time.h>

#define BYTES (4 * HUGE_PAGE)

enum { ROUNDS = 6 };

static int quiet[2];
static pthread_t waiter;
static unsigned char *block;
static int handled, interrupted, over, spins, ready, number, vforks_first;
static sigjmp_buf jump;

static uint32_t *word(size_t page)
{
	return (uint32_t *)(void *)(block + page * PAGE);
}

/* One word in each page of the block, but those of the second half of each huge page. */
static void count_in_all(void)
{
	for (size_t page = 0; page < BYTES / PAGE; page++)
		if (page % 512 < 256)
			++*word(page);
}

static void set(int sig, void (*handler)(int), int flags)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = flags };

	check(sigaction(sig, &a, NULL) == 0);
}

static void counts(int sig)
{
	(void)sig;
	count_in_all();
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

/* How often it was interrupted; in each of them errno must be EINTR. */
static void *reads(void *arg)
{
	char bytes[5];
	ssize_t n;

	__atomic_store_n(&number, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	while ((n = read(quiet[0], bytes, 5)) < 0) {
		check(errno == EINTR);
		__atomic_fetch_add(&interrupted, 1, __ATOMIC_RELEASE);
	}
	check(n == 5);
	return arg;
}

static void wait_for(const int *what, int least)
{
	while (__atomic_load_n(what, __ATOMIC_ACQUIRE) < least)
		rest();
}

static struct healing begin(void *(*body)(void *))
{
	struct healing h = healing_begin(BYTES);

	block = h.block;
	handled = interrupted = over = spins = ready = number = 0;
	check(pthread_create(&waiter, NULL, body, NULL) == 0);
	return h;
}

static void check_counted(uint32_t n)
{
	static unsigned char model[BYTES];

	fill(model, BYTES, 2);
	for (size_t page = 0; page < BYTES / PAGE; page++)
		if (page % 512 < 256)
			*(uint32_t *)(void *)(model + page * PAGE) += n;
	check(memcmp(model, block, BYTES) == 0);
}

static void end(struct healing *h)
{
	check(pthread_join(waiter, NULL) == 0);
	check_counted((uint32_t)handled);
	wait_until_copied(block, BYTES, 0);
	check_counted((uint32_t)handled);
	healing_end(h);
}

/* Some signals, most likely while pages are moved. */
static void interrupt(int sig, uint64_t *random)
{
	wait_for(&number, 1);
	later((struct deed){ .us = (unsigned)below(random, 1500), .times = 5, .sig = sig,
	                     .thread = number });
}

static void calls_are_interrupted(uint64_t *random)
{
	struct healing h = begin(reads);

	set(SIGUSR1, counts, 0);
	interrupt(SIGUSR1, random);
	healing_may_begin(&h);
	later_wait();
	wait_until_copied(block, BYTES, 0);
	/* A signal may come before its call begins: then it interrupts nothing. */
	while (!__atomic_load_n(&interrupted, __ATOMIC_ACQUIRE)) {
		pthread_kill(waiter, SIGUSR1);
		rest();
	}
	set(SIGUSR1, SIG_IGN, 0);
	check(write(quiet[1], "hello", 5) == 5);
	check(pthread_join(waiter, NULL) == 0);
	check_counted((uint32_t)handled);
	healing_end(&h);
}

/* `early`: before pages may be moved. The thread counts as waiting again. */
static void calls_go_on(int early, uint64_t *random)
{
	struct healing h = begin(reads);

	set(SIGUSR1, counts, SA_RESTART);
	interrupt(SIGUSR1, random);
	if (early)
		later_wait();
	healing_may_begin(&h);
	if (!early)
		later_wait();
	wait_until_copied(block, BYTES, 0);
	check(write(quiet[1], "hello", 5) == 5);
	end(&h);
	check(interrupted == 0);
}

static void handlers_that_are_reset(uint64_t *random)
{
	struct healing h = begin(reads);
	struct sigaction now;

	set(SIGUSR1, counts, (int)(SA_RESETHAND | SA_RESTART));
	set(SIGUSR2, counts, (int)(SA_RESETHAND | SA_RESTART | SA_NODEFER));
	healing_may_begin(&h);
	usleep((useconds_t)below(random, 300));
	pthread_kill(waiter, SIGUSR1);
	wait_for(&handled, 1);
	wait_until_copied(block, BYTES, 0);
	check(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
	check(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == counts);
	check(write(quiet[1], "hello", 5) == 5);
	end(&h);
	set(SIGUSR2, SIG_DFL, 0);
}

/* ---- A handler that does not return ------------------------------------------ */

static void leaves(int sig)
{
	(void)sig;
	siglongjmp(jump, 1);
}

/* The thread left its call by a jump: it runs, and may write at any time. */
static void *jumps_and_writes(void *arg)
{
	char bytes[5];

	if (sigsetjmp(jump, 1) == 0) {
		set(SIGUSR1, leaves, 0);
		__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
		(void)!read(quiet[0], bytes, 5);
	}
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		count_in_all();
		__atomic_fetch_add(&spins, 1, __ATOMIC_RELEASE);
	}
	return arg;
}

/* The thread runs, and writes all the time. */
static void nothing_comes_home(struct healing *h)
{
	wait_for(&spins, 1);
	healing_may_begin(h);
	wait_for(&spins, spins + 300);
	check(!library() || copied(block, BYTES) == BYTES / PAGE);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
}

static void handlers_that_jump(void)
{
	struct healing h = begin(jumps_and_writes);

	wait_for(&ready, 1);
	pthread_kill(waiter, SIGUSR1);
	nothing_comes_home(&h);
	check(pthread_join(waiter, NULL) == 0);
	check_counted((uint32_t)spins);
	wait_until_copied(block, BYTES, 0);
	check_counted((uint32_t)spins);
	healing_end(&h);
}

/* ---- A signal stack in the block ----------------------------------------------- */

static unsigned char *stack_in_block(void)
{
	return block + HUGE_PAGE + 300 * PAGE; /* where nothing is counted */
}

static void counts_there(int sig)
{
	volatile unsigned char here[100];

	for (size_t i = 0; i < sizeof(here); i++)
		here[i] = (unsigned char)i;
	check((unsigned char *)here > stack_in_block() &&
	      (unsigned char *)here < stack_in_block() + 100 * PAGE);
	counts(sig);
	for (size_t i = 0; i < sizeof(here); i++)
		check(here[i] == (unsigned char)i);
}

/* The child changes a stack of its own, though it has this memory. */
__attribute__((noinline)) static void child_without_stack(void)
{
	static const stack_t none = { .ss_flags = SS_DISABLE };
	int status;
	pid_t child = vfork();

	check(child >= 0);
	if (child == 0)
		_exit(sigaltstack(&none, NULL) != 0);
	check(waitpid(child, &status, 0) == child && status == 0);
}

static void *reads_with_a_stack(void *arg)
{
	stack_t mine = { .ss_sp = stack_in_block(), .ss_size = 100 * PAGE };
	static unsigned char saved[100 * PAGE];

	memcpy(saved, mine.ss_sp, sizeof(saved));
	check(sigaltstack(&mine, NULL) == 0);
	if (vforks_first)
		child_without_stack();
	__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
	arg = reads(arg);
	mine.ss_flags = SS_DISABLE;
	check(sigaltstack(&mine, NULL) == 0);
	memcpy(stack_in_block(), saved, sizeof(saved));
	return arg;
}

static void *has_a_child(void *arg)
{
	vforks_first = 1;
	arg = reads_with_a_stack(arg);
	vforks_first = 0;
	return arg;
}

static void *rests_first(void *arg)
{
	rest(); /* the allocator knows the thread before its stack */
	return reads_with_a_stack(arg);
}

static void stacks_stay(void *(*body)(void *), uint64_t *random)
{
	struct healing h = begin(body);

	set(SIGUSR1, counts_there, SA_ONSTACK | SA_RESTART);
	wait_for(&ready, 1);
	healing_may_begin(&h);
	wait_until_copied(block, HUGE_PAGE, 0);
	wait_until_copied(block + 2 * HUGE_PAGE, 2 * HUGE_PAGE, 0);
	wait_for_slices(3);
	check(!library() || copied(block + HUGE_PAGE, HUGE_PAGE) == HUGE_PAGE / PAGE);
	interrupt(SIGUSR1, random);
	later_wait();
	check(write(quiet[1], "hello", 5) == 5);
	end(&h);
}

/* ---- Children of a handler ----------------------------------------------------- */

static int idle[2]; /* a pipe that stays empty */

static void forks(int sig)
{
	int status, saved = errno;
	pid_t child = fork();
	uint32_t first = *word(0);

	(void)sig;
	if (child == 0) {
		for (size_t page = 0; page < 256; page++)
			if (*word(page) - *word(0) != *word(page) - first)
				_exit(1);
		count_in_all();
		_exit(*word(0) == first + 1 ? 3 : 1);
	}
	count_in_all();
	check(waitpid(child, &status, 0) == child);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	errno = saved;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

/* The child writes this memory, and is killed while it waits. */
__attribute__((noinline)) static pid_t killed_child(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 1000 } };
	pid_t child = vfork();

	if (child)
		return child;
	count_in_all();
	setitimer(ITIMER_REAL, &soon, NULL);
	poll(&(struct pollfd){ .fd = idle[0], .events = POLLIN }, 1, -1);
	_exit(1);
}

static void vforks(int sig)
{
	int status, saved = errno;
	pid_t child = killed_child();

	(void)sig;
	check(child > 0);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		count_in_all();
		__atomic_fetch_add(&spins, 1, __ATOMIC_RELEASE);
	}
	check(waitpid(child, &status, 0) == child);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
	errno = saved;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

static void handlers_that_vfork(void)
{
	struct healing h = begin(reads);

	set(SIGUSR1, vforks, SA_RESTART);
	pthread_kill(waiter, SIGUSR1);
	nothing_comes_home(&h);
	wait_for(&handled, 1);
	wait_until_copied(block, BYTES, 0);
	check(write(quiet[1], "hello", 5) == 5);
	check(handled == 1);
	handled = spins + 1; /* and the child */
	end(&h);
}

static void handlers_that_fork(uint64_t *random)
{
	struct healing h = begin(reads);

	set(SIGUSR1, forks, SA_RESTART);
	interrupt(SIGUSR1, random);
	healing_may_begin(&h);
	later_wait();
	wait_until_copied(block, BYTES, 0); /* the thread counts as waiting again */
	check(write(quiet[1], "hello", 5) == 5);
	end(&h);
}

int main(void)
{
	uint64_t random = 5;

	gate_make(quiet);
	gate_make(idle);
	later_begin();
	for (int i = 0; i < ROUNDS; i++) {
		calls_are_interrupted(&random);
		calls_go_on(0, &random);
		calls_go_on(1, &random);
		handlers_that_are_reset(&random);
		handlers_that_jump();
		stacks_stay(reads_with_a_stack, &random);
		stacks_stay(rests_first, &random);
		stacks_stay(has_a_child, &random);
		handlers_that_fork(&random);
		handlers_that_vfork();
	}
	later_end();
	puts("handlers_parked: done");
	return 0;
}

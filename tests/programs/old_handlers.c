/* SPDX-License-Identifier: MIT */
/*
 * The old handler that sigaction() tells
 *
 * It may be written to memory that a handler of SIGSEGV opens first, as write barriers of
 * garbage collectors do. And it is one that was set when it was asked for, with its flags,
 * while another thread sets one after the other. Handlers may set handlers at any time.
 */
#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { ASKED = 600000, HANDLERS = 4 };

static unsigned char *page;
static volatile sig_atomic_t faults;

static void opens(int sig)
{
	(void)sig;
	check(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	faults++;
}

static void nothing(int sig)
{
	(void)sig;
}

static void *closed_page(void)
{
	faults = 0;
	check(mprotect(page, PAGE, PROT_READ) == 0);
	return page;
}

static void check_mask(void)
{
	sigset_t now;

	check(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		check(!sigismember(&now, sig));
}

static void memory_that_faults(int sig)
{
	struct sigaction a = { .sa_handler = nothing }, *old;

	old = closed_page();
	check(sigaction(sig, &a, old) == 0 && faults == 1);
	check(old->sa_handler == SIG_DFL);
	old = closed_page();
	check(sigaction(sig, NULL, old) == 0 && faults == 1);
	check(old->sa_handler == nothing);
	old = closed_page();
	a.sa_handler = SIG_DFL;
	check(sigaction(sig, &a, old) == 0 && faults == 1);
	check(old->sa_handler == nothing);
	check_mask();
}

/* It leaves memory alone if it fails. The kernel itself writes an old stack. */
static void failures(void)
{
	struct sigaction a = { .sa_handler = nothing };
	stack_t stack = { .ss_sp = get(64 * KIB), .ss_size = 64 * KIB }, old;

	check(sigaction(SIGKILL, &a, closed_page()) < 0 && errno == EINVAL && faults == 0);
	check(sigaction(0, &a, closed_page()) < 0 && errno == EINVAL && faults == 0);
	check(sigaltstack(&stack, closed_page()) < 0 && errno == EFAULT && faults == 0);
	check(sigaltstack(NULL, &old) == 0);
	stack.ss_flags = SS_DISABLE;
	check(sigaltstack(&stack, NULL) == 0);
	free(stack.ss_sp);
}

/* ---- One that was set then -------------------------------------------------------- */

static uint64_t begun, done; /* the handlers that were set */
static int stop;

#define HANDLER(n)                                                             \
	static void handler_##n(int sig)                                       \
	{                                                                      \
		(void)sig;                                                     \
	}
HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)
static void (*const in_turn[HANDLERS])(int) = { handler_0, handler_1, handler_2, handler_3 };

static int flags_of(uint64_t n)
{
	return n % HANDLERS < HANDLERS / 2 ? SA_RESTART : SA_NODEFER;
}

static void check_flags(const struct sigaction *a, uint64_t n)
{
	check((a->sa_flags & (SA_RESTART | SA_NODEFER)) == flags_of(n));
}

static void *sets_in_turn(void *arg)
{
	struct sigaction a, old;

	memset(&a, 0, sizeof(a));
	for (uint64_t n = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		__atomic_store_n(&begun, n, __ATOMIC_SEQ_CST);
		a.sa_handler = in_turn[n % HANDLERS];
		a.sa_flags = flags_of(n);
		check(sigaction(SIGUSR1, &a, &old) == 0);
		check(old.sa_handler == in_turn[(n - 1) % HANDLERS]);
		check_flags(&old, n - 1);
		__atomic_store_n(&done, n, __ATOMIC_SEQ_CST);
	}
	return arg;
}

/* On one processor, which often leaves a thread at the end of a system call. */
static void on_one_processor(void)
{
	cpu_set_t one, all;
	int cpu = 0;

	check(sched_getaffinity(0, sizeof(all), &all) == 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	check(sched_setaffinity(0, sizeof(one), &one) == 0);
}

static void asked_meanwhile(void)
{
	struct sigaction a = { .sa_handler = in_turn[0], .sa_flags = flags_of(0) }, old;
	pthread_t thread;

	on_one_processor();
	check(sigaction(SIGUSR1, &a, NULL) == 0);
	check(pthread_create(&thread, NULL, sets_in_turn, NULL) == 0);
	for (int i = 0; i < ASKED; i++) {
		uint64_t n = __atomic_load_n(&done, __ATOMIC_SEQ_CST), last;

		check(sigaction(SIGUSR1, NULL, &old) == 0);
		last = __atomic_load_n(&begun, __ATOMIC_SEQ_CST);
		while (n < last && old.sa_handler != in_turn[n % HANDLERS])
			n++;
		check(old.sa_handler == in_turn[n % HANDLERS]);
		check_flags(&old, n);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	check(pthread_join(thread, NULL) == 0);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* sigset */

static volatile sig_atomic_t again;

static void sets_again(int sig)
{
	again++;
	check(signal(sig, sets_again) == sets_again);
}

/* sigset() opens a signal that is pending, and its handler sets handlers. */
static void opens_a_pending_one(int sig)
{
	sigset_t set;

	check(sigset(sig, SIG_HOLD) == SIG_DFL);
	check(raise(sig) == 0 && again == 0);
	check(sigset(sig, sets_again) == SIG_HOLD && again == 1);
	check(sigset(sig, SIG_DFL) == sets_again);
	check(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, sig));
	check(sigset(-1, SIG_DFL) == SIG_ERR && errno == EINVAL);
	check(sigset(SIGKILL, sets_again) == SIG_ERR && errno == EINVAL);
	again = 0;
}

static void ends(void *arg)
{
	(void)arg;
	_exit(0);
}

/* Handlers that set a handler for a signal that does nothing, at every moment of forks. */
static void sets_idle(int sig)
{
	again++;
	check(signal(SIGWINCH, sig == SIGALRM ? sets_again : SIG_DFL) != SIG_ERR);
}

static void set_within_forks(void)
{
	struct itimerval often = { { 0, 700 }, { 0, 700 } }, never = { { 0, 0 }, { 0, 0 } };
	unsigned char *memory = get_filled(8 * MIB, 1);
	struct sigaction a = { .sa_handler = sets_idle, .sa_flags = SA_RESTART };

	check(sigaction(SIGALRM, &a, NULL) == 0);
	check(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int round = 0; round < 100; round++) {
		finish(start(ends, NULL));
		for (size_t at = 0; at < 8 * MIB; at += PAGE)
			memory[at]++;
	}
	check(setitimer(ITIMER_REAL, &never, NULL) == 0);
	check(again > 0);
	check(signal(SIGALRM, SIG_DFL) == sets_idle);
	check(signal(SIGWINCH, SIG_DFL) == sets_again);
	free(memory);
}

int main(void)
{
	struct sigaction a = { .sa_handler = opens };

	page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED);
	check(sigaction(SIGSEGV, &a, NULL) == 0);
	memory_that_faults(SIGTERM);
	memory_that_faults(SIGRTMAX); /* quiet=signal uses it */
	failures();
	asked_meanwhile();
	opens_a_pending_one(SIGCHLD);
	opens_a_pending_one(SIGUSR2);
	set_within_forks();
	puts("old_handlers: done");
	return 0;
}

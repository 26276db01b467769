/* SPDX-License-Identifier: MIT */
/*
 * Processes that are made while another thread sets signal handlers
 *
 * A forked child can set handlers, whatever the other thread did at that moment, and has its
 * parent's signal mask. A child of vfork() that is killed while it sets handlers leaves its
 * parent as it was.
 */
#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

enum { STACK = 256 * KIB, FORKS = 150, VFORKS = 200, LOOKS = 30000 };

pid_t _Fork(void) __attribute__((weak));

static int stop;
static pid_t victim; /* a child of vfork() that sets handlers; 0: none */
static volatile sig_atomic_t raised;
static char child_stack[STACK] __attribute__((aligned(16)));
static sigset_t mask;

static void counts(int sig)
{
	(void)sig;
	raised++;
}

static void counts_too(int sig)
{
	counts(sig);
}

static void set(int sig, void (*handler)(int))
{
	struct sigaction a = { .sa_handler = handler }, old;

	check(sigaction(sig, &a, &old) == 0);
}

static void *sets(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		set(SIGUSR2, counts);
		check(signal(SIGUSR2, counts_too) == counts);
	}
	return arg;
}

static void check_mask(void)
{
	sigset_t now;

	check(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		check(sigismember(&now, sig) == sigismember(&mask, sig));
}

static int uses_handlers(void *arg)
{
	struct sigaction now;

	(void)arg;
	check_mask();
	raised = 0;
	set(SIGUSR1, counts);
	raise(SIGUSR1);
	check(raised == 1);
	check(signal(SIGUSR1, counts_too) == counts);
	raise(SIGUSR1);
	check(raised == 2);
	check(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == counts_too);
	set(SIGUSR1, SIG_DFL);
	return 0;
}

static pid_t by_fork(void)
{
	return fork();
}

static pid_t by_underscore(void)
{
	return _Fork ? _Fork() : fork();
}

static pid_t by_number(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_clone(void)
{
	return clone(uses_handlers, child_stack + STACK, SIGCHLD, NULL);
}

static pid_t past_libc(void)
{
#if defined(__x86_64__)
	long r;

	__asm__ volatile("xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d; syscall"
	                 : "=a"(r)
	                 : "0"((long)SYS_clone), "D"((long)SIGCHLD), "S"(0L)
	                 : "rcx", "rdx", "r8", "r10", "r11", "memory");
	errno = (int)-r;
	return r < 0 ? -1 : (pid_t)r;
#else
	return fork();
#endif
}

/* A child that hangs may block all signals but this one. */
static void finish_or_kill(pid_t child)
{
	int status = 0, looks = 0;
	pid_t got;

	while ((got = waitpid(child, &status, WNOHANG)) == 0 && looks++ < LOOKS)
		usleep(looks < 100 ? 50 : 1000);
	if (got == 0)
		kill(child, SIGKILL);
	check(got == child && status == 0);
}

static void forks(pid_t (*how)(void))
{
	for (int i = 0; i < FORKS; i++) {
		pid_t child = how();

		check(child >= 0);
		if (child == 0)
			_exit(uses_handlers(NULL));
		check_mask();
		finish_or_kill(child);
	}
}

/* ---- Children of vfork() ----------------------------------------------------------- */

static void *kills(void *arg)
{
	uint64_t random = 7;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		pid_t child = __atomic_load_n(&victim, __ATOMIC_ACQUIRE);

		usleep(20 + (useconds_t)below(&random, 300));
		if (!child)
			continue;
		__atomic_store_n(&victim, 0, __ATOMIC_RELEASE);
		check(kill(child, SIGKILL) == 0);
	}
	return arg;
}

/* Not inlined: the child uses this frame. */
__attribute__((noinline)) static pid_t sets_until_killed(void)
{
	static const struct sigaction none = { .sa_handler = SIG_DFL },
	                              some = { .sa_handler = counts_too };
	static struct sigaction old;
	pid_t child = vfork();

	if (child)
		return child;
	__atomic_store_n(&victim, getpid(), __ATOMIC_RELEASE);
	for (;;) {
		sigaction(SIGUSR1, &some, &old);
		sigaction(SIGUSR1, NULL, &old);
		if (old.sa_handler != counts_too)
			_exit(1);
		sigaction(SIGUSR1, &none, &old);
		signal(SIGUSR1, SIG_IGN);
	}
}

static void vforks(void)
{
	struct sigaction old;

	set(SIGUSR1, counts);
	for (int i = 0; i < VFORKS; i++) {
		pid_t child = sets_until_killed();
		int status;

		check(child > 0 && waitpid(child, &status, 0) == child);
		check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		/* The child's handlers were its own. */
		check(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == counts);
		set(SIGUSR1, counts);
		raised = 0;
		raise(SIGUSR1);
		check(raised == 1);
	}
}

static pthread_t start_thread(void *(*body)(void *))
{
	pthread_t thread;

	__atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
	check(pthread_create(&thread, NULL, body, NULL) == 0);
	return thread;
}

static void end_thread(pthread_t thread)
{
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	check(pthread_join(thread, NULL) == 0);
}

int main(void)
{
	static pid_t (*const ways[])(void) = { by_fork, by_underscore, by_number, by_clone,
		                               past_libc };
	pthread_t thread;

	sigemptyset(&mask);
	sigaddset(&mask, SIGWINCH);
	check(sigprocmask(SIG_SETMASK, &mask, NULL) == 0);
	thread = start_thread(sets);
	for (size_t i = 0; i < COUNT(ways); i++)
		forks(ways[i]);
	end_thread(thread);
	thread = start_thread(kills);
	vforks();
	end_thread(thread);
	puts("handlers_over_forks: done");
	return 0;
}

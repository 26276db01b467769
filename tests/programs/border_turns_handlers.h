/* SPDX-License-Identifier: MIT */
/*
 * Turns in which a signal handler of the calling thread has a part. Included by border_turns.c
 * alone, after its helpers.
 */
#include <grp.h>
#include <setjmp.h>
#include <sys/time.h>

static volatile pid_t made;
static volatile uid_t made_by;

/* The child keeps what its parent gives up. It has to be the first: others inherit the timer's
 * handler, but no timer. */
static void forks(int sig)
{
	(void)sig;
	if (made)
		return;
	made_by = geteuid();
	made = fork();
	if (made == 0) {
		gate_wait(gate);
		_exit(spoiled());
	}
}

/* Many relatives' files make the call long, so that the timer hits it. */
static int handler_forks(void)
{
	struct itimerval timer = { .it_value.tv_usec = 1 };
	pid_t relative;
	int late;

	needs_root();
	gate_make(gate);
	gate_make(back);
	relative = relative_new();
	block = block_new(); /* in a file that is nobody else's yet */
	check(signal(SIGALRM, forks) != SIG_ERR);
	check(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0);
	timer.it_value.tv_usec = 1 + (int)(getpid() % 7) * 100;
	check(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	check(setuid(NOBODY) == 0);
	while (!made)
		usleep(100);
	late = made_by != 0; /* after the call: both are nobody */
	if (!late)
		attack();
	gate_open(gate);
	gate_open(back);
	check(status_of(relative) == 0);
	return status_of(made);
}

/* initgroups() faults at the name, between the border and the call. */
static char *name;
static sigjmp_buf out_of_call;
static volatile int stop;

static void forks_at_fault(int sig)
{
	(void)sig;
	made = fork();
	if (made == 0) {
		gate_wait(gate);
		_exit(spoiled());
	}
	check(mprotect(name, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void leaves_at_fault(int sig)
{
	(void)sig;
	siglongjmp(out_of_call, 1);
}

static void *never_rests(void *arg)
{
	while (!stop)
		;
	return arg;
}

static void name_faults(void (*handler)(int))
{
	name = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(name != MAP_FAILED);
	strcpy(name, "nobody");
	check(mprotect(name, PAGE, PROT_NONE) == 0);
	check(signal(SIGSEGV, handler) != SIG_ERR);
}

static int late_border(void)
{
	pthread_t thread;

	needs_root();
	gate_make(gate);
	keeps_only(1u << CAP_SETGID);
	block = block_new();
	check(pthread_create(&thread, NULL, never_rests, NULL) == 0);
	name_faults(forks_at_fault);
	check(initgroups(name, NOBODY) == 0);
	attack();
	stop = 1;
	check(pthread_join(thread, NULL) == 0);
	gate_open(gate);
	return status_of(made);
}

static int exits_spoiled(void *arg)
{
	(void)arg;
	_exit(spoiled());
}

static int left_call(void)
{
	static char stack[1 << 18] __attribute__((aligned(16)));
	pthread_t thread;
	int status;

	needs_root();
	check(pthread_create(&thread, NULL, never_rests, NULL) == 0);
	name_faults(leaves_at_fault);
	if (sigsetjmp(out_of_call, 1) == 0) {
		(void)initgroups(name, NOBODY);
		return SKIPPED;
	}
	signal(SIGSEGV, SIG_DFL);
	usleep(1100000); /* until then a fork may have to wait, and clone() can't */
	check(setegid(getegid()) == 0); /* a call of its own, which has ended */
	status = status_of(clone(exits_spoiled, stack + sizeof(stack), SIGCHLD, NULL));
	stop = 1;
	check(pthread_join(thread, NULL) == 0);
	return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * A signal handler that writes into a block, at any moment
 *
 * A timer interrupts main while it forks, allocates and rewrites, and the
 * handler counts in a block and in a plain variable. If the allocator exchanges
 * the pages under the block at a bad moment, a count is lost.
 *
 * And one that waits for children, which it may: also while the thread that it
 * interrupted is inside the allocator.
 */
#include "program.h"

#include <signal.h>
#include <sys/time.h>

enum { SPREAD = 8, CYCLES = 60 };

static volatile sig_atomic_t count, reaped;
static volatile uint32_t *counts; /* one a page */
static size_t stride;

static void tick(int signal)
{
	(void)signal;
	counts[(size_t)(count % SPREAD) * stride]++;
	count++;
}

static uint32_t sum(void)
{
	uint32_t total = 0;
	int i;

	for (i = 0; i < SPREAD; i++)
		total += counts[(size_t)i * stride];
	return total;
}

static void block_ticks(int how)
{
	sigset_t ticks;

	sigemptyset(&ticks);
	sigaddset(&ticks, SIGALRM);
	check(sigprocmask(how, &ticks, NULL) == 0);
}

static void compare(void)
{
	block_ticks(SIG_BLOCK);
	check(sum() == (uint32_t)count);
	block_ticks(SIG_UNBLOCK);
}

static void counts_on(void *arg)
{
	unsigned char *p = arg;

	/* Timers are not inherited; raise some by hand. */
	check(sum() <= (uint32_t)count);
	check(holds(p, 2 * MIB, 1));
	fill(p, 2 * MIB, 2);
	raise(SIGALRM);
	raise(SIGALRM);
	check(holds(p, 2 * MIB, 2));
}

static void reap(int signal)
{
	int saved = errno;

	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		reaped++;
	errno = saved;
}

static void ends(void *arg)
{
	(void)arg;
}

static void pauses(void *arg)
{
	(void)arg;
	pause();
}

static void waiting_in_the_handler(void)
{
	struct sigaction action = { .sa_handler = reap };
	unsigned char *p = get_filled(4 * MIB, 5);
	pid_t lives_on = start(pauses, NULL);
	int n;

	action.sa_flags = SA_RESTART;
	check(sigaction(SIGCHLD, &action, NULL) == 0);
	for (n = 0; n < CYCLES; n++) {
		(void)start(ends, NULL);
		while (reaped <= n)
			free(get(3 * MIB));
		check(holds(p, 4 * MIB, 5));
	}
	check(kill(lives_on, SIGKILL) == 0);
	while (reaped <= n)
		free(get(3 * MIB));
	fill(p, 4 * MIB, 6);
	check(holds(p, 4 * MIB, 6));
	free(p);
}

int main(void)
{
	struct sigaction action = { .sa_handler = tick };
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { 0 };
	const size_t bytes = 4 * MIB;
	unsigned char *p = get_filled(2 * MIB, 1);
	int n;

	counts = calloc(1, bytes);
	check(counts != NULL);
	stride = bytes / sizeof(*counts) / SPREAD;
	action.sa_flags = SA_RESTART;
	check(sigaction(SIGALRM, &action, NULL) == 0);
	check(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (n = 0; n < CYCLES; n++) {
		in_child(counts_on, p);
		compare();
		fill(p, 2 * MIB, 1);
		free(get_filled(3 * MIB, 4));
		free(realloc(get_filled(MIB, 4), 2 * MIB));
		compare();
	}
	check(setitimer(ITIMER_REAL, &never, NULL) == 0);
	compare();
	check(holds(p, 2 * MIB, 1));
	waiting_in_the_handler();
	puts("signals: done");
	return 0;
}

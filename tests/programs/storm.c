/* SPDX-License-Identifier: MIT */
/*
 * A storm of signals, whose handlers write blocks and whose stack is one
 *
 * A child sends as fast as it can; the handlers nest, run on an alternate stack
 * inside a large block, and count there. No count may be lost.
 */
#include "program.h"

#include <signal.h>

enum { ROUNDS = 50 };

static volatile sig_atomic_t plain[2];
static volatile uint32_t *counts;

static void count(int which)
{
	counts[(size_t)which * 1000]++;
	plain[which]++;
}

static void first(int signal)
{
	(void)signal;
	count(0);
}

static void second(int signal)
{
	(void)signal;
	count(1);
}

static void handle(int signal, void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler };

	action.sa_flags = SA_RESTART | SA_ONSTACK;
	check(sigaction(signal, &action, NULL) == 0);
}

static void storm(void *arg)
{
	pid_t parent = getppid();
	int n;

	(void)arg;
	/* A fork begins anew while signals are pending: now and then it comes to its end. */
	for (n = 1; kill(parent, SIGUSR1) == 0 && kill(parent, SIGUSR2) == 0; n++)
		if (n % 500 == 0)
			usleep(1000);
}

static void compare(void)
{
	sigset_t both, before;

	sigemptyset(&both);
	sigaddset(&both, SIGUSR1);
	sigaddset(&both, SIGUSR2);
	check(sigprocmask(SIG_BLOCK, &both, &before) == 0);
	check(counts[0] == (uint32_t)plain[0]);
	check(counts[1000] == (uint32_t)plain[1]);
	check(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static void rewrites(void *arg)
{
	check(holds(arg, 2 * MIB, 1));
	fill(arg, 2 * MIB, 2);
	compare();
}

int main(void)
{
	unsigned char *p = get_filled(2 * MIB, 1), *q;
	stack_t stack = { .ss_size = 256 * KIB };
	int n, status;
	pid_t sender;

	counts = calloc(1, 2 * MIB);
	check(counts != NULL);
	stack.ss_sp = get(2 * MIB);
	check(sigaltstack(&stack, NULL) == 0);
	handle(SIGUSR1, first);
	handle(SIGUSR2, second);
	sender = start(storm, NULL);
	for (n = 0; n < ROUNDS; n++) {
		in_child(rewrites, p);
		compare();
		q = realloc(get_filled(MIB + 77, 3), 3 * MIB);
		check(q != NULL && holds(q, MIB + 77, 3));
		free(q);
		fill(p, 2 * MIB, 1);
		compare();
	}
	check(kill(sender, SIGKILL) == 0);
	while (waitpid(sender, &status, 0) < 0)
		check(errno == EINTR);
	check(plain[0] > 0 && plain[1] > 0);
	check(holds(p, 2 * MIB, 1));
	puts("storm: done");
	return 0;
}

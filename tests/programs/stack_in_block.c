/* SPDX-License-Identifier: MIT */
/*
 * Coroutines, and threads, whose stacks are blocks of malloc
 *
 * They fork and wait for children: memory that was frozen may go back to being
 * written in place then, and the stack that is in use is a part of it.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { ROUNDS = 60, STACK = 4 * MIB, DEPTH = 40 };

static ucontext_t here, there;
static unsigned char *data;
static int signals;

static void counts(int number)
{
	(void)number;
	__atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void fork_and_wait(int round)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(data[round] == (unsigned char)round ? 7 : 1);
	check(child > 0);
	data[round + 1] = (unsigned char)(round + 1);
	check(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
}

/* Frames with values of their own, over several pages. */
static uint64_t deep(int depth, int round)
{
	volatile uint64_t mine[200];
	uint64_t sum = 0;

	for (int i = 0; i < 200; i++)
		mine[i] = (uint64_t)(depth * 1000 + i + round);
	if (depth == 0)
		fork_and_wait(round);
	else
		sum = deep(depth - 1, round);
	for (int i = 0; i < 200; i++)
		check(mine[i] == (uint64_t)(depth * 1000 + i + round));
	return sum + mine[0];
}

static void rounds(void)
{
	for (int round = 0; round < ROUNDS; round++)
		(void)deep(DEPTH, round);
}

static void *in_thread(void *unused)
{
	rounds();
	return unused;
}

/* Waits without end, and gets signals: the kernel writes its stack. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *sleeps(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

static pthread_t thread_on(void *stack, void *(*run)(void *))
{
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	check(pthread_attr_setstack(&a, stack, STACK) == 0);
	check(pthread_create(&t, &a, run, NULL) == 0);
	pthread_attr_destroy(&a);
	return t;
}

int main(void)
{
	struct sigaction act = { .sa_handler = counts };
	void *stack = aligned_alloc(4096, STACK), *other = aligned_alloc(4096, STACK);
	pthread_t sleeper;

	data = malloc(MIB);
	memset(data, 0, MIB);
	check(stack && other && sigaction(SIGUSR1, &act, NULL) == 0);
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &here;
	makecontext(&there, rounds, 0);
	check(swapcontext(&here, &there) == 0);
	check(pthread_join(thread_on(stack, in_thread), NULL) == 0);

	pthread_mutex_lock(&mutex);
	sleeper = thread_on(other, sleeps);
	for (int round = 0; round < ROUNDS; round++) {
		fork_and_wait(round);
		check(pthread_kill(sleeper, SIGUSR1) == 0);
	}
	pthread_mutex_unlock(&mutex);
	check(pthread_join(sleeper, NULL) == 0);
	free(stack);
	free(other);
	free(data);
	puts("done");
	return 0;
}

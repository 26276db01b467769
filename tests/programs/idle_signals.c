/* SPDX-License-Identifier: MIT */
/*
 * A signal that nobody handles ends no call
 *
 * Children end at every moment after a fork. Each sends SIGCHLD, which does nothing, so no
 * thread's epoll_wait() may return EINTR. If the thread that forked blocked the signal for
 * a moment, it would wake another one. Beside a thread that never rests, it works for the
 * shim more often. Then the signal gets a handler and loses it again, in
 * turns: it runs once for each child that ends meanwhile.
 */
#include "program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

enum { WAITERS = 3, FORKS = 1500, HANDLED = 200, STEP = 16 };
#define BYTES (64 * MIB)
#define BUSY (4 * MIB)

static volatile int over;
static volatile sig_atomic_t came;
static int epoll;

static void *waits(void *arg)
{
	struct epoll_event event;

	while (!over)
		check(epoll_wait(epoll, &event, 1, 100) == 0);
	return arg;
}

static void *writes(void *memory)
{
	volatile unsigned char *p = memory;

	while (!over)
		for (size_t at = 0; at < BUSY; at += PAGE)
			p[at]++;
	return NULL;
}

static void ends_soon(void *turns)
{
	for (volatile int i = *(int *)turns; i > 0; i--)
		continue;
	_exit(0);
}

static void one_child(unsigned char *memory, int round)
{
	int turns = round * 7919 % 200000;
	pid_t child = start(ends_soon, &turns);

	finish(child);
	for (size_t at = 0; at < BYTES; at += STEP * PAGE)
		memory[at] = (unsigned char)round;
	check(usleep(50) == 0);
}

static void counts(int sig)
{
	(void)sig;
	came++;
}

int main(void)
{
	unsigned char *memory = get_filled(BYTES, 1);
	pthread_t threads[WAITERS], writer;

	epoll = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < WAITERS; i++)
		check(pthread_create(&threads[i], NULL, waits, NULL) == 0);
	check(pthread_create(&writer, NULL, writes, get_filled(BUSY, 2)) == 0);
	for (int round = 0; round < FORKS; round++)
		one_child(memory, round);
	over = 1;
	check(pthread_join(writer, NULL) == 0);
	for (int i = 0; i < WAITERS; i++)
		check(pthread_join(threads[i], NULL) == 0);
	for (int round = 0; round < HANDLED; round++) {
		check(signal(SIGCHLD, counts) == (round ? SIG_IGN : SIG_DFL));
		one_child(memory, round);
		check(came == round + 1);
		check(signal(SIGCHLD, SIG_DFL) == counts);
		one_child(memory, round);
		check(came == round + 1);
		check(signal(SIGCHLD, SIG_IGN) == SIG_DFL);
	}
	puts("idle_signals: done");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Two threads on one processor set signal handlers, and one of them has a real-time priority
 *
 * It interrupts the other one anywhere. Where it has to wait for it, it sleeps, since the
 * other thread runs only then. If it waited in a loop, that loop would use the processor
 * for ever, or until the kernel throttles it.
 */
#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

enum { TIMES = 2000 };

static const uint64_t most_ns = 200000000; /* the kernel throttles after 950 ms */
static int stop;

static void nothing(int sig)
{
	(void)sig;
}

static void set(int sig)
{
	struct sigaction a = { .sa_handler = nothing };

	check(sigaction(sig, &a, NULL) == 0);
}

static uint64_t used_ns(void)
{
	struct timespec t;

	check(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void *plain(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		set(SIGUSR1);
	return arg;
}

static void *real_time(void *arg)
{
	for (int i = 0; i < TIMES; i++) {
		uint64_t before;

		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		before = used_ns();
		set(SIGUSR2);
		check(used_ns() - before < most_ns);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	return arg;
}

/* False: this process may not have such a thread. */
static int begin_real_time(pthread_t *thread, void *(*body)(void *))
{
	pthread_attr_t a;
	int r;

	pthread_attr_init(&a);
	pthread_attr_setinheritsched(&a, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&a, SCHED_FIFO);
	pthread_attr_setschedparam(&a, &(struct sched_param){ .sched_priority = 10 });
	r = pthread_create(thread, &a, body, NULL);
	pthread_attr_destroy(&a);
	return r == 0;
}

int main(void)
{
	pthread_t threads[2];
	cpu_set_t one, all;
	int cpu = 0;

	check(sched_getaffinity(0, sizeof(all), &all) == 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	check(sched_setaffinity(0, sizeof(one), &one) == 0);
	if (!begin_real_time(&threads[0], real_time)) {
		puts("skip real_time: no real-time priorities here");
		return 77;
	}
	check(pthread_create(&threads[1], NULL, plain, NULL) == 0);
	for (int i = 0; i < 2; i++)
		check(pthread_join(threads[i], NULL) == 0);
	puts("real_time: done");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * A thousand threads, each with a large block, and forks in their midst
 */
#include "program.h"

#include <limits.h>
#include <pthread.h>

enum { THREADS = 1000, FORKERS = 4 };

static const size_t bytes = MIB + 5000;
static pthread_barrier_t all_there, go_home;

static void write_some(unsigned char *p, unsigned char value)
{
	memset(p, value, 3000);
	p[bytes / 2] = p[bytes - 1] = value;
}

static void check_some(const unsigned char *p, unsigned char value)
{
	check(all(p, 3000, value));
	check(p[bytes / 2] == value && p[bytes - 1] == value);
}

static void in_the_child(void *arg)
{
	unsigned char *p = arg, *q = get_filled(2 * MIB, 1);

	check_some(p, 1);
	write_some(p, 2);
	free(p);
	check(holds(q, 2 * MIB, 1));
}

static void *live(void *arg)
{
	unsigned char *p = get(bytes), *q;
	size_t number = (size_t)arg;

	write_some(p, 1);
	pthread_barrier_wait(&all_there);
	if (number % (THREADS / FORKERS) == 0)
		in_child(in_the_child, p);
	q = calloc(1, bytes);
	check(q != NULL && q[bytes / 3] == 0);
	q = realloc(q, 2 * bytes);
	check(q != NULL && q[bytes / 3] == 0);
	free(q);
	check_some(p, 1);
	write_some(p, 3);
	pthread_barrier_wait(&go_home);
	check_some(p, 3);
	return p;
}

int main(void)
{
	static pthread_t thread[THREADS];
	unsigned char *mine = get(bytes);
	pthread_attr_t small;
	void *p;
	int i;

	write_some(mine, 1);
	check(pthread_attr_init(&small) == 0);
	check(pthread_attr_setstacksize(&small, 64 * KIB) == 0);
	check(pthread_barrier_init(&all_there, NULL, THREADS) == 0);
	check(pthread_barrier_init(&go_home, NULL, THREADS + 1) == 0);
	for (i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], &small, live,
		                     (void *)(uintptr_t)i) == 0);
	in_child(in_the_child, mine);
	pthread_barrier_wait(&go_home);
	in_child(in_the_child, mine);
	for (i = 0; i < THREADS; i++) {
		check(pthread_join(thread[i], &p) == 0);
		free(p);
	}
	check_some(mine, 1);
	puts("crowd: done");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * fork and rewrite, over and over, beside a pool that waits
 *
 * The pool's threads sit in pthread_cond_wait() and get work now and then: each
 * then rewrites a part of the blocks. The allocator may remap memory while they
 * sleep. They must find it as it was, and lose no write.
 */
#include "program.h"

#include <pthread.h>

enum { THREADS = 4, BLOCKS = 8, CYCLES = 30 };

static const size_t bytes = 3 * MIB;
static unsigned char *blocks[BLOCKS];
static uint64_t seeds[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static int asked, left, finished;

static void write_one(int i, uint64_t seed)
{
	seeds[i] = seed;
	fill(blocks[i], bytes, seed);
}

static void *pool(void *arg)
{
	int number = (int)(uintptr_t)arg, seen = 0;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (asked == seen && !finished)
			pthread_cond_wait(&work, &lock);
		if (finished)
			break;
		seen = asked;
		pthread_mutex_unlock(&lock);
		check(holds(blocks[number], bytes, seeds[number]));
		write_one(number, (uint64_t)(1000 * seen + number));
		pthread_mutex_lock(&lock);
		if (--left == 0)
			pthread_cond_signal(&done);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void ask(void)
{
	pthread_mutex_lock(&lock);
	left = THREADS;
	asked++;
	pthread_cond_broadcast(&work);
	while (left > 0)
		pthread_cond_wait(&done, &lock);
	pthread_mutex_unlock(&lock);
}

static void check_all(void)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		check(holds(blocks[i], bytes, seeds[i]));
}

static void reads(void *arg)
{
	(void)arg;
	check_all();
}

static void writes(void *arg)
{
	int i;

	(void)arg;
	check_all();
	for (i = 0; i < BLOCKS; i += 2)
		write_one(i, 77);
	check_all();
	free(blocks[1]);
	blocks[1] = get_filled(bytes, seeds[1]);
	check_all();
}

int main(void)
{
	pthread_t thread[THREADS];
	pid_t child;
	int i, n;

	for (i = 0; i < BLOCKS; i++) {
		blocks[i] = get(bytes);
		write_one(i, (uint64_t)i);
	}
	for (i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, pool,
		                     (void *)(uintptr_t)i) == 0);
	for (n = 0; n < CYCLES; n++) {
		child = start(n % 2 ? reads : writes, NULL);
		if (n % 3 == 0)
			finish(child);
		for (i = n % 4; i < BLOCKS; i += n % 4 + 1)
			write_one(i, (uint64_t)(100 * n + i));
		if (n % 5 == 0)
			ask();
		free(get_filled(2 * MIB, 5));
		check_all();
		if (n % 3 != 0)
			finish(child);
		if (n % 5 == 2)
			ask();
		check_all();
	}
	pthread_mutex_lock(&lock);
	finished = 1;
	pthread_cond_broadcast(&work);
	pthread_mutex_unlock(&lock);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	check_all();
	for (i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	puts("idle_threads: done");
	return 0;
}

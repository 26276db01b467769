/* SPDX-License-Identifier: MIT */
/*
 * Threads that pass blocks to each other, grow them, and end with some in
 * their thread-specific data
 */
#include "program.h"

#include <pthread.h>

enum { THREADS = 6, DESKS = 40, ROUNDS = 2500 };

struct desk {
	pthread_mutex_t lock;
	unsigned char *p;
	size_t bytes;
	uint64_t seed;
};

static struct desk desks[DESKS];
static pthread_key_t key;

static void last_words(void *p)
{
	check(holds(p, 200000, 9));
	free(p);
	free(get_filled(100000, 1));
}

static void *work(void *arg)
{
	uint64_t random = (uint64_t)(uintptr_t)arg + 1;
	struct desk *d;
	size_t more;
	int n;

	pthread_setspecific(key, get_filled(200000, 9));
	for (n = 0; n < ROUNDS; n++) {
		d = &desks[below(&random, DESKS)];
		pthread_mutex_lock(&d->lock);
		check(d->p == NULL || holds(d->p, d->bytes, d->seed));
		more = 1 + below(&random, n % 8 ? 40000 : 800000);
		if (n % 5 == 0) {
			d->p = realloc(d->p, more);
			check(d->p != NULL);
			check(holds(d->p, more < d->bytes ? more : d->bytes,
			            d->seed));
		} else {
			free(d->p);
			d->p = n % 7 ? malloc(more) : calloc(1, more);
			check(d->p != NULL);
			check(n % 7 || all(d->p, more, 0));
		}
		d->bytes = more;
		d->seed = next_random(&random);
		fill(d->p, more, d->seed);
		pthread_mutex_unlock(&d->lock);
	}
	return NULL;
}

static void *short_life(void *arg)
{
	unsigned char *p = get_filled(150000, (uint64_t)(uintptr_t)arg);

	pthread_setspecific(key, get_filled(200000, 9));
	return p;
}

static void many_short_lives(void)
{
	pthread_t thread[8];
	void *p;
	int n, i;

	for (n = 0; n < 40; n++) {
		for (i = 0; i < 8; i++)
			check(pthread_create(&thread[i], NULL, short_life,
			                     (void *)(uintptr_t)i) == 0);
		for (i = 0; i < 8; i++) {
			check(pthread_join(thread[i], &p) == 0);
			check(holds(p, 150000, (uint64_t)i));
			free(p);
		}
	}
}

int main(void)
{
	pthread_t thread[THREADS];
	int i;

	check(pthread_key_create(&key, last_words) == 0);
	for (i = 0; i < DESKS; i++)
		pthread_mutex_init(&desks[i].lock, NULL);
	for (i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, work,
		                     (void *)(uintptr_t)i) == 0);
	for (i = 0; i < THREADS; i++)
		check(pthread_join(thread[i], NULL) == 0);
	for (i = 0; i < DESKS; i++) {
		check(holds(desks[i].p, desks[i].bytes, desks[i].seed));
		free(desks[i].p);
	}
	many_short_lives();
	puts("threads: done");
	return 0;
}

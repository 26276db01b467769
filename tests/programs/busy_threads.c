/* SPDX-License-Identifier: MIT */
/*
 * fork beside threads that write all the time
 *
 * Writer i writes 1, 2, 3, ... into the words of its block in turn. The child
 * must find every write that was finished before the fork, and none that began
 * after it. What it finds must not change. The parent's writers must not lose a
 * single write.
 */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WRITERS = 3, WORDS = 61, FORKS = 40 };

struct writer {
	_Atomic uint64_t *words;
	size_t stride;
	_Atomic uint64_t done;
	pthread_t thread;
};

static struct writer writers[WRITERS];
static atomic_bool stop;
static uint64_t before[WRITERS];
static int to_child[2], to_parent[2];

static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint64_t n;

	for (n = 1; !atomic_load(&stop); n++) {
		atomic_store(&w->words[n % WORDS * w->stride], n);
		atomic_store(&w->done, n);
	}
	return NULL;
}

static void *make_and_free(void *arg)
{
	uint64_t random = (uint64_t)(uintptr_t)arg + 5, seed;
	unsigned char *p, *q;
	size_t bytes;

	while (!atomic_load(&stop)) {
		bytes = 1 + below(&random, 400000);
		seed = next_random(&random);
		p = get_filled(bytes, seed);
		q = calloc(1, bytes);
		check(q != NULL && all(q, bytes, 0));
		p = realloc(p, 2 * bytes);
		check(holds(p, bytes, seed));
		free(p);
		free(q);
	}
	return NULL;
}

static uint64_t last_write(uint64_t index, uint64_t n)
{
	uint64_t back = (n + WORDS - index) % WORDS;

	return n < back ? 0 : n - back;
}

static void look(const uint64_t *after)
{
	uint64_t i, value;
	int w;

	for (w = 0; w < WRITERS; w++)
		for (i = 0; i < WORDS; i++) {
			value = writers[w].words[i * writers[w].stride];
			check(value >= last_write(i, before[w]));
			check(value <= after[w] + 1);
		}
}

static void in_the_child(void *arg)
{
	uint64_t after[WRITERS];
	unsigned char *p;
	ssize_t n;

	(void)arg;
	/* Small enough to come in one piece. */
	n = read(to_child[0], after, sizeof(after));
	check(n == (ssize_t)sizeof(after));
	look(after);
	p = get_filled(500000, 3);
	gate_open(to_parent);
	gate_wait(to_child);
	look(after);
	check(holds(p, 500000, 3));
	free(p);
	for (n = 0; n < WRITERS; n++)
		free((void *)writers[n].words);
}

static void progress(uint64_t *done)
{
	int w;

	for (w = 0; w < WRITERS; w++)
		done[w] = atomic_load(&writers[w].done);
}

static void let_them_go_on(const uint64_t *after)
{
	int w;

	for (w = 0; w < WRITERS; w++)
		while (atomic_load(&writers[w].done) < after[w] + 2 * WORDS)
			;
}

int main(void)
{
	static const size_t sizes[WRITERS] = { 100000, MIB, 8 * MIB };
	uint64_t after[WRITERS], i;
	pthread_t makers[2];
	pid_t child;
	int w, n;

	gate_make(to_child);
	gate_make(to_parent);
	for (w = 0; w < WRITERS; w++) {
		writers[w].words = calloc(1, sizes[w]);
		check(writers[w].words != NULL);
		writers[w].stride = sizes[w] / 8 / WORDS;
		check(pthread_create(&writers[w].thread, NULL, write_on,
		                     &writers[w]) == 0);
	}
	for (w = 0; w < 2; w++)
		check(pthread_create(&makers[w], NULL, make_and_free,
		                     (void *)(uintptr_t)w) == 0);
	for (n = 0; n < FORKS; n++) {
		progress(before);
		child = start(in_the_child, NULL);
		progress(after);
		let_them_go_on(after);
		check(write(to_child[1], after, sizeof(after)) > 0);
		gate_wait(to_parent);
		progress(after);
		let_them_go_on(after);
		gate_open(to_child);
		finish(child);
	}
	atomic_store(&stop, 1);
	for (w = 0; w < 2; w++)
		pthread_join(makers[w], NULL);
	for (w = 0; w < WRITERS; w++) {
		pthread_join(writers[w].thread, NULL);
		for (i = 0; i < WORDS; i++)
			check(writers[w].words[i * writers[w].stride] ==
			      last_write(i, writers[w].done));
		free((void *)writers[w].words);
	}
	puts("busy_threads: done");
	return 0;
}

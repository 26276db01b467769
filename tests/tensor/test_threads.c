/* SPDX-License-Identifier: MIT */
/*
 * Tensors in many threads, beside forks
 *
 * All threads read, view, copy from and lazily clone the same tensors, whose elements count
 * up, and write their own. Meanwhile other threads fork. Children find every tensor as it
 * was, and copy with threads of their own, as do their children. Made for ThreadSanitizer,
 * too.
 */
#include "tests/support/tensors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SOURCES = 4, COPIERS = 3, FORKERS = 2 };

static struct cow_tensor *sources[SOURCES];
static atomic_int stop;

/* The element at (i, j) of [n, m], which counts up. */
static void counts_up(struct cow_tensor *t, int sign)
{
	const int64_t *sizes = cow_tensor_sizes(t), *strides = cow_tensor_strides(t);
	const int32_t *data = cow_tensor_data(t);

	for (int64_t i = 0; i < sizes[0]; i++)
		for (int64_t j = 0; j < sizes[1]; j++)
			must(data[i * strides[0] + j * strides[1]] ==
			     sign * (int32_t)(i * sizes[1] + j));
}

static void copied(struct cow_tensor *source, struct prng *prng)
{
	struct cow_tensor *view = transpose(cow_tensor_ref(source), 0, 1), *t, *u;

	/* Turned over, and back by way of another type. */
	ok(cow_tensor_clone(view, COW_FORMAT_CONTIGUOUS, &t));
	cow_tensor_unref(view);
	ok(cow_tensor_to(t, &(struct cow_to){ .size = sizeof(struct cow_to),
	                                      .dtype = COW_INT64,
	                                      .format = COW_FORMAT_PRESERVE }, &u));
	t = transpose(t, 0, 1);
	counts_up(t, 1);
	u = transpose(u, 0, 1);
	ok(cow_tensor_fill(t, COW_INT32, &(int32_t){ 7 }));
	ok(cow_tensor_copy(t, u, 0));
	counts_up(t, 1);
	/* Negated where it is. */
	ok(cow_tensor_neg(t, &view));
	if (prng_below(prng, 2)) {
		ok(cow_tensor_copy(t, view, 0));
		counts_up(t, -1);
	}
	cow_tensor_unref(view);
	cow_tensor_unref(t);
	cow_tensor_unref(u);
}

static void cloned(struct cow_tensor *source, struct prng *prng)
{
	struct cow_tensor *lazy, *row, *t;
	int64_t n = cow_tensor_sizes(source)[0];
	int64_t at = (int64_t)prng_below(prng, (size_t)n);

	ok(cow_tensor_lazy_clone(source, &lazy));
	counts_up(lazy, 1);
	ok(cow_tensor_select(lazy, 0, at, &row));
	ok(cow_tensor_fill(row, COW_INT32, &(int32_t){ -1 })); /* no other thread sees it */
	must(*(const int32_t *)cow_tensor_data(row) == -1);
	cow_tensor_unref(row);
	/* A copy by pages over it, and a write to that. */
	ok(cow_tensor_copy(lazy, source, COW_COPY_LAZY));
	counts_up(lazy, 1);
	ok(cow_tensor_contiguous(lazy, COW_FORMAT_CONTIGUOUS, COW_COPY_LAZY, &t));
	ok(cow_tensor_fill(lazy, COW_INT32, &(int32_t){ 3 }));
	counts_up(t, 1);
	cow_tensor_unref(t);
	cow_tensor_unref(lazy);
}

static void *copier(void *arg)
{
	struct prng prng = prng_make((uint64_t)(uintptr_t)arg + 1);

	while (!atomic_load(&stop)) {
		struct cow_tensor *source = sources[prng_below(&prng, SOURCES)];

		ok(cow_threads_set(1 + (int)prng_below(&prng, 4)));
		if (prng_below(&prng, 2))
			copied(source, &prng);
		else
			cloned(source, &prng);
		if (prng_below(&prng, 20) == 0)
			cow_threads_end();
	}
	return NULL;
}

static void work(uint64_t seed)
{
	struct prng prng = prng_make(seed);

	ok(cow_threads_set(3));
	for (int i = 0; i < SOURCES; i++) {
		counts_up(sources[i], 1);
		copied(sources[i], &prng);
		cloned(sources[i], &prng);
	}
}

static void grandchild(void *arg)
{
	work((uint64_t)(uintptr_t)arg);
}

static void child(void *arg)
{
	work((uint64_t)(uintptr_t)arg);
	in_child(grandchild, arg);
	/* No other process sees what is written here. */
	for (int i = 0; i < SOURCES; i++)
		ok(cow_tensor_fill(sources[i], COW_INT32, &(int32_t){ 9 }));
}

static void *forker(void *arg)
{
	for (int i = 0; i < ROUNDS(8); i++)
		in_child(child, (void *)((uintptr_t)arg * 100 + (uintptr_t)i));
	return NULL;
}

START_TEST(copies_clones_and_forks)
{
	pthread_t copiers[COPIERS], forkers[FORKERS];
	size_t i;

	sources[0] = counting(3, 5);
	sources[1] = counting(130, 257);  /* copied when written */
	sources[2] = counting(700, 350);  /* views of pages */
	sources[3] = counting(64, 12345); /* and threads for copies */
	atomic_store(&stop, 0);
	for (i = 0; i < COPIERS; i++)
		must(pthread_create(&copiers[i], NULL, copier, (void *)i) == 0);
	for (i = 0; i < FORKERS; i++)
		must(pthread_create(&forkers[i], NULL, forker, (void *)i) == 0);
	for (i = 0; i < FORKERS; i++)
		pthread_join(forkers[i], NULL);
	atomic_store(&stop, 1);
	for (i = 0; i < COPIERS; i++)
		pthread_join(copiers[i], NULL);
	for (i = 0; i < SOURCES; i++) {
		counts_up(sources[i], 1);
		sources[i] = cow_tensor_unref(sources[i]);
	}
	cow_threads_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_threads");
	TCase *tcase = add_case(suite, "threads");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, copies_clones_and_forks);
	return run_suite(suite);
}

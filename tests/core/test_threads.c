/* SPDX-License-Identifier: MIT */
/*
 * Threads: storages that secretly share bytes need no care from their users
 *
 * Each thread here orders only what it does to its own storages, and that is
 * all that a program has to do. The library orders the rest: everybody copies,
 * steals, clones and dies at once, and every byte is checked. The tests share
 * nothing between threads but what the contract allows, so that any report of
 * ThreadSanitizer is about the library.
 */
#include "tests/support/support.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 6 };

struct worker {
	struct cow_storage *storage; /* this thread's own */
	struct cow_storage *shared;  /* everybody's, only read */
	pthread_barrier_t *start;
	size_t bytes;
	uint64_t seed;
	int number, round;
};

/* Runs `body` in THREADS threads, on a worker each. */
static void run_workers(void *(*body)(void *), struct worker *workers)
{
	pthread_t threads[THREADS];
	pthread_barrier_t start;
	int i;

	ck_assert_int_eq(pthread_barrier_init(&start, NULL, THREADS), 0);
	for (i = 0; i < THREADS; i++) {
		workers[i].start = &start;
		workers[i].number = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, body,
		                                &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&start);
}

static const struct {
	size_t bytes;
	int rounds;
} plans[] = {
	{ 64, 300 }, { PAGE, 300 },    { 300000, 100 },
	{ MIB, 60 }, { 4 * MIB, 15 },
};
enum { PLANS = COUNT(plans) };

/* ---- Everybody at once --------------------------------------------------- */

/* One of the ways to live and die with a clone, chosen by round and number. */
static void *live_and_die(void *arg)
{
	struct worker *w = arg;
	enum cow_write_hint hint =
		(enum cow_write_hint)((w->round + w->number) % 5);
	struct cow_storage *clone;
	unsigned char *p;

	pthread_barrier_wait(w->start);
	if ((w->round + w->number) % 7 == 0) {
		cow_storage_unref(w->storage);
		return NULL;
	}
	if (hint != COW_WRITE_ALL)
		ck_pattern(data(w->storage), w->bytes, w->seed);
	p = mut_range(w->storage, 0, w->bytes, hint);
	if (hint != COW_WRITE_ALL)
		ck_pattern(p, w->bytes, w->seed);
	fill(p, w->bytes, w->seed + 1 + (uint64_t)w->number);
	clone = lazy(w->storage);
	cow_storage_unref(w->storage);
	ck_pattern(data(clone), w->bytes, w->seed + 1 + (uint64_t)w->number);
	memset(mut(clone), 0, w->bytes);
	cow_storage_unref(clone);
	return NULL;
}

START_TEST(all_materialize_clone_and_die)
{
	struct worker workers[THREADS];
	struct cow_storage *first;
	int round, i;

	for (round = 0; round < ROUNDS(plans[_i].rounds); round++) {
		first = new_filled(plans[_i].bytes, 0, (uint64_t)round);
		for (i = 0; i < THREADS; i++) {
			workers[i].storage = i == 0 ? first : lazy(first);
			workers[i].bytes = plans[_i].bytes;
			workers[i].seed = (uint64_t)round;
			workers[i].round = round;
		}
		run_workers(live_and_die, workers);
	}
}
END_TEST

/* All die, and none writes: the memory goes exactly once. */
static void *only_die(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(w->start);
	cow_storage_unref(w->storage);
	return NULL;
}

START_TEST(all_die_at_once)
{
	struct worker workers[THREADS];
	struct cow_storage *first;
	int round, i;

	for (round = 0; round < ROUNDS(plans[_i].rounds); round++) {
		first = new_filled(plans[_i].bytes, 0, 1);
		for (i = 1; i < THREADS; i++)
			workers[i].storage = lazy(first);
		workers[0].storage = first;
		run_workers(only_die, workers);
	}
	ck_assert_uint_eq(stats_now().storages_live, 0);
}
END_TEST

/* One copies while the other, then the last one, steals and writes at once:
 * the thief must wait until the copy is made. */
static void *copy_or_steal(void *arg)
{
	struct worker *w = arg;
	enum cow_write_hint hint =
		w->number % 2 ? COW_WRITE_BY_COPY : COW_WRITE_AUTO;
	unsigned char *p;

	pthread_barrier_wait(w->start);
	p = mut_range(w->storage, 0, w->bytes, hint);
	/* Backwards, to overtake whoever copies forwards. */
	memset(p + w->bytes / 2, 0x80 + w->number, w->bytes - w->bytes / 2);
	ck_pattern(p, w->bytes / 2, w->seed);
	ck_bytes(p + w->bytes / 2, w->bytes - w->bytes / 2, 0x80 + w->number);
	memset(p, 0x80 + w->number, w->bytes / 2);
	ck_bytes(p, w->bytes, 0x80 + w->number);
	return NULL;
}

START_TEST(thief_waits_for_copies)
{
	struct worker workers[THREADS];
	int round, i;

	for (round = 0; round < ROUNDS(plans[_i].rounds); round++) {
		for (i = 0; i < THREADS; i++) {
			workers[i].bytes = plans[_i].bytes;
			workers[i].seed = (uint64_t)round;
			/* Pairs, so that the second is always a thief. */
			workers[i].storage =
				i % 2 ? lazy(workers[i - 1].storage)
				      : new_filled(plans[_i].bytes, 0,
				                   (uint64_t)round);
		}
		run_workers(copy_or_steal, workers);
		for (i = 0; i < THREADS; i++)
			cow_storage_unref(workers[i].storage);
	}
}
END_TEST

/* ---- Clones while siblings write ----------------------------------------- */

/* Even ones clone what they hold, odd ones write theirs. */
static void *clone_or_write(void *arg)
{
	struct worker *w = arg;
	struct cow_storage *clones[8];
	int i, n;

	pthread_barrier_wait(w->start);
	for (n = 0; n < 6; n++) {
		for (i = 0; i < 8; i++)
			clones[i] = lazy(w->storage);
		if (w->number % 2)
			mut_range(w->storage, 0, 1, COW_WRITE_SPARSE)[0] =
				(unsigned char)n;
		for (i = 0; i < 8; i++) {
			if (i % 3 == 0)
				mut(clones[i])[w->bytes - 1] ^= 0xff;
			must(data(clones[i])[w->bytes / 2] ==
			     data(w->storage)[w->bytes / 2]);
			cow_storage_unref(clones[i]);
		}
	}
	return NULL;
}

START_TEST(clones_while_siblings_write)
{
	struct worker workers[THREADS];
	size_t bytes = plans[_i].bytes < 3 * PAGE ? 100 : plans[_i].bytes;
	struct cow_storage *first;
	int round, i;

	for (round = 0; round < ROUNDS(plans[_i].rounds) / 3 + 1; round++) {
		first = new_filled(bytes, 0, 9);
		for (i = 0; i < THREADS; i++) {
			workers[i].storage = lazy(first);
			workers[i].bytes = bytes;
		}
		run_workers(clone_or_write, workers);
		ck_pattern(data(first), bytes, 9);
		for (i = 0; i < THREADS; i++) {
			if (i % 2 == 0)
				ck_pattern(data(workers[i].storage), bytes, 9);
			else
				ck_assert_uint_eq(data(workers[i].storage)[0],
				                  5);
			cow_storage_unref(workers[i].storage);
		}
		cow_storage_unref(first);
	}
}
END_TEST

/* Cloning is a read: many threads may clone the very same storage. */
static void *clone_the_same(void *arg)
{
	struct worker *w = arg;
	struct cow_storage *clone;
	int i;

	pthread_barrier_wait(w->start);
	for (i = 0; i < 50; i++) {
		clone = lazy(w->shared);
		must(cow_storage_bytes(w->shared) == w->bytes);
		ck_pattern(data(w->shared), 64, w->seed);
		if (i % 5 == w->number % 5)
			memset(mut(clone), i, w->bytes);
		else
			ck_pattern(data(clone), 64, w->seed);
		cow_storage_unref(clone);
	}
	return NULL;
}

START_TEST(one_storage_cloned_by_all)
{
	uint32_t flags = _i % 2 ? COW_STORAGE_TRANSPARENT : 0;
	size_t bytes = plans[_i / 2].bytes;
	struct cow_storage *shared = new_filled(bytes, flags, 11);
	struct worker workers[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		workers[i].shared = shared;
		workers[i].bytes = bytes;
		workers[i].seed = 11;
	}
	run_workers(clone_the_same, workers);
	ck_pattern(data(shared), bytes, 11);
	ck_pattern(mut(shared), bytes, 11);
	cow_storage_unref(shared);
}
END_TEST

static void *ref_and_unref(void *arg)
{
	struct worker *w = arg;
	int i, n = ROUNDS(100000);

	pthread_barrier_wait(w->start);
	for (i = 0; i < n; i++) {
		cow_storage_ref(w->shared);
		cow_storage_unref(w->shared);
	}
	cow_storage_unref(w->shared);
	return NULL;
}

START_TEST(storm_of_references)
{
	struct cow_storage *shared = new_filled(1000, 0, 12);
	struct worker workers[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		workers[i].shared = cow_storage_ref(shared);
	run_workers(ref_and_unref, workers);
	ck_assert_uint_eq(refs_of(shared), 1);
	ck_pattern(data(shared), 1000, 12);
	cow_storage_unref(shared);
}
END_TEST

/* ---- Memory made here and freed there ------------------------------------ */

enum { DESKS = 64 };

struct desk {
	pthread_mutex_t lock;
	unsigned char *block;
	struct cow_storage *storage;
	size_t bytes;
	uint64_t seed;
};

static struct desk desks[DESKS];

static void clear_desk(struct desk *desk)
{
	if (desk->block != NULL) {
		ck_pattern(desk->block, desk->bytes, desk->seed);
		cow_block_free(desk->block);
		desk->block = NULL;
	}
	if (desk->storage != NULL) {
		ck_pattern(data(desk->storage), desk->bytes, desk->seed);
		desk->storage = cow_storage_unref(desk->storage);
	}
}

/* Takes what lies on a desk, whoever put it there, and puts something new. */
static void *swap_desks(void *arg)
{
	struct worker *w = arg;
	struct prng prng = prng_make((uint64_t)w->number);
	int i, n = ROUNDS(1500);
	struct desk *desk;
	void *grown;

	pthread_barrier_wait(w->start);
	for (i = 0; i < n; i++) {
		desk = &desks[prng_below(&prng, DESKS)];
		pthread_mutex_lock(&desk->lock);
		clear_desk(desk);
		desk->bytes = 1 + prng_below(&prng, i % 8 ? 20000 : 500000);
		desk->seed = (uint64_t)w->number << 32 | (uint64_t)i;
		if (i % 2) {
			desk->storage =
				new_filled(desk->bytes, 0, desk->seed);
		} else {
			desk->block = new_block(desk->bytes, 0);
			if (i % 4) {
				desk->bytes *= 2;
				ok(cow_block_resize(desk->block, desk->bytes,
				                    &grown));
				desk->block = grown;
			}
			fill(desk->block, desk->bytes, desk->seed);
		}
		pthread_mutex_unlock(&desk->lock);
		if (i % 256 == 0)
			cow_trim();
	}
	return NULL;
}

START_TEST(made_here_freed_there)
{
	struct worker workers[THREADS];
	int i;

	for (i = 0; i < DESKS; i++)
		pthread_mutex_init(&desks[i].lock, NULL);
	run_workers(swap_desks, workers);
	for (i = 0; i < DESKS; i++) {
		clear_desk(&desks[i]);
		pthread_mutex_destroy(&desks[i].lock);
	}
}
END_TEST

/* ---- Transparent storages ------------------------------------------------ */

/* Each thread writes its own, unseen, and clones it again and again. */
static void *write_unseen(void *arg)
{
	struct worker *w = arg;
	unsigned char *p = expose(w->storage);
	struct cow_storage *clone, *kept = NULL;
	uint64_t n, kept_seed = 0;

	pthread_barrier_wait(w->start);
	for (n = 0; n < 8; n++) {
		fill(p, w->bytes, w->seed + n);
		clone = lazy(w->storage);
		memset(p, 0, w->bytes);
		ck_pattern(data(clone), w->bytes, w->seed + n);
		if (kept != NULL) {
			ck_pattern(data(kept), w->bytes, kept_seed);
			cow_storage_unref(kept);
		}
		kept = clone;
		kept_seed = w->seed + n;
	}
	ck_bytes(p, w->bytes, 0);
	cow_storage_unref(kept);
	cow_storage_unref(w->storage);
	return NULL;
}

START_TEST(transparent_side_by_side)
{
	struct worker workers[THREADS];
	size_t bytes = plans[_i].bytes;
	struct cow_storage *first;
	int round, i;

	for (round = 0; round < ROUNDS(plans[_i].rounds) / 12 + 1; round++) {
		first = new_filled(bytes, 0, 13);
		for (i = 0; i < THREADS; i++) {
			/* Half begin as clones of one allocation. */
			workers[i].storage =
				i % 2 ? new_storage(bytes,
				                    COW_STORAGE_TRANSPARENT)
				      : lazy(first);
			workers[i].bytes = bytes;
			workers[i].seed = (uint64_t)(round * 1000 + i * 10);
		}
		cow_storage_unref(first);
		run_workers(write_unseen, workers);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads");
	TCase *tcase = add_case(suite, "threads");

	tcase_add_loop_test(tcase, all_materialize_clone_and_die, 0, PLANS);
	tcase_add_loop_test(tcase, all_die_at_once, 0, PLANS);
	tcase_add_loop_test(tcase, thief_waits_for_copies, 0, PLANS);
	tcase_add_loop_test(tcase, clones_while_siblings_write, 0, PLANS);
	tcase_add_loop_test(tcase, one_storage_cloned_by_all, 0, 2 * PLANS);
	tcase_add_test(tcase, storm_of_references);
	tcase_add_test(tcase, made_here_freed_there);
	tcase_add_loop_test(tcase, transparent_side_by_side, 0, PLANS);
	return run_suite(suite);
}

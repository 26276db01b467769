/* SPDX-License-Identifier: MIT */
/*
 * fork while other threads run
 *
 * The child has one thread, the memory of one moment, and locks that nobody
 * else will ever open. It must find every byte in place and be able to use the
 * library at once. The parent's threads, which nobody stopped, must lose no
 * write and see none of the child's.
 *
 * What a running writer had written at the moment of the fork is known only
 * within bounds: all that it had finished before the call is there, nothing
 * that it began after the call is.
 */
#include "tests/support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 3, MAKERS = 2, WORDS = 97 };

/* Writes n into word n % WORDS, for n = 1, 2, ... */
struct writer {
	_Atomic uint64_t *words;
	size_t stride; /* words are that far apart */
	struct cow_storage *storage;
	_Atomic uint64_t done;
	pthread_t thread;
};

static struct writer writers[WRITERS];
static atomic_bool stop;
static struct gate to_child, to_parent;

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

/* The last number written to `word` when n was the last one of all. */
static uint64_t last_write(uint64_t word, uint64_t n)
{
	uint64_t back = (n + WORDS - word) % WORDS;

	return n < back ? 0 : n - back;
}

static void *make_and_free(void *arg)
{
	struct prng prng = prng_make((uint64_t)(uintptr_t)arg);
	struct cow_storage *a, *b;
	unsigned char *block;
	size_t bytes;
	uint64_t seed;

	while (!atomic_load(&stop)) {
		bytes = 1 + prng_below(&prng, 300000);
		seed = prng_next(&prng);
		a = new_filled(bytes, 0, seed);
		b = lazy(a);
		block = new_block(bytes, 0);
		fill(block, bytes, seed);
		mut_range(b, 0, 1, COW_WRITE_SPARSE)[0] ^= 1;
		ck_pattern(data(a), bytes, seed);
		ck_pattern(block, bytes, seed);
		cow_block_free(block);
		cow_storage_unref(a);
		cow_storage_unref(b);
	}
	return NULL;
}

static void use_the_library(uint64_t seed)
{
	struct cow_storage *a = new_filled(MIB + 5, 0, seed), *b = lazy(a);
	unsigned char *block = new_block(300000, COW_BLOCK_ZERO);

	ck_bytes(block, 300000, 0);
	fill(block, 300000, seed);
	mut_range(b, 5, 1, COW_WRITE_BY_PAGE)[5] ^= 1;
	ck_pattern(data(a), MIB + 5, seed);
	ck_pattern(block, 300000, seed);
	cow_block_free(block);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_trim();
}

static void check_writers(const uint64_t *before, const uint64_t *after)
{
	uint64_t word, value;
	int i;

	for (i = 0; i < WRITERS; i++)
		for (word = 0; word < WORDS; word++) {
			value = writers[i].words[word * writers[i].stride];
			must(value >= last_write(word, before[i]));
			must(value <= after[i] + 1);
		}
}

static void in_the_child(void *arg)
{
	const uint64_t *before = arg;
	uint64_t after[WRITERS];

	gate_receive(&to_child, after, sizeof(after));
	check_writers(before, after);
	use_the_library(before[0]);
	/* The parent's threads have gone on by now. */
	gate_open(&to_parent);
	gate_wait(&to_child);
	check_writers(before, after);
}

static void progress(uint64_t *done)
{
	int i;

	for (i = 0; i < WRITERS; i++)
		done[i] = atomic_load(&writers[i].done);
}

static void let_them_go_on(const uint64_t *after)
{
	int i;

	for (i = 0; i < WRITERS; i++)
		while (atomic_load(&writers[i].done) < after[i] + 2 * WORDS)
			;
}

START_TEST(fork_beside_writers)
{
	static const size_t sizes[] = { 64 * KIB, MIB, 8 * MIB };
	size_t bytes = sizes[_i % 3];
	uint32_t flags = COW_STORAGE_TRANSPARENT | COW_STORAGE_ZERO;
	uint64_t before[WRITERS], after[WRITERS], word;
	pthread_t makers[MAKERS];
	pid_t child;
	int i, n;

	gate_make(&to_child);
	gate_make(&to_parent);
	for (i = 0; i < WRITERS; i++) {
		struct writer *w = &writers[i];

		w->storage = new_storage(bytes, flags);
		w->words = (_Atomic uint64_t *)(void *)expose(w->storage);
		w->stride = bytes / sizeof(uint64_t) / WORDS;
		must(pthread_create(&w->thread, NULL, write_on, w) == 0);
	}
	for (i = 0; i < MAKERS; i++)
		must(pthread_create(&makers[i], NULL, make_and_free,
		                    (void *)(uintptr_t)(i + 1)) == 0);
	for (n = 0; n < ROUNDS(40); n++) {
		progress(before);
		child = child_start(in_the_child, before);
		progress(after);
		use_the_library((uint64_t)n);
		let_them_go_on(after);
		gate_send(&to_child, after, sizeof(after));
		gate_wait(&to_parent);
		progress(after);
		let_them_go_on(after);
		gate_open(&to_child);
		child_finish(child);
	}
	atomic_store(&stop, true);
	for (i = 0; i < MAKERS; i++)
		pthread_join(makers[i], NULL);
	for (i = 0; i < WRITERS; i++) {
		struct writer *w = &writers[i];

		pthread_join(w->thread, NULL);
		for (word = 0; word < WORDS; word++)
			must(w->words[word * w->stride] ==
			     last_write(word, w->done));
		cow_storage_unref(w->storage);
	}
	gate_free(&to_child);
	gate_free(&to_parent);
}
END_TEST

/* ---- All of them fork ---------------------------------------------------- */

struct forker {
	struct cow_storage *tracked, *clone, *transparent;
	unsigned char *block;
	uint64_t seed;
	pthread_t thread;
};

enum { FORKERS = 4, FORKER_BYTES = 1300000 };

static void check_forker(const struct forker *f)
{
	ck_pattern(data(f->tracked), FORKER_BYTES, f->seed);
	ck_pattern(data(f->clone), FORKER_BYTES, f->seed);
	ck_pattern(data(f->transparent), FORKER_BYTES, f->seed);
	ck_pattern(f->block, FORKER_BYTES, f->seed);
}

static void write_forker(struct forker *f, uint64_t seed)
{
	f->seed = seed;
	fill(mut(f->tracked), FORKER_BYTES, seed);
	fill(mut(f->clone), FORKER_BYTES, seed);
	fill(expose(f->transparent), FORKER_BYTES, seed);
	fill(f->block, FORKER_BYTES, seed);
}

static void in_a_forkers_child(void *arg)
{
	struct forker *f = arg;

	check_forker(f);
	write_forker(f, f->seed + 500);
	use_the_library(f->seed);
	check_forker(f);
}

static void *fork_and_write(void *arg)
{
	struct forker *f = arg;
	pid_t child;
	int n;

	for (n = 0; n < ROUNDS(12); n++) {
		child = child_start(in_a_forkers_child, f);
		check_forker(f);
		write_forker(f, f->seed + 1);
		check_forker(f);
		child_finish(child);
	}
	return NULL;
}

START_TEST(fork_in_every_thread)
{
	static struct forker forkers[FORKERS];
	int i;

	for (i = 0; i < FORKERS; i++) {
		struct forker *f = &forkers[i];

		f->seed = (uint64_t)(i + 1) * 10000;
		f->tracked = new_filled(FORKER_BYTES, 0, f->seed);
		f->clone = lazy(f->tracked);
		f->transparent = new_filled(FORKER_BYTES,
		                            COW_STORAGE_TRANSPARENT, f->seed);
		f->block = new_block(FORKER_BYTES, 0);
		fill(f->block, FORKER_BYTES, f->seed);
	}
	for (i = 0; i < FORKERS; i++)
		must(pthread_create(&forkers[i].thread, NULL, fork_and_write,
		                    &forkers[i]) == 0);
	for (i = 0; i < FORKERS; i++) {
		struct forker *f = &forkers[i];

		pthread_join(f->thread, NULL);
		check_forker(f);
		cow_storage_unref(f->tracked);
		cow_storage_unref(f->clone);
		cow_storage_unref(f->transparent);
		cow_block_free(f->block);
	}
}
END_TEST

/* ---- Idle threads -------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int idle;

static void *wait_for_the_end(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	idle++;
	while (!atomic_load(&stop))
		pthread_cond_wait(&never, &lock);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void rewrites_all(void *arg)
{
	struct forker *f = arg;

	check_forker(f);
	write_forker(f, 3);
	check_forker(f);
}

static bool all_idle(void *arg)
{
	bool all;

	pthread_mutex_lock(&lock);
	all = idle == *(int *)arg;
	pthread_mutex_unlock(&lock);
	return all;
}

/* A pool that waits: the process is as good as alone, and may be thawed while
 * it rewrites what was frozen. Nothing may be lost on that way. */
START_TEST(fork_beside_idle_threads)
{
	struct forker f = { .seed = 1 };
	pthread_t pool[4];
	int i, n = 4;

	f.tracked = new_filled(FORKER_BYTES, 0, 1);
	f.clone = lazy(f.tracked);
	f.transparent = new_filled(FORKER_BYTES, COW_STORAGE_TRANSPARENT, 1);
	f.block = new_block(FORKER_BYTES, 0);
	fill(f.block, FORKER_BYTES, 1);
	for (i = 0; i < n; i++)
		must(pthread_create(&pool[i], NULL, wait_for_the_end, NULL) ==
		     0);
	must(wait_until(all_idle, &n, 60));
	for (i = 0; i < ROUNDS(40); i++) {
		in_child(rewrites_all, &f);
		check_forker(&f);
		write_forker(&f, (uint64_t)i + 5);
		use_the_library(7);
		check_forker(&f);
	}
	pthread_mutex_lock(&lock);
	atomic_store(&stop, true);
	pthread_cond_broadcast(&never);
	pthread_mutex_unlock(&lock);
	for (i = 0; i < n; i++)
		pthread_join(pool[i], NULL);
	cow_storage_unref(f.tracked);
	cow_storage_unref(f.clone);
	cow_storage_unref(f.transparent);
	cow_block_free(f.block);
}
END_TEST

/* ---- What forks teach ---------------------------------------------------- */

/* A thread that might write at any time: nothing thaws. */
static void *sleep_on(void *arg)
{
	while (!atomic_load((atomic_bool *)arg))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return NULL;
}

static void reads_one(void *arg)
{
	must(*(unsigned char *)arg == 1);
}

/* Who rewrites what stays frozen, and frees it before the next fork, gets
 * anonymous memory for new blocks; who only reads it does not. */
START_TEST(freed_blocks_teach)
{
	const size_t bytes = 8 * MIB;
	atomic_bool end = false;
	uint64_t anonymous;
	pthread_t thread;
	unsigned char *p;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_on, &end), 0);
	p = new_block(bytes, 0);
	memset(p, 1, bytes);
	in_child(reads_one, p);
	if (_i)
		memset(p, 2, bytes);
	cow_block_free(p);
	anonymous = stats_now().fallbacks[COW_FALLBACK_BACKING];
	p = new_block(bytes, 0);
	ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_BACKING],
	                  anonymous + (uint64_t)_i);
	atomic_store(&end, true);
	pthread_join(thread, NULL);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork_threads");
	TCase *tcase = add_case(suite, "fork_threads");

	tcase_add_loop_test(tcase, fork_beside_writers, 0, 3);
	tcase_add_test(tcase, fork_in_every_thread);
	tcase_add_test(tcase, fork_beside_idle_threads);
	tcase_add_loop_test(tcase, freed_blocks_teach, 0, 2);
	return run_suite(suite);
}

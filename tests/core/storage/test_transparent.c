/* SPDX-License-Identifier: MIT */
/*
 * Transparent storages: the address is out, and only the MMU sees writes
 *
 * Their writers know nothing of clones. So the address never moves, a clone
 * freezes the pages under it, and each later write through the old pointer
 * goes to the storage alone. Cloning again costs what was written since; here
 * it must first of all be right, for clustered and for scattered writes, and
 * for clones that lie in wait at every age.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const size_t sizes[] = {
	1, 100, PAGE, 65536, 300000, MIB, 4 * MIB, 7 * MIB + 5,
};
enum { SIZES = COUNT(sizes) };

START_TEST(clone_is_of_the_moment)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1);
	unsigned char *p = expose(a);
	struct cow_storage *b = lazy(a);

	ck_assert_ptr_eq(data(a), p);
	ck_pattern(data(b), bytes, 1);
	memset(p, 0, bytes);
	ck_pattern(data(b), bytes, 1);
	ck_bytes(p, bytes, 0);
	fill(mut(b), bytes, 2);
	ck_bytes(p, bytes, 0);
	fill(p, bytes, 3);
	ck_pattern(data(b), bytes, 2);
	ck_assert_ptr_eq(mut(a), p);
	ck_assert_ptr_eq(expose(a), p);
	ck_pattern(data(a), bytes, 3);
	cow_storage_unref(a);
	ck_pattern(data(b), bytes, 2);
	cow_storage_unref(b);
}
END_TEST

START_TEST(clones_are_tracked)
{
	struct cow_storage *a = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 4);
	struct cow_storage *b = lazy(a);

	ck_assert_uint_ne(info_of(a).flags & COW_STORAGE_TRANSPARENT, 0);
	ck_assert_uint_eq(info_of(b).flags & COW_STORAGE_TRANSPARENT, 0);
	ck_assert_uint_eq(info_of(a).frozen, 1);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

START_TEST(large_ones_freeze_small_ones_copy)
{
	struct cow_storage *small =
		new_filled(100, COW_STORAGE_TRANSPARENT, 5);
	struct cow_storage *large =
		new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 5);
	struct cow_stats s0 = stats_now(), s1, s2;
	struct cow_storage *b = lazy(small), *c;

	s1 = stats_now();
	ck_assert_uint_eq(s1.clones_eager, s0.clones_eager + 1);
	ck_assert_uint_eq(s1.fallbacks[COW_FALLBACK_SMALL],
	                  s0.fallbacks[COW_FALLBACK_SMALL] + 1);
	c = lazy(large);
	s2 = stats_now();
	ck_assert_uint_eq(s2.clones_paged, s1.clones_paged + 1);
	ck_assert_uint_eq(s2.bytes_copied, s1.bytes_copied);
	ck_assert_uint_ge(s2.bytes_not_copied, s1.bytes_not_copied + 8 * MIB);
	cow_storage_unref(b);
	cow_storage_unref(c);
	cow_storage_unref(small);
	cow_storage_unref(large);
}
END_TEST

/* Generations of clones at every age; each writes in its own way. */
START_TEST(clones_at_every_age)
{
	enum { AGES = 12 };
	size_t bytes = sizes[_i / 3], i, at;
	int how = _i % 3; /* clustered, scattered, everything */
	struct cow_storage *a = new_storage(bytes, COW_STORAGE_TRANSPARENT);
	struct cow_storage *age[AGES];
	unsigned char *p = expose(a), *model[AGES];
	struct prng prng = prng_make((uint64_t)_i);
	int g;

	memset(p, 0, bytes);
	for (g = 0; g < AGES; g++) {
		for (i = 0; i < 1 + bytes / (16 * PAGE); i++) {
			at = how == 1 ? prng_below(&prng, bytes)
			              : (bytes / 3 + i) % bytes;
			p[at] = (unsigned char)(g + 1);
		}
		if (how == 2)
			fill(p, bytes, (uint64_t)g);
		model[g] = new_block(bytes, 0);
		memcpy(model[g], p, bytes);
		age[g] = lazy(a);
	}
	for (g = 0; g < AGES; g++)
		ck_assert_mem_eq(data(age[g]), model[g], bytes);
	memset(p, 0xff, bytes);
	for (g = 0; g < AGES; g++) {
		ck_assert_mem_eq(data(age[g]), model[g], bytes);
		if (g % 3 == 0)
			memset(mut(age[g]), 0, bytes);
	}
	ck_bytes(p, bytes, 0xff);
	for (g = 0; g < AGES; g++) {
		if (g % 3 == 0)
			ck_bytes(data(age[g]), bytes, 0);
		else
			ck_assert_mem_eq(data(age[g]), model[g], bytes);
		cow_storage_unref(age[g]);
		cow_block_free(model[g]);
	}
	ck_bytes(p, bytes, 0xff);
	cow_storage_unref(a);
}
END_TEST

/* ---- Expose -------------------------------------------------------------- */

START_TEST(expose_every_state)
{
	size_t bytes = sizes[_i / 4];
	struct cow_storage *a = new_filled(bytes, 0, 6), *b = lazy(a), *c;
	unsigned char *p, *q;

	switch (_i % 4) {
	case 0: /* lazy */
		break;
	case 1:
		mut_range(b, 0, 1, COW_WRITE_BY_PAGE);
		break;
	case 2:
		mut_range(b, 0, 1, COW_WRITE_BY_COPY);
		break;
	case 3: /* the last one */
		cow_storage_unref(a);
		a = new_filled(bytes, 0, 6);
		break;
	}
	p = expose(b);
	ck_assert_ptr_eq(expose(b), p);
	ck_assert_uint_ne(info_of(b).flags & COW_STORAGE_TRANSPARENT, 0);
	ck_pattern(p, bytes, 6);
	fill(p, bytes, 7);
	ck_pattern(data(a), bytes, 6);
	ck_assert_ptr_eq(mut(b), p);
	c = lazy(b);
	fill(p, bytes, 8);
	ck_pattern(data(c), bytes, 7);
	ck_assert_ptr_eq(mut(b), p);
	ck_pattern(data(b), bytes, 8);
	q = expose(c);
	ck_assert_ptr_ne(p, q);
	fill(q, bytes, 9);
	ck_pattern(p, bytes, 8);
	ck_pattern(data(a), bytes, 6);
	fill(mut(a), bytes, 10);
	ck_pattern(q, bytes, 9);
	cow_storage_unref(a);
	cow_storage_unref(b);
	ck_pattern(q, bytes, 9);
	cow_storage_unref(c);
}
END_TEST

/* Its address is the same through everything but resize and swap. */
START_TEST(address_stays)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 11);
	struct cow_storage *b, *c;
	unsigned char *p = expose(a);
	int round;

	for (round = 0; round < 10; round++) {
		b = lazy(a);
		c = lazy(b);
		ck_assert_ptr_eq(mut(a), p);
		p[bytes - 1] ^= 0xff;
		ck_assert_ptr_eq(mut_range(a, 0, bytes, COW_WRITE_BY_COPY), p);
		ck_assert_ptr_eq(mut_range(a, 0, bytes, COW_WRITE_BY_PAGE), p);
		p[bytes - 1] ^= 0xff;
		ck_pattern(p, bytes, 11);
		mut(c)[0] ^= 1;
		cow_storage_unref(round % 2 ? b : c);
		ck_assert_ptr_eq(expose(a), p);
		cow_storage_unref(round % 2 ? c : b);
		cow_trim();
		ck_assert_ptr_eq(data(a), p);
		ck_pattern(p, bytes, 11);
	}
	cow_storage_unref(a);
}
END_TEST

START_TEST(blocks_can_be_cloned)
{
	size_t bytes = sizes[_i];
	unsigned char *block = new_block(bytes, 0);
	struct cow_storage *storage, *clone;

	fill(block, bytes, 12);
	ok(cow_storage_from_ptr(block, NULL, &storage));
	clone = lazy(storage);
	memset(block, 0, bytes);
	ck_pattern(data(clone), bytes, 12);
	cow_storage_unref(storage);
	ck_bytes(block, bytes, 0);
	cow_block_free(block);
	ck_pattern(data(clone), bytes, 12);
	cow_storage_unref(clone);
}
END_TEST

/* ---- Live writers -------------------------------------------------------- */

/* A writer writes n into word n % WORDS, for n = 1, 2, ...; `done` is how far
 * it got for certain. */
enum { WORDS = 64 };

/* A size whose page tables are taken down at a freeze, and one where they are
 * moved out of the way. */
static const size_t live_bytes[] = { 4 * MIB, 64 * MIB };
static size_t stride; /* between the words */

struct writer {
	_Atomic uint64_t *words;
	_Atomic uint64_t done;
	atomic_bool stop;
};

static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint64_t n;

	for (n = 1; !atomic_load(&w->stop); n++) {
		atomic_store(&w->words[n % WORDS * stride], n);
		atomic_store(&w->done, n);
	}
	return NULL;
}

/* The last write to `word` among the first n. */
static uint64_t last_write(uint64_t word, uint64_t n)
{
	uint64_t last = n - n % WORDS + word;

	if (last > n)
		last = last >= WORDS ? last - WORDS : 0;
	return last;
}

static void check_between(struct cow_storage *clone, uint64_t before,
                          uint64_t after)
{
	const uint64_t *words = (const void *)data(clone);
	uint64_t i;

	for (i = 0; i < WORDS; i++) {
		must(words[i * stride] >= last_write(i, before));
		must(words[i * stride] <= after + 1);
	}
}

/* Writes that finished before the call are in, later ones are out, and not one
 * is lost to the storage itself. */
START_TEST(clone_beside_a_live_writer)
{
	enum { CLONES = 200 };
	uint32_t flags = COW_STORAGE_TRANSPARENT | COW_STORAGE_ZERO;
	struct cow_storage *a = new_storage(live_bytes[_i], flags);
	struct writer w = { .words = (_Atomic uint64_t *)(void *)expose(a) };
	struct cow_storage *clone, *kept = lazy(a);
	uint64_t before, after, i;
	pthread_t thread;
	int n;

	stride = live_bytes[_i] / WORDS / sizeof(uint64_t);
	ck_assert_int_eq(pthread_create(&thread, NULL, write_on, &w), 0);
	for (n = 0; n < ROUNDS(CLONES); n++) {
		before = atomic_load(&w.done);
		clone = lazy(a);
		after = atomic_load(&w.done);
		check_between(clone, before, after);
		while (atomic_load(&w.done) < after + 2 * WORDS)
			;
		check_between(clone, before, after);
		if (n % 10 == 0) {
			cow_storage_unref(kept);
			kept = clone;
		} else {
			cow_storage_unref(clone);
		}
	}
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	for (i = 0; i < WORDS; i++)
		ck_assert_uint_eq(w.words[i * stride],
		                  last_write(i, atomic_load(&w.done)));
	cow_storage_unref(kept);
	cow_storage_unref(a);
}
END_TEST

struct expected {
	struct cow_storage *storage;
	uint64_t seed;
};

static void check_expected(void *arg)
{
	struct expected *e = arg;

	ck_pattern(data(e->storage), cow_storage_bytes(e->storage), e->seed);
	cow_trim();
}

/* Page tables that were moved away are of no use, and do no harm: the source is
 * written and freed, its place used again, a child forked, before and after the
 * helper took them down. */
START_TEST(freeze_moves_page_tables)
{
	const size_t bytes = 96 * MIB;
	struct expected e;
	struct cow_storage *kept = new_filled(bytes, 0, 7), *a, *clone, *b;
	int n;

	for (n = 0; n < 8; n++) {
		a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 2 * n);
		clone = lazy(a);
		fill(expose(a), bytes / 2, 2 * n + 1);
		cow_storage_unref(a);
		b = new_filled(bytes, 0, 100 + n);
		e = (struct expected){ clone, 2 * n };
		in_child(check_expected, &e);
		ck_pattern(data(clone), bytes, 2 * n);
		ck_pattern(data(b), bytes, 100 + n);
		cow_storage_unref(clone);
		cow_storage_unref(b);
		if (n % 2)
			cow_trim();
	}
	ck_pattern(data(kept), bytes, 7);
	cow_storage_unref(kept);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("transparent");
	TCase *tcase = add_case(suite, "transparent");

	tcase_add_loop_test(tcase, clone_is_of_the_moment, 0, SIZES);
	tcase_add_test(tcase, clones_are_tracked);
	tcase_add_test(tcase, large_ones_freeze_small_ones_copy);
	tcase_add_loop_test(tcase, clones_at_every_age, 0, 3 * SIZES);
	tcase_add_loop_test(tcase, expose_every_state, 0, 4 * SIZES);
	tcase_add_loop_test(tcase, address_stays, 0, SIZES);
	tcase_add_loop_test(tcase, blocks_can_be_cloned, 0, SIZES);
	tcase_add_test(tcase, freeze_moves_page_tables);
	/* The library may read what is being written, as memcpy would. */
	if (!UNDER_TSAN)
		tcase_add_loop_test(tcase, clone_beside_a_live_writer, 0,
		                    COUNT(live_bytes));
	return run_suite(suite);
}

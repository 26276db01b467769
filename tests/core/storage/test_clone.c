/* SPDX-License-Identifier: MIT */
/*
 * Lazy clones of tracked storages: share, materialize, steal
 *
 * Storages alias only if they are the same storage. A clone shares its bytes
 * until either side asks to write; then that side gets bytes of its own (a
 * *view*, page by page, or a *copy*), and whoever is left alone with the old
 * ones *steals* them: same address, nothing copied.
 *
 * The first part says in our words what PyTorch's own tests of its
 * copy-on-write storage check.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>

static const size_t sizes[] = {
	1, 64, 1000, PAGE, PAGE + 1, 65536, 300000, MIB, 2 * MIB, 5 * MIB + 3,
};
enum { SIZES = COUNT(sizes) };

static const enum cow_write_hint hints[] = {
	COW_WRITE_AUTO, COW_WRITE_SPARSE, COW_WRITE_ALL, COW_WRITE_BY_PAGE,
	COW_WRITE_BY_COPY,
};
enum { HINTS = COUNT(hints) };

/* ---- As in PyTorch ------------------------------------------------------- */

START_TEST(clone_shares_at_one_address)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, 0, 1), *b;
	struct cow_stats before = stats_now(), after;
	const void *p = data(a);

	b = lazy(a);
	after = stats_now();
	ck_assert_ptr_ne(a, b);
	ck_assert_ptr_eq(data(a), p);
	ck_assert_ptr_eq(data(b), p);
	ck_assert_uint_eq(cow_storage_bytes(b), bytes);
	ck_assert_uint_eq(state_of(a), COW_STATE_LAZY);
	ck_assert_uint_eq(state_of(b), COW_STATE_LAZY);
	ck_assert_uint_eq(info_of(a).sharers, 2);
	ck_assert_uint_eq(info_of(b).sharers, 2);
	ck_assert_uint_eq(refs_of(a), 1);
	ck_assert_uint_eq(refs_of(b), 1);
	ck_assert_uint_eq(after.clones_lazy, before.clones_lazy + 1);
	ck_assert_uint_eq(after.clones_eager, before.clones_eager);
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(after.bytes_served, before.bytes_served);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

START_TEST(clone_of_a_clone)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, 0, 2), *b = lazy(a);
	struct cow_storage *c = lazy(b);

	ck_assert_ptr_ne(c, a);
	ck_assert_ptr_eq(data(c), data(a));
	ck_assert_uint_eq(state_of(c), COW_STATE_LAZY);
	ck_assert_uint_eq(info_of(a).sharers, 3);
	cow_storage_unref(a);
	ck_assert_uint_eq(info_of(b).sharers, 2);
	ck_pattern(data(b), bytes, 2);
	cow_storage_unref(b);
	ck_pattern(data(c), bytes, 2);
	ck_pattern(mut(c), bytes, 2);
	cow_storage_unref(c);
}
END_TEST

/* Not lazy: writing costs nothing and moves nothing. */
START_TEST(mut_of_an_owned_one)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, 0, 3);
	struct cow_stats before = stats_now(), after;
	const void *p = data(a);
	size_t h;

	for (h = 0; h < HINTS; h++) {
		ck_assert_ptr_eq(mut_range(a, 0, bytes, hints[h]), p);
		if (hints[h] != COW_WRITE_ALL)
			ck_pattern(p, bytes, 3);
		fill(mut(a), bytes, 3);
	}
	after = stats_now();
	ck_assert_uint_eq(state_of(a), COW_STATE_OWNED);
	ck_assert_uint_eq(after.steals, before.steals);
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	cow_storage_unref(a);
}
END_TEST

START_TEST(last_one_steals)
{
	size_t bytes = sizes[_i / HINTS];
	enum cow_write_hint hint = hints[_i % HINTS];
	struct cow_storage *a = new_filled(bytes, 0, 4), *b = lazy(a);
	struct cow_stats before, after;
	const void *p = data(a);

	cow_storage_unref(a);
	ck_assert_uint_eq(info_of(b).sharers, 1);
	before = stats_now();
	ck_assert_ptr_eq(mut_range(b, 0, bytes, hint), p);
	after = stats_now();
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(after.bytes_served, before.bytes_served);
	ck_assert_uint_eq(after.steals, before.steals + 1);
	ck_assert_uint_eq(state_of(b), COW_STATE_OWNED);
	if (hint != COW_WRITE_ALL)
		ck_pattern(data(b), bytes, 4);
	fill(mut(b), bytes, 5);
	ck_pattern(data(b), bytes, 5);
	cow_storage_unref(b);
}
END_TEST

/* The writer moves; the reader stays where it is, and then steals. */
START_TEST(writer_moves_reader_steals)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, 0, 6), *b = lazy(a);
	const void *p = data(a);
	struct cow_stats before, after;

	ck_assert_ptr_ne(mut_range(b, 0, bytes, COW_WRITE_BY_COPY), p);
	ck_assert_ptr_eq(data(a), p);
	ck_pattern(data(b), bytes, 6);
	ck_assert_uint_eq(state_of(b), COW_STATE_OWNED);
	ck_assert_uint_eq(info_of(b).sharers, 1);
	ck_assert_uint_eq(info_of(a).sharers, 1);
	before = stats_now();
	ck_assert_ptr_eq(mut(a), p);
	after = stats_now();
	ck_assert_uint_eq(after.steals, before.steals + 1);
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	fill(mut(a), bytes, 7);
	ck_pattern(data(b), bytes, 6);
	fill(mut(b), bytes, 8);
	ck_pattern(data(a), bytes, 7);
	cow_storage_unref(a);
	ck_pattern(data(b), bytes, 8);
	cow_storage_unref(b);
}
END_TEST

/* An eager clone of a lazy one is not lazy, and disturbs nothing. */
START_TEST(eager_clone)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, 0, 9), *b = lazy(a), *c;
	struct cow_stats before = stats_now(), after;

	ok(cow_storage_clone(a, &c));
	after = stats_now();
	ck_assert_uint_eq(after.clones_eager, before.clones_eager + 1);
	ck_assert_uint_eq(state_of(c), COW_STATE_OWNED);
	ck_assert_uint_eq(info_of(c).sharers, 1);
	ck_assert_ptr_ne(data(c), data(a));
	ck_assert_ptr_eq(data(a), data(b));
	ck_assert_uint_eq(state_of(a), COW_STATE_LAZY);
	ck_assert_uint_eq(state_of(b), COW_STATE_LAZY);
	ck_pattern(data(c), bytes, 9);
	fill(mut(c), bytes, 10);
	ck_pattern(data(a), bytes, 9);
	cow_storage_unref(a);
	cow_storage_unref(b);
	ck_pattern(data(c), bytes, 10);
	cow_storage_unref(c);
}
END_TEST

/* Reading materializes nothing, however often. */
START_TEST(reading_changes_nothing)
{
	struct cow_storage *a = new_filled(MIB, 0, 11), *b = lazy(a);
	struct cow_stats before = stats_now(), after;
	const void *p = data(a);
	int i;

	for (i = 0; i < 100; i++) {
		ck_assert_ptr_eq(data(a), p);
		ck_assert_ptr_eq(data(b), p);
		ck_pattern(data(b), 64, 11);
	}
	after = stats_now();
	ck_assert_uint_eq(after.materialized_page, before.materialized_page);
	ck_assert_uint_eq(after.materialized_copy, before.materialized_copy);
	ck_assert_uint_eq(state_of(a), COW_STATE_LAZY);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

/* ---- Pages, copies, ranges ----------------------------------------------- */

START_TEST(views_hold_what_was_written)
{
	const size_t chunk = 2 * MIB / PAGE; /* pages */
	size_t bytes = 4 * MIB, pages[] = { 0, 7, chunk - 1, chunk, 2 * chunk - 1 }, i;
	struct cow_storage *a = new_filled(bytes, 0, 12), *b = lazy(a);
	struct cow_stats before = stats_now(), after;
	unsigned char *p = mut_range(b, 0, 1, COW_WRITE_BY_PAGE);
	struct cow_storage_info info;

	after = stats_now();
	ck_assert_uint_eq(after.materialized_page,
	                  before.materialized_page + 1);
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(state_of(b), COW_STATE_VIEW);
	for (i = 0; i < COUNT(pages); i++)
		p[pages[i] * PAGE + i] ^= 0xff;
	ck_pattern(data(a), bytes, 12);
	for (i = 0; i < COUNT(pages); i++)
		p[pages[i] * PAGE + i] ^= 0xff;
	ck_pattern(data(b), bytes, 12);
	info = info_of(b);
	if (cow_feature_probe(COW_FEATURE_PAGEMAP, NULL, NULL) == 1)
		ck_assert_uint_eq(info.bytes_own, COUNT(pages) * PAGE);
	ck_assert_uint_ge(info.mappings, 1);
	cow_storage_unref(a);
	ck_pattern(data(b), bytes, 12);
	cow_storage_unref(b);
}
END_TEST

/* Nobody writes pages that a view still needs: the other side moves too. */
START_TEST(both_sides_write_beside_a_view)
{
	size_t bytes = sizes[_i];
	struct cow_storage *a = new_filled(bytes, 0, 13), *b = lazy(a);

	mut_range(b, 0, 1, COW_WRITE_BY_PAGE)[0] ^= 0xff;
	fill(mut(a), bytes, 14);
	ck_assert_uint_eq(first_wrong(data(b), bytes, 13), 0);
	mut(b)[0] ^= 0xff;
	ck_pattern(data(b), bytes, 13);
	ck_pattern(data(a), bytes, 14);
	fill(mut(b), bytes, 15);
	ck_pattern(data(a), bytes, 14);
	cow_storage_unref(b);
	ck_pattern(mut(a), bytes, 14);
	cow_storage_unref(a);
}
END_TEST

/* When the last view is gone, what it looked at can be stolen again. */
START_TEST(steal_after_views_died)
{
	struct cow_storage *a = new_filled(3 * MIB, 0, 16), *view[4];
	const void *p = data(a);
	struct cow_stats before, after;
	size_t i;

	for (i = 0; i < COUNT(view); i++) {
		view[i] = lazy(a);
		mut_range(view[i], 0, 1, COW_WRITE_BY_PAGE)[i * PAGE] = 1;
	}
	/* Views read its bytes, so they count. */
	ck_assert_uint_eq(info_of(a).sharers, 5);
	for (i = 0; i < COUNT(view); i++)
		cow_storage_unref(view[i]);
	ck_assert_uint_eq(info_of(a).sharers, 1);
	before = stats_now();
	ck_assert_ptr_eq(mut(a), p);
	after = stats_now();
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(after.steals, before.steals + 1);
	ck_pattern(data(a), 3 * MIB, 16);
	cow_storage_unref(a);
}
END_TEST

/* The hint decides about the cost, never about the bytes. */
START_TEST(hints_and_ranges)
{
	size_t bytes = sizes[_i / HINTS], at, count, i;
	enum cow_write_hint hint = hints[_i % HINTS];
	struct prng prng = prng_make((uint64_t)_i);
	struct cow_storage *a = new_filled(bytes, 0, 17), *b;
	unsigned char *p;
	int round;

	for (round = 0; round < 12; round++) {
		at = prng_below(&prng, bytes);
		count = 1 + prng_below(&prng, bytes - at);
		b = lazy(a);
		p = mut_range(b, at, count, hint);
		ck_pattern(data(a), bytes, 17);
		ck_pattern(p, at, 17);
		for (i = 0; i < count; i++)
			p[at + i] = 0x3c;
		ck_pattern(data(a), bytes, 17);
		ck_pattern(data(b), at, 17);
		ck_bytes(data(b) + at, count, 0x3c);
		memcpy(mut(b) + at, data(a) + at, count);
		ck_pattern(data(b), bytes, 17);
		cow_storage_unref(b);
	}
	cow_storage_unref(a);
}
END_TEST

START_TEST(ranges_outside)
{
	struct cow_storage *a = new_filled(10000, 0, 18), *b = lazy(a);
	void *p = &p;
	size_t h;

	for (h = 0; h < HINTS; h++) {
		fails(-EINVAL, cow_storage_data_mut_range(b, 0, 10001,
		                                          hints[h], &p));
		fails(-EINVAL, cow_storage_data_mut_range(b, 10001, 0,
		                                          hints[h], &p));
		fails(-EINVAL, cow_storage_data_mut_range(b, 9999, 2, hints[h],
		                                          &p));
		fails(-EINVAL, cow_storage_data_mut_range(b, 2, SIZE_MAX,
		                                          hints[h], &p));
		ck_assert_ptr_eq(p, &p);
	}
	ck_assert_uint_eq(state_of(b), COW_STATE_LAZY);
	ck_assert_ptr_eq(data(a), data(b));
	ok(cow_storage_data_mut_range(b, 10000, 0, COW_WRITE_AUTO, &p));
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

/* ---- Chains -------------------------------------------------------------- */

/* Each generation is a clone of the one before, written in one place more. */
START_TEST(deep_chains)
{
	enum { DEEP = 40 };
	size_t bytes = sizes[1 + _i / HINTS], step = bytes / DEEP, g, own, k;
	enum cow_write_hint hint = hints[_i % HINTS];
	struct cow_storage *generation[DEEP], *base;
	unsigned char expected;

	base = new_filled(bytes, 0, 19);
	for (g = 0; g < DEEP; g++) {
		generation[g] = lazy(g > 0 ? generation[g - 1] : base);
		mut_range(generation[g], g * step, 1, hint)[g * step] =
			(unsigned char)g;
	}
	/* The youngest and the oldest in turn, from both ends inwards. */
	for (g = 0; g < DEEP; g++) {
		own = g % 2 ? g / 2 : DEEP - 1 - g / 2;
		for (k = 0; k < DEEP; k++) {
			expected = k <= own ? (unsigned char)k
			                    : data(base)[k * step];
			must(data(generation[own])[k * step] == expected);
		}
		cow_storage_unref(generation[own]);
	}
	ck_pattern(data(base), bytes, 19);
	cow_storage_unref(base);
}
END_TEST

/* Written over and over, a view's clone's view's clone... stays right. */
START_TEST(clone_of_a_written_clone)
{
	size_t bytes = 2 * MIB + 5 * PAGE;
	bool scattered = _i % 2, keep = _i / 2 % 2;
	enum cow_write_hint hint = _i / 4 ? COW_WRITE_BY_PAGE : COW_WRITE_AUTO;
	struct cow_storage *now = new_filled(bytes, 0, 20), *old[30];
	static unsigned char model[2 * MIB + 5 * PAGE];
	static unsigned char kept[30][16];
	size_t round, i, at;
	unsigned char *p;

	fill(model, bytes, 20);
	for (round = 0; round < 30; round++) {
		old[round] = lazy(now);
		for (i = 0; i < 16; i++)
			kept[round][i] = model[i * (bytes / 16)];
		p = mut_range(now, 0, bytes / 100, hint);
		for (i = 0; i < 16; i++) {
			at = scattered ? i * (bytes / 16)
			               : i * 3 + round * PAGE;
			p[at] = model[at] = (unsigned char)(round * 16 + i);
		}
		ck_assert_mem_eq(data(now), model, bytes);
		if (!keep)
			cow_storage_unref(old[round]);
	}
	for (round = 0; keep && round < 30; round++) {
		for (i = 0; i < 16; i++)
			ck_assert_uint_eq(data(old[round])[i * (bytes / 16)],
			                  kept[round][i]);
		cow_storage_unref(old[round]);
	}
	ck_assert_mem_eq(data(now), model, bytes);
	cow_storage_unref(now);
}
END_TEST

/* Hundreds of siblings, each with a byte of its own. */
START_TEST(many_siblings)
{
	enum { MANY = 400 };
	size_t bytes = sizes[_i], i;
	struct cow_storage *a = new_filled(bytes, 0, 21), *b[MANY];
	unsigned char first = data(a)[0];

	for (i = 0; i < MANY; i++)
		b[i] = lazy(i % 2 ? a : i ? b[i - 1] : a);
	for (i = 0; i < MANY; i++)
		mut_range(b[i], 0, 1, COW_WRITE_SPARSE)[0] = (unsigned char)i;
	ck_assert_uint_eq(data(a)[0], first);
	for (i = 0; i < MANY; i++) {
		ck_assert_uint_eq(data(b[i])[0], i % 256);
		ck_assert_mem_eq(data(b[i]) + 1, data(a) + 1, bytes - 1);
		cow_storage_unref(b[i]);
	}
	ck_pattern(mut(a), bytes, 21);
	cow_storage_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clone");
	TCase *tcase = add_case(suite, "clone");

	tcase_add_loop_test(tcase, clone_shares_at_one_address, 0, SIZES);
	tcase_add_loop_test(tcase, clone_of_a_clone, 0, SIZES);
	tcase_add_loop_test(tcase, mut_of_an_owned_one, 0, SIZES);
	tcase_add_loop_test(tcase, last_one_steals, 0, SIZES * HINTS);
	tcase_add_loop_test(tcase, writer_moves_reader_steals, 0, SIZES);
	tcase_add_loop_test(tcase, eager_clone, 0, SIZES);
	tcase_add_test(tcase, reading_changes_nothing);
	tcase_add_test(tcase, views_hold_what_was_written);
	tcase_add_loop_test(tcase, both_sides_write_beside_a_view, 0, SIZES);
	tcase_add_test(tcase, steal_after_views_died);
	tcase_add_loop_test(tcase, hints_and_ranges, 0, SIZES * HINTS);
	tcase_add_test(tcase, ranges_outside);
	tcase_add_loop_test(tcase, deep_chains, 0,
	                    (SIZES - 1) * HINTS);
	tcase_add_loop_test(tcase, clone_of_a_written_clone, 0, 8);
	tcase_add_loop_test(tcase, many_siblings, 0, SIZES);
	return run_suite(suite);
}

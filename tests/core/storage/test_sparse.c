/* SPDX-License-Identifier: MIT */
/*
 * Sparse storages stay sparse: whatever copies, cuts or grows them leaves alone what was
 * never touched
 */
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>

#define BYTES (256 * MIB)
#define MOST (40 * MIB) /* huge pages around what is touched, and what is made ahead */

static const size_t touched[] = { 5, 70 * MIB + 123, 100 * MIB, BYTES / 2 - 1, BYTES - 1 };

static void touch(struct cow_storage *s)
{
	for (size_t i = 0; i < COUNT(touched); i++)
		mut_range(s, touched[i], 1, COW_WRITE_SPARSE)[touched[i]] =
			(unsigned char)(i + 1);
}

static struct cow_storage *new_sparse(uint32_t flags)
{
	struct cow_storage *s = new_storage(BYTES, flags);

	touch(s);
	return s;
}

/* The bytes that were written, as far as there are so many. */
static void right(const struct cow_storage *s)
{
	for (size_t i = 0; i < COUNT(touched); i++)
		if (touched[i] < cow_storage_bytes(s))
			ck_assert_uint_eq(data(s)[touched[i]], i + 1);
}

static void sparse_since(uint64_t before)
{
	uint64_t now = memory_held();

	if (now > before + MOST)
		ck_abort_msg("%llu MiB of untouched memory were filled",
		             (unsigned long long)((now - before) / MIB));
}

static const uint32_t kinds[] = { 0, COW_STORAGE_ZERO, COW_STORAGE_TRANSPARENT,
	                          COW_STORAGE_ZERO | COW_STORAGE_TRANSPARENT };
static const size_t sizes[] = { BYTES / 2, BYTES - PAGE, BYTES + PAGE, 2 * BYTES };
enum { CASES = COUNT(kinds) * COUNT(sizes) };

START_TEST(resized)
{
	size_t to = sizes[_i % COUNT(sizes)];
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(kinds[_i / COUNT(sizes)]);

	ok(cow_storage_resize(s, to));
	right(s);
	sparse_since(before);
	if (kinds[_i / COUNT(sizes)] & COW_STORAGE_ZERO && to > BYTES)
		ck_assert_uint_eq(data(s)[to - 1], 0);
	cow_storage_unref(s);
}
END_TEST

/* It can't be cut in place: others read its pages. */
START_TEST(resized_beside_a_clone)
{
	size_t to = sizes[_i % COUNT(sizes)];
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(kinds[_i / COUNT(sizes)]), *b = lazy(s);

	mut_range(s, 1, 1, COW_WRITE_SPARSE)[1] = 9; /* in memory of its own */
	ok(cow_storage_resize(s, to));
	right(s);
	ck_assert_uint_eq(data(s)[1], 9);
	right(b);
	sparse_since(before);
	cow_storage_unref(s);
	cow_storage_unref(b);
}
END_TEST

START_TEST(cloned)
{
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(kinds[_i]), *b;

	ok(cow_storage_clone(s, &b));
	right(b);
	sparse_since(before);
	cow_storage_unref(s);
	cow_storage_unref(b);
}
END_TEST

START_TEST(written_by_copy)
{
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(kinds[_i]), *b = lazy(s);

	mut_range(b, 3, 1, COW_WRITE_BY_COPY)[3] = 7;
	right(b);
	right(s);
	sparse_since(before);
	cow_storage_unref(s);
	cow_storage_unref(b);
}
END_TEST

/* A page that is written in a view has its bytes in no file. */
START_TEST(copies_of_a_view)
{
	uint64_t before = memory_held();
	struct cow_storage *s = new_sparse(0), *b = lazy(s), *c;

	mut_range(b, 30 * MIB, 1, COW_WRITE_BY_PAGE)[30 * MIB] = 8;
	ok(cow_storage_clone(b, &c));
	right(c);
	ck_assert_uint_eq(data(c)[30 * MIB], 8);
	ok(cow_storage_resize(b, BYTES / 2));
	right(b);
	ck_assert_uint_eq(data(b)[30 * MIB], 8);
	sparse_since(before);
	cow_storage_unref(s);
	cow_storage_unref(b);
	cow_storage_unref(c);
}
END_TEST

/* A program may have thousands of them, where the kernel's limit on mappings allows no more views. */
START_TEST(small_copies)
{
	static const size_t small[] = { 512 * KIB, MIB - PAGE, MIB, 3 * MIB / 2 };
	struct cow_storage *s = new_storage(small[_i], 0), *b[200];
	uint64_t before;

	mut_range(s, 5, 1, COW_WRITE_SPARSE)[5] = 1;
	before = memory_held();
	for (size_t i = 0; i < COUNT(b); i++) {
		b[i] = lazy(s);
		mut_range(b[i], 3, 1, COW_WRITE_BY_COPY)[3] = 7;
		ck_assert_uint_eq(data(b[i])[5], 1);
	}
	sparse_since(before);
	for (size_t i = 0; i < COUNT(b); i++)
		cow_storage_unref(b[i]);
	cow_storage_unref(s);
}
END_TEST

/* What a copy leaves out reads as zero, also where recycled memory had other bytes. */
START_TEST(copies_into_warm_memory)
{
	struct cow_storage *s = new_sparse(0), *b, *warm = new_filled(64 * MIB, 0, 1);

	ok(cow_storage_resize(s, 64 * MIB));
	cow_storage_unref(warm);
	ok(cow_storage_clone(s, &b));
	right(b);
	ck_bytes(data(b) + 8 * MIB, 56 * MIB, 0);
	cow_storage_unref(s);
	cow_storage_unref(b);
}
END_TEST

/* Memory that a shrunk storage gave up serves others. */
START_TEST(what_is_cut_off_is_given_back)
{
	struct cow_storage *s = new_filled(64 * MIB, 0, 2);
	uint64_t full = memory_held();
	const void *at = data(s);

	ok(cow_storage_resize(s, MIB));
	ck_assert_ptr_eq(data(s), at);
	ck_pattern(data(s), MIB, 2);
	cow_trim();
	ck_assert_uint_le(memory_held(), full - 60 * MIB);
	cow_storage_unref(s);
}
END_TEST

/* A strict storage has memory for all of its bytes, also for those that came. */
START_TEST(strict_grows_with_memory)
{
	struct cow_storage *s = new_storage(8 * MIB, COW_STORAGE_STRICT);
	uint64_t before;

	memset(mut(s), 1, 8 * MIB);
	before = memory_held();
	ok(cow_storage_resize(s, 24 * MIB));
	ck_bytes(data(s), 8 * MIB, 1);
	ck_assert_uint_ge(memory_held(), before + 16 * MIB);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sparse");
	TCase *all = add_case(suite, "sparse");

	tcase_add_loop_test(all, resized, 0, CASES);
	tcase_add_loop_test(all, resized_beside_a_clone, 0, CASES);
	tcase_add_loop_test(all, cloned, 0, COUNT(kinds));
	tcase_add_loop_test(all, written_by_copy, 0, COUNT(kinds));
	tcase_add_test(all, copies_of_a_view);
	tcase_add_loop_test(all, small_copies, 0, 4);
	tcase_add_test(all, copies_into_warm_memory);
	tcase_add_test(all, what_is_cut_off_is_given_back);
	tcase_add_test(all, strict_grows_with_memory);
	return run_suite(suite);
}

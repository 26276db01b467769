/* SPDX-License-Identifier: MIT */
/*
 * Blocks whose sizes are no multiples of 2 MiB lie side by side, and huge pages lie under
 * where they meet
 */
#include "memfd/probe.h"
#include "tests/support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 250, TOTAL = 240 * 1024 * 1024 };

static unsigned char *block[MOST];
static unsigned count;
static const size_t sizes[] = { 3 * MIB / 2, 2500 * KIB, 5 * MIB, MIB + 4 * KIB };

/* Bytes of huge pages in mappings that [from, to) meets. */
static uint64_t huge_bytes(const unsigned char *from, const unsigned char *to)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	uintptr_t start, end;
	bool here = false;
	uint64_t sum = 0, kib;
	char line[512];

	must(maps != NULL);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
			here = start < (uintptr_t)to && end > (uintptr_t)from;
		else if (here && sscanf(line, "ShmemPmdMapped: %" SCNu64 " kB", &kib) == 1)
			sum += kib * KIB;
	}
	fclose(maps);
	return sum;
}

static void make(size_t bytes)
{
	ok(cow_option_set("helper", "no"));
	count = (unsigned)(TOTAL / bytes);
	for (unsigned i = 0; i < count; i++) {
		block[i] = new_block(bytes, 0);
		fill(block[i], bytes, i);
	}
}

static void end(void)
{
	for (unsigned i = 0; i < count; i++)
		cow_block_free(block[i]);
}

START_TEST(lie_side_by_side)
{
	size_t bytes = sizes[_i];

	make(bytes);
	for (unsigned i = 1; i < count; i++)
		ck_assert_ptr_eq(block[i], block[i - 1] + bytes);
	end();
}
END_TEST

/* Only some of the first ones have small pages: what may be ahead of the program grows with what
 * it has touched. Zeros are harder to tell from memory that was left alone. */
START_TEST(filled_ones_are_huge)
{
	size_t bytes = sizes[_i / 2];
	uint64_t before = memfd_bytes();

	if (_i % 2) {
		make(bytes);
	} else {
		ok(cow_option_set("helper", "no"));
		count = (unsigned)(TOTAL / bytes);
		for (unsigned i = 0; i < count; i++)
			memset(block[i] = new_block(bytes, 0), 0, bytes);
	}
	ck_assert_uint_ge(huge_bytes(block[0], block[count - 1] + bytes), (uint64_t)count * bytes - 36 * MIB);
	ck_assert_uint_le(memfd_bytes(), before + count * bytes + 2 * MIB);
	for (unsigned i = 0; _i % 2 && i < count; i++)
		ck_pattern(block[i], bytes, i);
	end();
}
END_TEST

/* Some pages of each are written: the first, the last, both, or a few. */
START_TEST(sparse_ones_stay_sparse)
{
	const size_t bytes = sizes[0];
	const size_t places[4][3] = {
		{ 0, 0, 0 }, { bytes - 1, bytes - 1, bytes - 1 },
		{ 0, bytes - 1, 0 }, { 0, bytes / 2, bytes - 1 },
	};
	uint64_t before = memfd_bytes();

	ok(cow_option_set("helper", "no"));
	for (count = 0; count < MOST; count++) {
		block[count] = new_block(bytes, 0);
		for (unsigned k = 0; k < 3; k++)
			block[count][places[_i][k]] = 1;
	}
	ck_assert_uint_le(memfd_bytes(), before + MOST * 3 * PAGE + 2 * MIB);
	end();
}
END_TEST

/* Some blocks are filled, with zeros or with ones, and one byte of the others is written. What
 * lies under the others stays little. But a program that has filled its first blocks with zeros
 * is trusted with as much again. */
static bool is_for_filling(int how, unsigned i)
{
	return how == 0 ? i < 20 : how == 1 ? i % 2 == 0 : i % 3 == 0;
}

START_TEST(filled_and_sparse_ones)
{
	static const size_t some[] = { 300 * KIB, 900 * KIB, MIB, MIB + KIB, 3 * MIB / 2 };
	size_t bytes = some[_i / 6], touched = 0, more;
	uint64_t before = memfd_bytes();

	ok(cow_option_set("helper", "no"));
	for (count = 0; count < MOST; count++) {
		block[count] = new_block(bytes, 0);
		if (is_for_filling(_i % 6 / 2, count)) {
			memset(block[count], _i % 2, bytes);
			touched += bytes;
		} else {
			block[count][0] = 1;
			touched += PAGE;
		}
	}
	more = _i % 6 == 0 ? touched : touched / 16 + 6 * MIB;
	ck_assert_uint_le(memfd_bytes(), before + touched + more);
	end();
}
END_TEST

/* Two blocks are filled, the third stays empty, and a small one follows. So the end of a filled
 * block shares 2 MiB with the empty block, each time. */
START_TEST(an_empty_block_behind_filled_ones)
{
	const size_t large = 2 * MIB - 8 * KIB, small = 24 * KIB;
	uint64_t before = memfd_bytes();
	size_t touched = 0;

	ok(cow_option_set("helper", "no"));
	for (count = 0; count < MOST; count++) {
		size_t bytes = count == 0 ? 2 * MIB + 40 * KIB : count % 4 == 0 ? small : large;

		block[count] = new_block(bytes, 0);
		if (count % 4 == 3 && _i)
			continue;
		memset(block[count], 1, bytes);
		touched += bytes;
	}
	ck_assert_uint_le(memfd_bytes(), before + touched + touched / 16 + 6 * MIB);
	end();
}
END_TEST

/* The program fills its blocks with zeros, or with ones, and then leaves them alone. */
START_TEST(filled_ones_and_then_empty_ones)
{
	const size_t bytes = MIB + 100 * KIB;
	uint64_t before = memfd_bytes();
	size_t touched = 0;

	ok(cow_option_set("helper", "no"));
	for (count = 0; count < MOST; count++) {
		block[count] = new_block(bytes, 0);
		if (count < 100) {
			memset(block[count], _i, bytes);
			touched += bytes;
		}
	}
	ck_assert_uint_le(memfd_bytes(), before + touched + touched / 16 + 6 * MIB);
	end();
}
END_TEST

/* A block ends in a hole, and another begins behind the hole, in the same 2 MiB. Some pages of
 * that one are copied. */
START_TEST(pages_behind_a_hole_stay)
{
	const size_t bytes = sizes[0];
	struct cow_storage *s, *clone;
	unsigned char *hole;

	make(bytes);
	hole = block[3];
	for (unsigned i = 3; i < 6; i++)
		cow_block_free(block[i]);
	(void)cow_trim();
	ok(cow_storage_from_ptr(block[6], NULL, &s));
	clone = lazy(s);
	fill(block[6], bytes, 100);
	for (unsigned i = 3; i < 6; i++) {
		block[i] = new_block(bytes, 0);
		fill(block[i], bytes, i);
	}
	must(block[3] >= hole && block[4] == block[3] + bytes && block[4] + bytes <= block[6]);
	must((uintptr_t)(block[4] + bytes - 1) / (2 * MIB) == (uintptr_t)block[6] / (2 * MIB));
	ck_pattern(block[6], bytes, 100);
	ck_pattern(data(clone), bytes, 6);
	cow_storage_unref(clone);
	cow_storage_unref(s);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("packed");
	TCase *tcase = add_case(suite, "packed");

	tcase_add_loop_test(tcase, lie_side_by_side, 0, COUNT(sizes));
	tcase_add_loop_test(tcase, sparse_ones_stay_sparse, 0, 4);
	tcase_add_loop_test(tcase, filled_and_sparse_ones, 0, 30);
	tcase_add_loop_test(tcase, an_empty_block_behind_filled_ones, 0, 2);
	tcase_add_loop_test(tcase, filled_ones_and_then_empty_ones, 0, 2);
	tcase_add_test(tcase, pages_behind_a_hole_stay);
	if (cow__probe_collapse())
		tcase_add_loop_test(tcase, filled_ones_are_huge, 0, 2 * COUNT(sizes));
	else
		puts("skip filled_ones_are_huge the kernel refuses MADV_COLLAPSE");
	return run_suite(suite);
}

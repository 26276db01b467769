/* SPDX-License-Identifier: MIT */
/*
 * Blocks that a program fills from their end
 */
#include "memfd/probe.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE ((size_t)2 * MIB)
#define BYTES (192 * MIB)

static bool is_there(void *p)
{
	unsigned char page;

	return mincore(p, PAGE, &page) == 0 && (page & 1);
}

static void fill_chunk(unsigned char *block, size_t n)
{
	memset(block + n * HUGE, (int)n | 1, HUGE);
}

static void check_chunks(const unsigned char *block, size_t from, size_t to)
{
	for (size_t n = from; n < to; n++)
		ck_bytes(block + n * HUGE, HUGE, (int)n | 1);
}

/* Fills the end of a block, and waits until memory is there that the program did not touch.
 * It does not come if the program stood still for half a second. */
static bool comes_ahead(unsigned char *block, int seconds)
{
	size_t n = BYTES / HUGE;

	for (; n > BYTES / HUGE - 8; n--)
		fill_chunk(block, n - 1);
	memset(block + n * HUGE - PAGE, 1, PAGE);
	/* The helper leaves the chunk to the program that it has begun. */
	return wait_until(is_there, block + (n - 2) * HUGE, seconds);
}

START_TEST(memory_comes_ahead)
{
	uint64_t before = memory_held();
	unsigned char *block = new_block(BYTES, 0);

	for (int tries = 20; !comes_ahead(block, 3); tries--) {
		must(tries > 0);
		cow_block_free(block);
		cow_trim();
		block = new_block(BYTES, 0);
	}
	ck_assert_uint_le(memory_held(), before + 16 * HUGE + 16 * MIB);
	for (size_t n = BYTES / HUGE - 8; n > 0; n--)
		fill_chunk(block, n - 1);
	check_chunks(block, 0, BYTES / HUGE);
	cow_block_free(block);
}
END_TEST

/* What comes from one end is not there twice, and the program has filled the block. */
START_TEST(both_ends_meet)
{
	unsigned char *block;
	uint64_t before;

	for (int turn = 0; turn < 4; turn++) {
		block = new_block(BYTES, 0);
		for (size_t up = 0, down = BYTES / HUGE; up < down;) {
			fill_chunk(block, up++);
			for (int i = 0; i <= turn && up < down; i++)
				fill_chunk(block, --down);
		}
		check_chunks(block, 0, BYTES / HUGE);
		cow_block_free(block);
		cow_trim();
	}
	before = stats_now().bytes_collapsed;
	block = new_block(BYTES, 0);
	ck_assert_uint_ge(stats_now().bytes_collapsed - before, BYTES - HUGE);
	cow_block_free(block);
}
END_TEST

/* All of a block came at once, and the program filled it from its end, but for its first
 * chunks. That was worth it. */
START_TEST(what_came_at_once_is_no_waste)
{
	unsigned char *block;
	uint64_t before;

	ok(cow_option_set("helper", "no"));
	for (int turn = 0; turn < 3; turn++) {
		before = stats_now().bytes_collapsed;
		block = new_block(BYTES, 0);
		if (turn)
			ck_assert_uint_ge(stats_now().bytes_collapsed - before, BYTES - HUGE);
		for (size_t n = BYTES / HUGE; n > (turn ? 5 : 0); n--)
			fill_chunk(block, n - 1);
		cow_block_free(block);
		cow_trim();
	}
}
END_TEST

static bool helper_looked_often(void *arg)
{
	return ++*(unsigned *)arg > 200; /* once in a millisecond */
}

/* Pages at the end, and some in the middle: nothing comes for them. */
START_TEST(stray_pages_get_nothing)
{
	uint64_t before = memory_held();
	unsigned char *block = new_block(4 * GIB, 0);
	unsigned looks = 0;

	for (int i = 1; i <= 16; i++)
		block[4 * GIB / 16 * i - 1] = 1;
	/* On both sides of the border of the last chunk */
	memset(block + 4 * GIB - HUGE - PAGE, 1, 2 * PAGE);
	must(wait_until(helper_looked_often, &looks, 60));
	ck_assert_uint_le(memory_held(), before + 5 * MIB);
	cow_block_free(block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("filled_down");
	TCase *tcase = add_case(suite, "filled_down");

	if (SANITIZED) {
		puts("skip filled_down sanitizers have no helper");
		return 0;
	}
	if (!cow__probe_collapse()) {
		puts("skip filled_down the kernel refuses MADV_COLLAPSE");
		return 0;
	}
	tcase_add_test(tcase, memory_comes_ahead);
	tcase_add_test(tcase, both_ends_meet);
	tcase_add_test(tcase, what_came_at_once_is_no_waste);
	if (memory_granted(4 * GIB))
		tcase_add_test(tcase, stray_pages_get_nothing);
	else
		puts("skip stray_pages_get_nothing the kernel refuses 4 GiB at once");
	return run_suite(suite);
}

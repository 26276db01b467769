/* SPDX-License-Identifier: MIT */
/*
 * A program that fills its blocks gets huge pages for what it once had, in the call that
 * allocates
 */
#include "memfd/probe.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES (96 * MIB)
#define SLACK (8 * MIB)

/* Allocates a block in fresh memory. Returns what was collapsed in the call. */
static uint64_t collapsed_by(size_t bytes, unsigned char **ret)
{
	uint64_t before;

	cow_trim();
	before = stats_now().bytes_collapsed;
	*ret = new_block(bytes, 0);
	return stats_now().bytes_collapsed - before;
}

static void fill_and_free(size_t bytes)
{
	unsigned char *block;

	(void)collapsed_by(bytes, &block);
	memset(block, 7, bytes);
	cow_block_free(block);
}

static void no_helper(void)
{
	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
}

START_TEST(what_was_filled_comes_at_once)
{
	unsigned char *block;
	size_t bad = 0;

	no_helper();
	ck_assert_uint_le(collapsed_by(BYTES, &block), SLACK);
	memset(block, 7, BYTES);
	cow_block_free(block);
	ck_assert_uint_ge(collapsed_by(BYTES, &block), BYTES - 2 * MIB);
	for (size_t i = 0; i < BYTES; i++)
		bad += block[i] != 0;
	ck_assert_uint_eq(bad, 0);
	cow_block_free(block);
}
END_TEST

/* With all that is live, no more than the program once had. */
START_TEST(no_more_than_once)
{
	uint64_t before = memory_held();
	unsigned char *block[4];

	no_helper();
	fill_and_free(BYTES);
	for (int i = 0; i < 4; i++)
		(void)collapsed_by(BYTES, &block[i]);
	ck_assert_uint_le(memory_held(), before + BYTES + SLACK);
	for (int i = 0; i < 4; i++)
		cow_block_free(block[i]);
}
END_TEST

/* Blocks of another size say nothing. */
START_TEST(other_sizes_are_not_known)
{
	unsigned char *block;

	no_helper();
	fill_and_free(BYTES);
	ck_assert_uint_le(collapsed_by(BYTES / 4, &block), BYTES / 4 / 2);
	cow_block_free(block);
}
END_TEST

/* Once such a block stays empty, the next one gets little. */
START_TEST(an_empty_block_is_learned)
{
	unsigned char *block;

	no_helper();
	fill_and_free(BYTES);
	ck_assert_uint_ge(collapsed_by(BYTES, &block), BYTES - 2 * MIB);
	cow_block_free(block);
	ck_assert_uint_le(collapsed_by(BYTES, &block), SLACK);
	cow_block_free(block);
}
END_TEST

/* A block that is filled and freed without a look in between was filled. */
START_TEST(filled_and_freed_is_filled)
{
	no_helper();
	for (int i = 0; i < 3; i++)
		fill_and_free(BYTES);
	for (int i = 0; i < 3; i++) {
		unsigned char *block;

		ck_assert_uint_ge(collapsed_by(BYTES, &block), BYTES - 2 * MIB);
		memset(block, 7, BYTES);
		cow_block_free(block);
	}
}
END_TEST

/* An announced write is no waste, also before it happens. */
START_TEST(an_announced_write_wastes_nothing)
{
	unsigned char *block;

	no_helper();
	fill_and_free(BYTES);
	for (int i = 0; i < 3; i++) {
		struct cow_storage *s;

		cow_trim();
		s = new_storage(BYTES, 0);
		(void)mut_range(s, 0, BYTES, COW_WRITE_ALL);
		cow_storage_unref(s);
	}
	ck_assert_uint_ge(collapsed_by(BYTES, &block), BYTES - 2 * MIB);
	cow_block_free(block);
}
END_TEST

/* More blocks than are looked at, all committed before any is filled. */
#define BURST 40
#define EACH (6 * MIB)

START_TEST(many_empty_blocks_are_not_ahead_for_ever)
{
	unsigned char *block[BURST];
	size_t most = 2 * BURST * EACH;

	no_helper();
	fill_and_free(EACH);
	fill_and_free(most);
	cow_trim();
	for (int i = 0; i < BURST; i++)
		block[i] = new_block(EACH, 0);
	for (int i = 0; i < BURST; i++) {
		memset(block[i], 7, EACH);
		cow_block_free(block[i]);
	}
	ck_assert_uint_ge(collapsed_by(most, &block[0]), most - 2 * MIB);
	cow_block_free(block[0]);
}
END_TEST

static void ends(void *arg)
{
	(void)arg;
}

/* What a fork froze before anybody looked may be full. */
START_TEST(filled_and_forked_is_no_waste)
{
	unsigned char *block;

	no_helper();
	fill_and_free(BYTES);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_ge(collapsed_by(BYTES, &block), BYTES - 2 * MIB);
		memset(block, 7, BYTES);
		in_child(ends, NULL);
		cow_block_free(block);
	}
}
END_TEST

static void gets_little(void *arg)
{
	unsigned char *block;

	(void)arg;
	ck_assert_uint_le(collapsed_by(BYTES, &block), SLACK);
	cow_block_free(block);
}

/* A child never had what its parent had. There may be many children. */
START_TEST(a_child_gets_what_it_once_had)
{
	unsigned char *block;

	no_helper();
	fill_and_free(BYTES);
	in_child(gets_little, NULL);
	ck_assert_uint_ge(collapsed_by(BYTES, &block), BYTES - 2 * MIB);
	cow_block_free(block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refill");
	TCase *tcase = add_case(suite, "refill");

	/* Memory comes at once by MADV_COLLAPSE alone (Linux 6.1). */
	if (!cow__probe_collapse()) {
		puts("skip refill the kernel refuses MADV_COLLAPSE");
		return 0;
	}
	tcase_add_test(tcase, what_was_filled_comes_at_once);
	tcase_add_test(tcase, no_more_than_once);
	tcase_add_test(tcase, other_sizes_are_not_known);
	tcase_add_test(tcase, an_empty_block_is_learned);
	tcase_add_test(tcase, filled_and_freed_is_filled);
	tcase_add_test(tcase, an_announced_write_wastes_nothing);
	tcase_add_test(tcase, many_empty_blocks_are_not_ahead_for_ever);
	tcase_add_test(tcase, filled_and_forked_is_no_waste);
	tcase_add_test(tcase, a_child_gets_what_it_once_had);
	return run_suite(suite);
}

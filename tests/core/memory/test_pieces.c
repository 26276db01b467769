/* SPDX-License-Identifier: MIT */
/*
 * Blocks of many sizes: the warm pieces that they leave serve larger blocks
 */
#include "tests/support/support.h"

#include <string.h>

#define BLOCKS 20

static size_t bytes_that_are_not(const unsigned char *p, size_t n, unsigned char value)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += p[i] != value;
	return count;
}

/* A warm piece of 6 MiB with cold memory behind it, and the block that gets both. */
static unsigned char *from_a_piece(size_t bytes, uint32_t flags)
{
	unsigned char *wide = new_block(32 * MIB, 0), *kept = new_block(2 * MIB, 0);
	unsigned char *piece, *block;
	uint64_t recycled;

	cow_block_free(wide);
	cow_trim();
	piece = new_block(6 * MIB, 0);
	ck_assert_ptr_eq(piece, wide);
	memset(piece, 7, 6 * MIB);
	cow_block_free(piece);
	recycled = stats_now().bytes_recycled;
	block = new_block(bytes, flags);
	ck_assert_ptr_eq(block, wide);
	ck_assert_uint_eq(stats_now().bytes_recycled - recycled, 6 * MIB);
	cow_block_free(kept);
	return block;
}

START_TEST(a_piece_serves_a_larger_block)
{
	unsigned char *block = from_a_piece(20 * MIB, 0);

	ck_assert_uint_eq(bytes_that_are_not(block + 6 * MIB, 14 * MIB, 0), 0);
	memset(block, 9, 20 * MIB);
	ck_assert_uint_eq(bytes_that_are_not(block, 20 * MIB, 9), 0);
	cow_block_free(block);
}
END_TEST

START_TEST(its_bytes_are_cleared)
{
	unsigned char *block = from_a_piece(20 * MIB + 4 * KIB, COW_BLOCK_ZERO);

	ck_assert_uint_eq(bytes_that_are_not(block, 20 * MIB + 4 * KIB, 0), 0);
	cow_block_free(block);
}
END_TEST

/* A piece of less than a quarter stays for others, and the block gets fresh memory. */
START_TEST(a_small_piece_does_not_serve)
{
	unsigned char *kept = new_block(2 * MIB, 0), *piece, *block;
	uint64_t recycled;

	piece = new_block(4 * MIB, 0);
	memset(piece, 7, 4 * MIB);
	cow_block_free(piece);
	recycled = stats_now().bytes_recycled;
	block = new_block(20 * MIB, 0);
	ck_assert_uint_eq(stats_now().bytes_recycled, recycled);
	cow_block_free(block);
	cow_block_free(kept);
}
END_TEST

/* What was warm says nothing of what the new block will touch: little is committed ahead. */
START_TEST(a_piece_gives_no_credit)
{
	unsigned char *wide = new_block(128 * MIB, 0), *kept = new_block(2 * MIB, 0), *block;
	uint64_t held;

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	cow_block_free(wide);
	cow_trim();
	block = new_block(40 * MIB, 0);
	memset(block, 7, 40 * MIB);
	cow_block_free(block);
	held = memory_held();
	block = new_block(120 * MIB, 0);
	ck_assert_ptr_eq(block, wide);
	ck_assert_uint_le(memory_held(), held + 3 * MIB);
	cow_block_free(block);
	cow_block_free(kept);
}
END_TEST

static const struct sizes {
	size_t blocks, least, most, fresh; /* at most 1/fresh of what is served */
} churns[] = { { 12, 1 * MIB, 8 * MIB, 9 }, { 20, 5 * MIB, 25 * MIB, 9 } };

static size_t next_size(const struct sizes *s, uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return s->least + (*seed >> 33) % (s->most - s->least);
}

/* What serves no other block is little beside what the program has. */
START_TEST(pieces_add_little_to_a_small_peak)
{
	unsigned char *small[8], *large[4];

	for (size_t i = 0; i < 8; i++) {
		small[i] = new_block(2 * MIB, 0);
		memset(small[i], 7, 2 * MIB);
	}
	for (size_t i = 0; i < 8; i += 2)
		cow_block_free(small[i]);
	for (size_t i = 0; i < 4; i++) {
		large[i] = new_block(3 * MIB, 0);
		memset(large[i], 9, 3 * MIB);
	}
	/* The peak is 20 MiB, and all of it is live. */
	ck_assert_uint_le(stats_now().bytes_warm, 2 * MIB);
	for (size_t i = 0; i < 4; i++)
		cow_block_free(large[i]);
	for (size_t i = 1; i < 8; i += 2)
		cow_block_free(small[i]);
}
END_TEST

/* Random sizes in random order. Each block has its bytes until it is freed. Most of what
 * is served was used before, and what is held hardly exceeds what was live. */
START_TEST(random_blocks_are_recycled)
{
	unsigned char *block[BLOCKS] = { NULL };
	size_t bytes[BLOCKS] = { 0 };
	const struct sizes *s = &churns[_i];
	uint64_t seed = 1, served = 0, recycled = 0, before = memory_held();
	struct cow_stats stats;

	ck_assert_int_eq(cow_option_set("decay", "3600000"), 0);
	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	for (int i = 0; i < 600; i++) {
		int k = (int)((seed >> 40) % s->blocks);

		if (i == 100) {
			served = stats_now().bytes_served;
			recycled = stats_now().bytes_recycled;
		}
		if (block[k]) {
			ck_assert_int_eq(block[k][0], k);
			ck_assert_int_eq(block[k][bytes[k] / 2], k);
			ck_assert_int_eq(block[k][bytes[k] - 1], k);
			cow_block_free(block[k]);
		}
		bytes[k] = next_size(s, &seed);
		block[k] = new_block(bytes[k], 0);
		memset(block[k], k, bytes[k]);
	}
	stats = stats_now();
	served = stats.bytes_served - served;
	recycled = stats.bytes_recycled - recycled;
	ck_assert_msg(served - recycled <= served / s->fresh, "%zu of %zu bytes were recycled",
	              (size_t)recycled, (size_t)served);
	ck_assert_uint_le(memory_held(), before + stats.bytes_peak + stats.bytes_peak / 64 + 16 * MIB);
	for (int k = 0; k < BLOCKS; k++)
		cow_block_free(block[k]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pieces");
	TCase *tcase = add_case(suite, "pieces");

	tcase_add_test(tcase, a_piece_serves_a_larger_block);
	tcase_add_test(tcase, its_bytes_are_cleared);
	tcase_add_test(tcase, a_small_piece_does_not_serve);
	tcase_add_test(tcase, a_piece_gives_no_credit);
	tcase_add_test(tcase, pieces_add_little_to_a_small_peak);
	tcase_add_loop_test(tcase, random_blocks_are_recycled, 0,
	                    sizeof(churns) / sizeof(churns[0]));
	return run_suite(suite);
}

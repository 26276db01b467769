/* SPDX-License-Identifier: MIT */
/*
 * Blocks whose sizes are no multiples of 2 MiB have gaps between them. Each gap once split the
 * frozen memory: every block was frozen by calls of its own, and every child mapped every gap
 * again.
 *
 * A closed gap also counts as live memory. Children once did not know that, and their count
 * fell below zero when they freed the blocks.
 */
#include "tests/support/support.h"

enum { N = 24 };

struct blocks {
	unsigned char *at[N];
	size_t bytes;
};

static void child(void *arg)
{
	struct blocks *b = arg;

	must(mappings_between(b->at, N, b->bytes) <= N / 4);
	for (unsigned i = 0; i < N; i++) {
		must(first_wrong(b->at[i], b->bytes, i) == b->bytes);
		cow_block_free(b->at[i]);
	}
	must(stats_now().bytes_live == 0);
}

static const size_t sizes[] = { 3 * MIB / 2, 2 * MIB + 3 * PAGE, 5 * MIB / 2, 3 * MIB };

START_TEST(neighbours_are_one_mapping)
{
	struct blocks b = { .bytes = sizes[_i] };
	void *longer;

	for (unsigned i = 0; i < N; i++) {
		b.at[i] = new_block_apart(b.bytes);
		fill(b.at[i], b.bytes, i);
	}
	in_child(child, &b);
	for (unsigned i = 0; i < N; i++) {
		ck_assert_uint_eq(cow_block_bytes(b.at[i]), b.bytes);
		ck_pattern(b.at[i], b.bytes, i);
		fill(b.at[i], b.bytes, i + N);
	}
	/* Longer: into the gap, which may show anything. */
	ok(cow_block_resize(b.at[0], b.bytes + PAGE, &longer));
	b.at[0] = longer;
	ck_pattern(b.at[0], b.bytes, N);
	for (unsigned i = 0; i < N; i++)
		cow_block_free(b.at[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_gaps_between_blocks");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_loop_test(tcase, neighbours_are_one_mapping, 0, COUNT(sizes));
	return run_suite(suite);
}

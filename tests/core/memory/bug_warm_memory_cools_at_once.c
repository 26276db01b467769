/* SPDX-License-Identifier: MIT */
/*
 * Memory that was freed while the helper worked lost its pages at once
 *
 * The helper asks the clock once in a round, and does not hold the lock
 * throughout. What is freed meanwhile was freed after that time; the difference
 * wrapped around, and was older than any decay time.
 */
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

START_TEST(freed_while_the_helper_works)
{
	const size_t bytes = 8 * MIB;
	struct cow_stats before, after;
	unsigned char *p, *large;

	ok(cow_option_set("decay", "60000"));
	p = new_block(bytes, 0);
	memset(p, 1, bytes);
	hold_at(SYS_madvise, HOLD_COLLAPSE);
	large = new_block(64 * MIB, 0);
	memset(large, 1, 32 * MIB);
	ck_assert(wait_until(hold_is_on, NULL, 10));
	before = stats_now();
	cow_block_free(p);
	hold_finish();
	after = stats_now();
	ck_assert_uint_eq(after.bytes_returned, before.bytes_returned);
	cow_block_free(large);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_warm_memory_cools_at_once");
	TCase *tcase = add_case(suite, "bug");

	if (SANITIZED)
		puts("skip freed_while_the_helper_works sanitizers have no helper");
	else if (!hold_collapses())
		puts("skip freed_while_the_helper_works the kernel refuses MADV_COLLAPSE");
	else
		tcase_add_test(tcase, freed_while_the_helper_works);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * The option helper=no, set while a helper runs
 *
 * Once it only kept the engine from making another one. The one that ran went on, as long as
 * it had work.
 */
#include "core/memory/helper.h"
#include "tests/support/support.h"

#include <stdio.h>

/* Freed memory stays warm for about a second, and the helper gives it back. The call after the
 * free starts the helper. */
static bool runs_after_a_free(void *unused)
{
	unsigned char *block = new_block(32 * MIB, 0);

	(void)unused;
	fill(block, 32 * MIB, 1);
	cow_block_free(block);
	cow_block_free(new_block(MIB, 0));
	return cow__helper_id() != 0;
}

START_TEST(ends_it)
{
	ck_assert(wait_until(runs_after_a_free, NULL, 10));
	ok(cow_option_set("helper", "no"));
	ck_assert_uint_eq(cow__helper_id(), 0);
	ck_assert(!runs_after_a_free(NULL));
	ok(cow_option_set("helper", "yes"));
	ck_assert(wait_until(runs_after_a_free, NULL, 10));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_option_left_the_helper");
	TCase *tcase = add_case(suite, "regress");

	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, ends_it);
	else
		puts("skip ends_it sanitizers have no helper");
	return run_suite(suite);
}

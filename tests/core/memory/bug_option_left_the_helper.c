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

static struct gate end;

static bool runs(void *unused)
{
	(void)unused;
	return cow__helper_id() != 0;
}

static void waits(void *unused)
{
	(void)unused;
	gate_wait(&end);
}

START_TEST(ends_it)
{
	unsigned char *block = new_block(8 * MIB, 0);
	pid_t child;

	fill(block, 8 * MIB, 1);
	gate_make(&end);
	child = child_start(waits, NULL); /* while it lives the helper looks after it */
	ck_assert(wait_until(runs, NULL, 10));
	ok(cow_option_set("helper", "no"));
	ck_assert(!runs(NULL));
	gate_open(&end);
	child_finish(child);
	ck_pattern(block, 8 * MIB, 1);
	cow_block_free(block);
	gate_free(&end);
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

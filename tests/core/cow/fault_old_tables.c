/* SPDX-License-Identifier: MIT */
/*
 * Page tables that a fork moved away can't be moved back
 *
 * The kernel may have unmapped the memory by then. It is mapped again, whatever other call
 * fails besides.
 */
#include "core/memory/helper.h"
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>

enum { SIZE = 40 * 1024 * 1024, CALLS = 100 };

static unsigned char *block;

static void check(void *arg)
{
	ck_pattern(block, SIZE, *(const unsigned *)arg);
}

START_TEST(comes_back_all_the_same)
{
	unsigned seed = 1;
	pid_t child;

	block = new_block(SIZE, 0);
	fill(block, SIZE, seed);
	in_child(check, &seed);
	cow_trim();
	ck_pattern(block, SIZE, seed); /* after a slow child the page tables are empty */
	cow__helper_suspend(); /* it would take the tables down */
	child = child_start(check, &seed);
	fault_deny(SYS_mremap, FAULT_ANY, 0, ENOMEM);
	if (_i % 2)
		fault_unmaps();
	child_finish(child);
	fault_after(_i / 2, ENOMEM);
	cow_trim();
	fault_disarm();
	cow__helper_resume();
	if (_i < 2) /* another failure may come first, and nothing is thawed */
		ck_assert_uint_gt(fault_denials(), 0);
	ck_pattern(block, SIZE, seed);
	fill(block, SIZE, ++seed);
	in_child(check, &seed);
	cow_trim();
	ck_pattern(block, SIZE, seed);
	cow_block_free(block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_old_tables");
	TCase *tcase = add_case(suite, "old_tables");

	if (SANITIZED || !page_tables_move()) {
		puts("skip fault_old_tables there is no helper, or page tables don't move");
		return 0;
	}
	tcase_add_loop_test(tcase, comes_back_all_the_same, 0, CALLS);
	return run_suite(suite);
}

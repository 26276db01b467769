/* SPDX-License-Identifier: MIT */
/*
 * A block that grew while the helper worked on its pages moved
 *
 * Though there was room behind it: now only shrinking leaves it in peace.
 */
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

START_TEST(growth_beside_the_helper)
{
	static const long calls[] = { SYS_madvise, SYS_mincore };
	size_t bytes = 32 * MIB;
	unsigned char *p, *q;
	void *grown;

	/* It can't grow here, and moves to where it has room. */
	p = new_block(bytes / 2, 0);
	q = new_block(bytes, 0);
	ok(cow_block_resize(p, bytes, &grown));
	p = grown;
	if (_i == 1)
		__atomic_store_n(&hold_no_huge, 1, __ATOMIC_RELEASE);
	hold_at(calls[_i], _i ? HOLD_ADVICE_ANY : HOLD_COLLAPSE);
	fill(p, bytes, 1);
	ck_assert(wait_until(hold_is_on, NULL, 10));
	__atomic_store_n(&hold_no_huge, 0, __ATOMIC_RELEASE);
	ok(cow_block_resize(p, 2 * bytes, &grown));
	ck_assert_ptr_eq(grown, p);
	fill(p + bytes, bytes, 2);
	hold_release();
	fill(q, bytes, 3);
	ck_pattern(p, bytes, 1);
	ck_pattern(p + bytes, bytes, 2);
	ck_pattern(q, bytes, 3);
	cow_block_free(p);
	cow_block_free(q);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_growth_moves_while_the_helper_works");
	TCase *tcase = add_case(suite, "bug");

	if (SANITIZED)
		puts("skip growth_beside_the_helper sanitizers have no helper");
	else if (!hold_collapses())
		puts("skip growth_beside_the_helper the kernel refuses MADV_COLLAPSE");
	else
		tcase_add_loop_test(tcase, growth_beside_the_helper, 0, 2);
	return run_suite(suite);
}

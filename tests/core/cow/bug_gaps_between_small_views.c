/* SPDX-License-Identifier: MIT */
/*
 * Clones of 1 MiB took two of the kernel's mappings each
 *
 * Each view began at a multiple of 2 MiB, so that huge pages fit. A view of less has none, and the
 * gap behind it was a mapping, too. So clones became copies when half as many of them lived as the
 * limit on mappings allows.
 */
#include "tests/support/support.h"

#define BYTES MIB

enum { CLONES = 64 };

START_TEST(views_lie_side_by_side)
{
	struct cow_storage *s = new_filled(BYTES, 0, 1), *clone[CLONES];
	unsigned char *p[CLONES];

	for (int i = 0; i < CLONES; i++) {
		clone[i] = lazy(s);
		p[i] = mut_range(clone[i], 0, 1, COW_WRITE_BY_PAGE);
		p[i][0] ^= 1;
		ck_assert_int_eq(state_of(clone[i]), COW_STATE_VIEW);
	}
	ck_assert_uint_le(mappings_between(p, CLONES, BYTES), CLONES + CLONES / 8);
	for (int i = 0; i < CLONES; i++) {
		p[i][0] ^= 1;
		ck_pattern(data(clone[i]), BYTES, 1);
		cow_storage_unref(clone[i]);
	}
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gaps_between_small_views");

	tcase_add_test(add_case(suite, "bug"), views_lie_side_by_side);
	return run_suite(suite);
}

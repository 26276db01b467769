/* SPDX-License-Identifier: MIT */
/*
 * A build without a mechanism, by which bench/ablate.sh measures what it brings
 */
#define COW_WITHOUT_THIS_ONE 1

#include "core/base/base.h"
#include "tests/support/support.h"

START_TEST(what_is_left_out)
{
	ck_assert(cow__without(THIS_ONE));
	ck_assert(!cow__without(ANOTHER_ONE));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("without");
	TCase *tcase = add_case(suite, "without");

	tcase_add_test(tcase, what_is_left_out);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Groups where the kernel has no locks of open files, as in gVisor
 */
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

START_TEST(no_locks_no_group)
{
	struct cow_group *g = NULL;

	fault_deny(SYS_fcntl, 1, F_OFD_SETLK, EINVAL);
	fails(-EOPNOTSUPP, cow_group_new(&g));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "F_OFD_SETLK"));
	ck_assert_ptr_null(g);
}
END_TEST

/* Another reason is not told as this one. */
START_TEST(another_reason)
{
	struct cow_group *g = NULL;

	fault_deny(SYS_fcntl, 1, F_ADD_SEALS, EINVAL);
	fails(-EINVAL, cow_group_new(&g));
	ck_assert_ptr_null(strstr(cow_last_error(), "F_OFD_SETLK"));
	ck_assert_ptr_null(g);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_group");
	TCase *tcase = add_case(suite, "fault_group");

	tcase_add_test(tcase, no_locks_no_group);
	tcase_add_test(tcase, another_reason);
	return run_suite(suite);
}

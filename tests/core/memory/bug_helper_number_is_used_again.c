/* SPDX-License-Identifier: MIT */
/*
 * The helper's number, that of another thread later
 *
 * Who made a new helper waited until the process no longer counted a thread of the old
 * one's number, with the engine locked: for ever, if the program had made one.
 */
#include "memfd/sys.h"
#include "memfd/thread.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <unistd.h>

static void ends(void)
{
}

START_TEST(nobody_waits_for_it)
{
	struct cow__thread t = { 0 };

	alarm(30);
	ck_assert_int_eq(cow__thread_start(&t, ends), 0);
	cow__thread_join(&t);
	t.last = (uint32_t)sys_gettid();
	cow__thread_join(&t);
	cow__thread_left(&t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_helper_number_is_used_again");
	TCase *tcase = add_case(suite, "regress");

	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, nobody_waits_for_it);
	else
		puts("skip nobody_waits_for_it sanitizers have no helper");
	return run_suite(suite);
}

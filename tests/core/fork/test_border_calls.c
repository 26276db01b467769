/* SPDX-License-Identifier: MIT */
/*
 * Calls that give up privileges are noted, so that forks of other threads wait for them
 */
#include "core/fork/border.h"
#include "core/policy/constants.h"
#include "memfd/wait.h"
#include "tests/support/support.h"

/* Begins and ends calls. False: it took so long that a call may count no more. */
static bool begins_calls(void)
{
	uint64_t calls[COW__BORDER_CALLS_MOST], ninth[3], begun = cow__now();
	bool all = true, slow;

	for (int i = 0; i < (int)COW__BORDER_CALLS_MOST; i++)
		all &= (calls[i] = cow__border_call_begins()) != 0;
	ninth[0] = cow__border_call_begins();
	cow__border_call_ends(0);
	ninth[1] = cow__border_call_begins();
	cow__border_call_ends(calls[3]);
	all &= (calls[3] = cow__border_call_begins()) != 0;
	ninth[2] = cow__border_call_begins();
	slow = cow__elapsed(begun, cow__now()) >= COW__BORDER_CALL_NS / 2;
	must(slow || (all && !ninth[0] && !ninth[1] && !ninth[2]));
	for (int i = 0; i < (int)COW__BORDER_CALLS_MOST; i++)
		cow__border_call_ends(calls[i]);
	for (int i = 0; i < 3; i++)
		cow__border_call_ends(ninth[i]);
	if (slow)
		return false;
	must((calls[0] = cow__border_call_begins()) != 0);
	cow__border_call_ends(calls[0]);
	return true;
}

/* The ninth call is not noted: forks do not wait for it, and the wrapper looks afterwards. */
START_TEST(many_calls)
{
	while (!begins_calls())
		; /* on a busy machine */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("border_calls");
	TCase *tcase = add_case(suite, "border_calls");

	tcase_add_test(tcase, many_calls);
	return run_suite(suite);
}

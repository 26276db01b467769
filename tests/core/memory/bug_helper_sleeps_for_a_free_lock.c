/* SPDX-License-Identifier: MIT */
/*
 * A signal comes after a thread has released the engine's lock, and before it wakes the helper
 * that sleeps for the lock. The handler calls setgid(), which waits for the helper's end: for
 * ever.
 */
#include "core/base/mutex.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "core/memory/workers.h"
#include "memfd/probe.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

static bool helper_sleeps_for_lock(void *arg)
{
	char path[64], line[256] = "";
	const char *state;
	FILE *f;

	(void)arg;
	if (!cow__mutex_wanted(&cow__engine.lock))
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%u/stat", cow__helper_id());
	f = fopen(path, "r");
	if (!f)
		return false;
	state = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	fclose(f);
	return state && state[1] == ' ' && state[2] == 'S';
}

START_TEST(a_handler_waits_for_the_helper)
{
	unsigned char *block = new_block(256 * MIB, 0);

	memset(block, 1, 32 * MIB);
	cow__engine_lock();
	if (!wait_until(helper_sleeps_for_lock, NULL, 60))
		ck_abort_msg("the helper does not want the lock");
	/* The first half of an unlock, the handler, the second half */
	__atomic_store_n(&cow__engine.lock.state, 0, __ATOMIC_RELEASE);
	must(cow__threads_suspend());
	cow__mutex_wake(&cow__engine.lock);
	cow__helper_resume();
	cow_block_free(block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_helper_sleeps_for_a_free_lock");
	TCase *tcase = add_case(suite, "bug");

	if (SANITIZED)
		puts("skip a_handler_waits_for_the_helper sanitizers have no helper");
	else if (!cow__probe_collapse())
		puts("skip a_handler_waits_for_the_helper the kernel refuses MADV_COLLAPSE");
	else
		tcase_add_test(tcase, a_handler_waits_for_the_helper);
	return run_suite(suite);
}

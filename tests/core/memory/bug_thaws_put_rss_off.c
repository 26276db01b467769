/* SPDX-License-Identifier: MIT */
/*
 * RSS came back late where memory thawed in slices
 *
 * Page table entries come back some time after the last fork. Each thaw began that time anew. The
 * helper thaws a large block in slices beside a child that lives, so the process looked empty to
 * the end of the last slice and longer.
 */
#include "core/memory/resident.h"
#include "core/memory/state.h"
#include "memfd/wait.h"

#include "tests/support/support.h"

#include <string.h>
#include <time.h>

#define BYTES (64 * MIB)

START_TEST(later_thaws_do_not_wait_longer)
{
	struct timespec moment = { .tv_nsec = 2000000 };
	struct cow__tile *t;
	uint64_t now, first;
	unsigned char *p;

	ok(cow_option_set("helper", "no"));
	p = new_block(BYTES, 0);
	memset(p, 1, BYTES);
	cow__engine_lock();
	t = cow__tile_find((uintptr_t)p);
	now = cow__now();
	cow__resident_later(t, BYTES / 2);
	first = cow__resident_job(now);
	ck_assert_uint_gt(first, 0);
	nanosleep(&moment, NULL);
	cow__resident_later(t, BYTES / 2);
	ck_assert_uint_eq(cow__resident_job(now), first);
	nanosleep(&moment, NULL);
	cow__resident_before_freeze(); /* but a fork takes the entries away again */
	ck_assert_uint_gt(cow__resident_job(now), first);
	cow__engine_unlock();
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_thaws_put_rss_off");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_test(tcase, later_thaws_do_not_wait_longer);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Zeroed blocks that join a file, and thaw there, with every kernel call failing in turn
 *
 * What must hold is in tests/support/fault/sweep.h. A block that can't join stays as it was.
 */
#include "core/cow/zeroed.h"
#include "core/memory/state.h"
#include "core/storage/block.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>

enum { BYTES = 8 * MIB };

/* As two forks find it: the second look lets it join. */
static void look(void)
{
	cow__engine_lock();
	cow__zeroed_before_fork();
	cow__engine_unlock();
}

static void zeroed(struct herd *herd)
{
	void *p;

	ok(cow__block_zeroed(BYTES, &p));
	sweep_add(herd, HERD_BLOCK, NULL, p, BYTES);
	look();
}

static bool joined(const struct herd *herd)
{
	uintptr_t at = (uintptr_t)herd->animals[HERD_BLOCK].block;
	bool yes;

	cow__engine_lock();
	yes = cow__tile_find(at)->own.segment != NULL;
	cow__engine_unlock();
	return yes;
}

/* Looks are rarer each time: at the fourth, eighth and sixteenth where the second one failed. */
static int joins(struct herd *herd)
{
	for (int n = 0; n < 16 && !joined(herd); n++)
		look();
	return joined(herd) ? 0 : -EAGAIN;
}

static void has_joined(struct herd *herd)
{
	zeroed(herd);
	ck_assert_int_eq(joins(herd), 0);
}

static int thaws(struct herd *herd)
{
	(void)herd;
	cow_trim();
	return 0;
}

static const struct operation operations[] = {
	{ "join a file", zeroed, joins },
	{ "thaw there", has_joined, thaws },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_zeroed");
	TCase *tcase = add_case(suite, "fault_zeroed");

	tcase_add_loop_test(tcase, every_call_fails, 0, sweep_rounds(COUNT(operations)));
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Slices passed the same chunk over again and again
 *
 * The kernel wrote there during the last slice, and no more. Until the chunk is copied ahead
 * again, slices pass it over. So the next one is not due at once.
 */
#include "core/cow/ahead.h"
#include "core/cow/heal.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/wait.h"
#include "memfd/watch.h"
#include "quiet/park.h"
#include "tests/support/support.h"

#include <pthread.h>

enum { CHUNKS = 6 };

static const size_t bytes = CHUNKS * 2 * MIB; /* with pages of any size */
static const uint64_t second = 1000000000;

static void exits_at_once(void *arg)
{
	(void)arg;
}

START_TEST(passed_over)
{
	struct cow__park_thread *record = cow__park_register((uintptr_t)pthread_self());
	unsigned char *p;
	uint64_t before, sleep = 0;
	bool left = false, sleeps = false;

	must(record);
	ok(cow_option_set("helper", "no"));
	ok(cow_option_set("backing", "memfd"));
	p = new_block(bytes, 0);
	fill(p, bytes, 1);
	cow__engine_lock();
	cow__watch_keep();
	cow__engine_unlock();
	/* A busy machine may end a slice early. */
	for (int i = 0; i < 50 && !sleeps; i++) {
		in_child(exits_at_once, NULL);
		fill(p, bytes, (unsigned)i);
		record->sequences.from = (uintptr_t)p + bytes / 2;
		record->sequences.to = record->sequences.from + 32;
		cow__engine_lock();
		before = cow__now();
		for (int n = 0; n < CHUNKS; n++)
			(void)cow__heal_job(cow__now() + second);
		record->sequences = (struct cow__park_range){ 0, 0 };
		sleep = cow__heal_job(cow__now() + second);
		if (cow__now() - before < COW__AHEAD_PASSED_NS &&
		    cow__tile_find((uintptr_t)p)->map.backing == COW__PRIVATE) {
			left = true;
			sleeps = sleep > 50000;
		}
		cow__engine_unlock();
	}
	must(!left || !cow__ahead_usable() || sleeps);
	cow_block_free(p);
	cow__watch_forget();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("passed_over");
	TCase *tcase = add_case(suite, "heal");

	tcase_add_test(tcase, passed_over);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Thaw: memory that nobody touched since the freeze goes in long steps
 *
 * A step maps shared what one system call can map at once. A fork moves the page tables away,
 * so a large block of which little was touched since takes few steps, whatever its size.
 */
#include "core/cow/freeze.h"
#include "core/cow/thaw.h"
#include "core/memory/state.h"
#include "memfd/pagemap.h"
#include "tests/support/support.h"

#include <stdio.h>

enum { SIZE_GIB = 4, STEPS = SIZE_GIB * 4 };

static struct cow__tile *frozen(void *p)
{
	struct cow__tile *t;

	cow__engine_lock();
	t = cow__tile_find((uintptr_t)p);
	must(t && cow__freeze(t) == 0);
	must(t->map.backing == COW__PRIVATE);
	return t;
}

/* Unlocks the engine. */
static size_t steps_of(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	size_t steps = 0, copied;

	while (at < cow__tile_end(t)) {
		must(cow__thaw_tile_step(t, &at, cow__tile_end(t), SIZE_MAX, &copied) == 0);
		steps++;
	}
	must(t->map.backing == COW__SHARED);
	cow__engine_unlock();
	return steps;
}

/* `_i`: pages were written before the freeze, and some after it. */
START_TEST(steps_are_long)
{
	unsigned char *p = new_block((size_t)SIZE_GIB * GIB, COW_BLOCK_ZERO);
	const size_t odd = GIB + 300 * MIB + 5 * PAGE, dense = 2 * GIB;
	size_t most = _i ? STEPS : 2, steps; /* the block may lie across a limit */
	struct cow__tile *t;

	if (_i) {
		fill(p, MIB, 1);
		fill(p + dense, 32 * MIB, 2);
	}
	t = frozen(p);
	if (_i) {
		p[odd] = 3;
		/* A dense part goes in short steps, and so does what lies behind a written
		 * chunk, up to the next 256 MiB. */
		most += 16 + 16;
		ck_pattern(p + dense, 32 * MIB, 2);
	}
	steps = steps_of(t);
	if (steps > most)
		ck_abort_msg("%zu steps", steps);
	if (_i) {
		ck_pattern(p, MIB, 1);
		ck_pattern(p + dense, 32 * MIB, 2);
		must(p[odd] == 3 && p[odd - 1] == 0 && p[odd + 1] == 0);
	}
	cow_block_free(p);
}
END_TEST

/* Blocks side by side that nobody touched go together. */
START_TEST(neighbours_too)
{
	enum { BLOCKS = 8 };
	struct cow__census c = { .asked = 0 };
	unsigned char *p[BLOCKS];
	struct cow__tile *t;

	for (int i = 0; i < BLOCKS; i++) {
		p[i] = new_block(GIB, COW_BLOCK_ZERO);
		cow__engine_lock();
		t = cow__tile_find((uintptr_t)p[i]);
		must(cow__freeze(t) == 0);
		cow__engine_unlock();
	}
	cow__engine_lock();
	t = cow__tile_find((uintptr_t)p[0]);
	if (t->next == cow__tile_find((uintptr_t)p[1]))
		must(cow__thaw_clean_tiles(t, &c) != NULL && t->next->map.backing == COW__SHARED);
	cow__engine_unlock();
	for (int i = 0; i < BLOCKS; i++) {
		p[i][5] = 1;
		cow_block_free(p[i]);
	}
}
END_TEST

/* The library learns it at the first look at pages. */
static bool has_scan(void)
{
	uintptr_t at = (uintptr_t)&at & ~(uintptr_t)(PAGE - 1), next;
	struct cow__run run;

	must(cow__pagemap_copied(at, at + PAGE, &run, 1, &next) >= 0);
	return cow__pagemap_has_scan();
}

int main(void)
{
	Suite *suite = suite_create("thaw_absent");
	TCase *tcase = add_case(suite, "absent");

	if (has_scan()) {
		if (memory_granted((size_t)SIZE_GIB * GIB))
			tcase_add_loop_test(tcase, steps_are_long, 0, 2);
		else
			puts("skip steps_are_long the kernel refuses 4 GiB at once");
		tcase_add_test(tcase, neighbours_too);
	} else {
		puts("skip steps_are_long no PAGEMAP_SCAN here (Linux 6.7)");
		puts("skip neighbours_too no PAGEMAP_SCAN here (Linux 6.7)");
	}
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Pinned extents keep their pages, whatever asks for them (core/cow/pin.h)
 *
 * (What they are for, and what a fork does, is in test_pinned.c.)
 */
#include "core/memory/state.h"
#include "core/memory/extent.h"
#include "core/cow/freeze.h"
#include "core/cow/pin.h"
#include "core/cow/view.h"
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>

/* Whatever asks for it: its mapping keeps the pages that it has. */
START_TEST(the_engine_leaves_it_alone)
{
	struct cow__tile *t, *view;
	uintptr_t from;
	void *p;

	ok(cow__pinned_extent_new(4 * MIB, &p));
	from = (uintptr_t)p;
	memset(p, 1, 4 * MIB);
	cow__engine_lock();
	t = cow__tile_find(from);
	must(cow__freeze(t) == -EBUSY);
	must(cow__view_new(t, COW__REBASE_NOTHING, NULL, &view) == -ENOTSUP);
	must(!cow__extent_cut(t, from + MIB, from + 2 * MIB));
	must(!cow__extent_resize(t, 8 * MIB));
	must(t->map.backing == COW__SHARED && t->bytes == 4 * MIB);
	cow__engine_unlock();
	must(mapped_shared(p));
	ck_bytes(p, 4 * MIB, 1);
	cow__pinned_extent_free(p);
}
END_TEST

static void is_its_own(void *p)
{
	ck_bytes(p, 4 * MIB, 1);
	memset(p, 2, 4 * MIB);
	cow__pinned_extent_free(p);
}

/* A neighbour is frozen, it is not: a run stops before it. */
START_TEST(among_neighbours)
{
	struct cow_storage *before = new_filled(4 * MIB, 0, 1), *after;
	void *p;

	ok(cow__pinned_extent_new(4 * MIB, &p));
	after = new_filled(4 * MIB, 0, 2);
	memset(p, 1, 4 * MIB);
	in_child(is_its_own, p);
	must(mapped_shared(p));
	ck_bytes(p, 4 * MIB, 1);
	ck_pattern(data(before), 4 * MIB, 1);
	ck_pattern(data(after), 4 * MIB, 2);
	cow_storage_unref(before);
	cow_storage_unref(after);
	cow__pinned_extent_free(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pin");
	TCase *c = add_case(s, "pin");

	tcase_add_test(c, the_engine_leaves_it_alone);
	tcase_add_test(c, among_neighbours);
	return run_suite(s);
}

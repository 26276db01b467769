/* SPDX-License-Identifier: MIT */
/*
 * Progress: see the header.
 */
#include "core/memory/progress.h"
#include "core/base/base.h"
#include "core/memory/apart.h"
#include "core/memory/budget.h"
#include "core/policy/constants.h"
#include "memfd/pagemap.h"

/* A chunk that was filled before it was collapsed looks untouched, since the collapse
 * takes it out of the page table. Up to so many bytes of them may be in a row. */
#define PASSED COW__APART_MOST

size_t
cow__progress_chunks(const struct cow__tile *t)
{
	uintptr_t end = cow__max(cow__round_down(cow__tile_end(t), COW__HUGE), cow__mend_origin(t));

	return end - cow__mend_origin(t);
}

int
cow__progress_look(struct cow__tile *t)
{
	size_t rest = cow__progress_chunks(t) - t->filling.touched, reached;
	int n = cow__pagemap_touched(cow__mend_origin(t) + t->filling.touched, COW__HUGE, rest / COW__HUGE,
	                             PASSED / COW__HUGE);

	if (n <= 0)
		return n;
	reached = t->filling.touched + (size_t)n * COW__HUGE;
	cow__budget_ahead_ends(cow__min(reached, t->filling.committed) - t->filling.touched);
	cow__budget_touched(reached - t->filling.touched);
	t->filling.touched = reached;
	if (t->filling.committed < reached) {
		t->filling.missed += reached - t->filling.committed;
		t->filling.committed = reached;
	}
	return n;
}

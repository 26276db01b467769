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
cow__progress_up(struct cow__tile *t)
{
	size_t rest = cow__progress_chunks(t) - t->down_committed - t->touched, reached;
	int n = cow__pagemap_touched(cow__mend_origin(t) + t->touched, COW__HUGE, rest / COW__HUGE,
	                             PASSED / COW__HUGE);

	if (n <= 0)
		return n;
	reached = t->touched + (size_t)n * COW__HUGE;
	cow__budget_ahead_ends(cow__min(reached, t->committed) - t->touched);
	cow__budget_touched(reached - t->touched);
	t->touched = reached;
	if (t->committed < reached) {
		t->missed += reached - t->committed;
		t->committed = reached;
	}
	return n;
}

/* How far from its end has the program filled the tile? The first page of a chunk is the last
 * one that it touches. Passes over what was filled before it was collapsed. */
static size_t
reached_down(const struct cow__tile *t)
{
	size_t most = cow__progress_chunks(t) - t->touched, reached = t->down_touched;

	/* Pages at the very end say little of the rest. */
	if (cow__without(TWO_ENDS) || !most || (!reached &&
	              cow__pagemap_touched_page(cow__progress_end(t) - COW__HUGE / 2) <= 0))
		return reached;
	for (size_t at = reached; at < most && at - reached <= PASSED; at += COW__HUGE)
		if (cow__pagemap_touched_page(cow__progress_end(t) - at - COW__HUGE) > 0)
			reached = at + COW__HUGE;
		else if (at >= t->down_committed)
			break;
	return reached;
}

bool
cow__progress_down(struct cow__tile *t)
{
	size_t reached = reached_down(t), before = t->down_touched;

	if (reached == before)
		return false;
	for (; t->down_touched < reached; t->down_touched += COW__HUGE) {
		if (t->down_touched < t->down_committed) {
			cow__budget_ahead_ends(COW__HUGE);
			continue;
		}
		t->down_committed += COW__HUGE;
		if (t->committed + t->down_committed > cow__progress_chunks(t)) {
			t->committed -= COW__HUGE; /* the start had it ahead */
			cow__budget_ahead_ends(COW__HUGE);
		} else {
			t->missed += COW__HUGE;
		}
	}
	cow__budget_touched(reached - before);
	return true;
}

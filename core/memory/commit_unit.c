/* SPDX-License-Identifier: MIT */
/*
 * Committing units: see the header.
 */
#include "core/memory/commit_unit.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/budget.h"
#include "core/memory/fill_history.h"
#include "core/memory/state.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"

#define PATIENCE 16

static uintptr_t unit_ahead COW_FORK_DATA; /* the last committed, not seen touched yet; 0: none */
static unsigned passed_over; /* units since then */

void
cow__commit_unit(uintptr_t start, size_t bytes)
{
	size_t rest = COW__HUGE % bytes, done = 0;
	int r;

	if (!cow__commits() || cow__engine.placed || rest > COW__HUGE / 16)
		return;
	/* One at a time: when the program asks for the next unit, this one is
	 * used up. If it is still not touched PATIENCE units later, it was
	 * committed in vain. */
	if (unit_ahead && cow__pagemap_touched_page(unit_ahead) <= 0) {
		if (++passed_over < PATIENCE)
			return;
		cow__fill_history_learn(bytes, 0, COW__HUGE);
	}
	if (unit_ahead)
		cow__budget_ahead_ends(COW__HUGE);
	unit_ahead = 0;
	passed_over = 0;
	if (cow__budget_room(COW__AHEAD_LEAST, bytes) < COW__HUGE)
		return;
	r = cow__map_collapse(start, COW__HUGE, &done);
	(void)cow__map_zap(start, COW__HUGE);
	cow__stat_add(bytes_collapsed, done);
	if (r < 0) {
		cow__fallback(COW_FALLBACK_COLLAPSE);
		return;
	}
	unit_ahead = start;
	cow__budget_ahead(COW__HUGE);
}

COW_FORK_CODE void
cow__commit_unit_child(void)
{
	unit_ahead = 0;
}

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
static uintptr_t last_unit; /* the last committed for packed extents; 0: none */

/* One at a time: when the program asks for the next unit, this one is used up. If it is still
 * not touched PATIENCE units later, it was committed in vain. */
static bool
used_up(size_t bytes)
{
	if (unit_ahead && cow__pagemap_touched_page(unit_ahead) <= 0) {
		if (++passed_over < PATIENCE)
			return false;
		cow__fill_history_learn(bytes, 0, COW__HUGE);
	}
	if (unit_ahead)
		cow__budget_ahead_ends(COW__HUGE);
	unit_ahead = 0;
	passed_over = 0;
	return true;
}

static bool
collapse(uintptr_t start)
{
	size_t done = 0;
	int r = cow__map_collapse(start, COW__HUGE, &done);

	(void)cow__map_zap(start, COW__HUGE);
	cow__stat_add(bytes_collapsed, done);
	if (r < 0)
		cow__fallback(COW_FALLBACK_COLLAPSE);
	return r >= 0;
}

static bool
commit(uintptr_t start, size_t bytes)
{
	if (!used_up(bytes) || cow__budget_room(COW__AHEAD_LEAST, bytes) < COW__HUGE ||
	    !collapse(start))
		return false;
	unit_ahead = start;
	cow__budget_ahead(COW__HUGE);
	return true;
}

void
cow__commit_unit(uintptr_t start, size_t bytes)
{
	if (cow__commits() && !cow__engine.placed && COW__HUGE % bytes <= COW__HUGE / 16)
		(void)commit(start, bytes);
}

/* Has the program filled this extent to its end, and may its pages be replaced? */
static bool
is_filled(const struct cow__tile *t)
{
	return t->kind == COW__LIVE && cow__tile_is_shared(t) && !t->npieces && !t->slow &&
	       !t->busy && !t->pinned && !t->bound &&
	       cow__pagemap_touched_page(cow__tile_end(t) - cow__page) > 0;
}

void
cow__commit_packed(const struct cow__tile *t, size_t bytes)
{
	const struct cow__tile *before = t->prev;
	uintptr_t at = cow__tile_start(t), end = at + bytes;
	uintptr_t first = cow__round_down(at, COW__HUGE), last = cow__round_down(end, COW__HUGE);

	if (!cow__commits() || cow__engine.placed || first == at || first == last ||
	    !is_filled(before))
		return;
	if (first != last_unit && cow__tile_start(before) <= first)
		(void)collapse(first);
	/* What lies behind this free tile is another's. */
	if (end != last && last + COW__HUGE <= cow__tile_end(t) && commit(last, bytes))
		last_unit = last;
	else
		last_unit = 0;
}

COW_FORK_CODE void
cow__commit_unit_child(void)
{
	unit_ahead = 0;
}

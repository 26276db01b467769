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
#define PROBES 5 /* pages of an extent that are looked at */

static uintptr_t unit_ahead COW_FORK_DATA; /* the last committed, not seen touched yet; 0: none */
static unsigned passed_over; /* units since then */

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

static void
commit(uintptr_t start, size_t bytes)
{
	size_t done = 0;
	int r;

	if (!used_up(bytes) || cow__budget_room(COW__AHEAD_LEAST, bytes) < COW__HUGE)
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

void
cow__commit_unit(uintptr_t start, size_t bytes)
{
	if (cow__commits() && !cow__engine.placed && COW__HUGE % bytes <= COW__HUGE / 16)
		commit(start, bytes);
}

/* Has the program filled this extent? It has touched pages from its start to its end. */
static bool
is_filled(const struct cow__tile *t)
{
	if (t->kind != COW__LIVE || !cow__tile_is_shared(t))
		return false;
	for (size_t i = PROBES; i > 0; i--) {
		size_t at = cow__round_down((t->bytes - 1) / (PROBES - 1) * (i - 1), cow__page);

		if (cow__pagemap_touched_page(cow__tile_start(t) + at) <= 0)
			return false;
	}
	return true;
}

void
cow__commit_packed(const struct cow__tile *t, size_t bytes)
{
	uintptr_t start = cow__tile_start(t), end = start + bytes;
	uintptr_t unit = cow__round_down(end, COW__HUGE);

	/* What lies behind this free tile is another's. */
	if (cow__commits() && !cow__engine.placed && unit >= start && unit < end &&
	    unit + COW__HUGE <= cow__tile_end(t) && is_filled(t->prev))
		commit(unit, bytes);
}

COW_FORK_CODE void
cow__commit_unit_child(void)
{
	unit_ahead = 0;
}

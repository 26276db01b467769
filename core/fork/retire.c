/* SPDX-License-Identifier: MIT */
/*
 * Retiring: see the header.
 */
#include "core/fork/retire.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/ahead.h"
#include "core/cow/forward.h"
#include "core/cow/freeze.h"
#include "core/cow/old_tables.h"
#include "core/cow/rewrite.h"
#include "core/fork/border.h"
#include "core/fork/copies.h"
#include "core/memory/attribute.h"
#include "core/memory/decay.h"
#include "core/memory/extent.h"
#include "core/memory/holders.h"
#include "core/memory/segment.h"
#include "core/memory/spare.h"
#include "core/program/range.h"
#include "memfd/export.h"
#include "memfd/gate.h"
#include "memfd/map.h"
#include "memfd/pins.h"
#include "memfd/process.h"
#include "memfd/signals.h"
#include "memfd/wait.h"
#include "quiet/park.h"

/* Neighbours together. What can't be frozen is left as it is. */
static void
freeze_all(void)
{
	uintptr_t moved = 0;

	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		if (cow__needs_freeze(t) && !cow__tile_is_pinned(t))
			(void)cow__freeze_onward(&t, &moved);
}

/* The parts of the program's own that are not for children stay so. */
static void
inherit(struct cow__tile *t, bool yes)
{
	uintptr_t at = cow__tile_start(t), end;

	if (t->kind != COW__LIVE || t->map.backing != COW__PRIVATE || t->map.nkept)
		return;
	for (; at < cow__tile_end(t); at = end) {
		end = cow__tile_end(t);
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, at, &end) ==
		    COW__PLACE_OURS)
			(void)cow__map_inherit(at, end - at, yes);
	}
	if (yes && t->map.attributes)
		cow__attributes_withhold(t, cow__tile_start(t), cow__tile_end(t));
}

static void
inherit_all(bool yes)
{
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		inherit(t, yes);
}

/* No later call of this process, or of a child, makes a border. So what they may be able to open
 * again is sealed now. So is what a child has that a handler forked since the border: it must not give
 * back what this process reads. */
static int
leave_files(void)
{
	bool due = cow__process_opens_mapped() || cow__border_relatives();
	int r, one;

	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		s->leaving = !s->gone;
	r = cow__rewrites_unmap();
	if (r < 0)
		return r;
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next) {
		one = due ? cow__border_seal(s) : 0;
		if (one == 0 && !s->gone)
			one = cow__segment_gone(s);
		r = r < 0 ? r : one;
	}
	return r;
}

static int
leave_all(void)
{
	int r;

	cow__forward_stop();
	cow__rewrites_freeze();
	cow__ahead_forget();
	(void)cow__spares_release(cow__now(), true);
	if (!cow__pins_memory() && cow__withhold_rest() == 0)
		freeze_all();
	cow__old_tables_release(); /* of this freeze, too: they are mapped shared */
	(void)cow__extent_poll_limbo();
	(void)cow__decay_all();
	r = leave_files();
	(void)cow__decay_all(); /* of what copies have replaced */
	cow__segments_sweep(false);
	return r;
}

static int
retire_locked(void)
{
	int r;

	if (cow__engine.retired) /* another thread sets a filter, too */
		return 0;
	r = cow__engine.ready ? leave_all() : 0;
	if (r < 0)
		return r;
	cow__engine.retired = true;
	if (!cow__engine.ready)
		return 0;
	inherit_all(true);
	cow__slots_leave();
	cow__stats_hide();
	return 0;
}

COW_EXPORT int
cow__retire(void)
{
	struct cow__signals signals;
	int r = -EAGAIN;

	/* A handler could leave by longjmp(), with the lock. */
	(void)cow__signals_block(&signals);
	if (cow__engine_lock_in_handler()) {
		r = retire_locked();
		cow__engine_unlock();
	}
	cow__signals_restore(&signals);
	if (r == 0) {
		cow__park_sandbox(1); /* copies needed a proof that threads rest: the last one */
		cow__gate_libc(true);
	}
	/* The kernel's own words would seem to be about the call. */
	return r < 0 && r != -EAGAIN ? -ENOMEM : r;
}

COW_EXPORT bool
cow__retired_at_start(void)
{
	if (!cow__gate_is_libcs())
		return false;
	__atomic_store_n(&cow__engine.retired, true, __ATOMIC_RELAXED);
	return true;
}

COW_EXPORT void
cow__retire_undo(void)
{
	struct cow__signals signals;

	cow__gate_libc(false);
	cow__park_sandbox(-1);
	(void)cow__signals_block(&signals);
	if (cow__engine_lock_in_handler()) {
		inherit_all(false);
		cow__engine.retired = false;
		cow__engine_unlock();
	}
	cow__signals_restore(&signals);
}

int
cow__retired_copies(void)
{
	int r = 0;

	for (struct cow__tile *t = cow__tile_first(); r == 0 && t; t = t->next)
		if (cow__needs_freeze(t))
			r = cow__copies_make(t, COW_FALLBACK_PINNED);
	if (r == 0)
		r = cow__copies_beside_shared(false);
	if (r < 0)
		cow__copies_free();
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Ranges of the window: see the header.
 */
#include "core/program/range.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/memory/attribute.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"
#include "memfd/pins.h"

int
cow__range_each_locked(uintptr_t addr, uintptr_t end, cow__range_fn *fn,
                       int value, enum cow__holes holes)
{
	int r = 0, missing = 0;
	uintptr_t to;

	for (; r == 0 && addr < end; addr = to) {
		struct cow__tile *t = cow__tile_find(addr);
		int place = COW__PLACE_HOLE;

		to = t ? cow__min(cow__tile_end(t), end) : end;
		if (t && t->kind == COW__LIVE && t->work != COW__WORK_DOOMED)
			place = cow__attribute_at(t, COW__ATTRIBUTE_PLACE,
			                          COW__PLACE_OURS, addr, &to);
		else if (holes == COW__HOLES_FINE)
			r = -ENOMEM;
		if (place != COW__PLACE_HOLE)
			r = fn(t, addr, to,
			       place != COW__PLACE_OURS ||
			               t->map.backing == COW__ANON,
			       value);
		else if (holes == COW__HOLES_STOP)
			r = -ENOMEM;
		else if (holes == COW__HOLES_SKIP)
			missing = -ENOMEM;
	}
	return r < 0 ? r : missing;
}

int
cow__range_each(uintptr_t addr, size_t bytes, cow__range_fn *fn, int value,
                enum cow__holes holes)
{
	uintptr_t end = cow__round_up(addr + bytes, cow__page);
	int r;

	if (addr % cow__page || end < addr)
		return -EINVAL;
	cow__engine_lock();
	r = cow__range_each_locked(addr, end, fn, value, holes);
	cow__engine_unlock();
	return r;
}

void
cow__range_traces(struct cow__tile *t)
{
	cow__tile_change_begin(t);
	cow__tile_set_slow(t);
	cow__tile_change_end(t);
}

int
cow__range_prepare(struct cow__tile *t)
{
	int r = 0;

	if (!cow__mappings_left(2))
		return -ENOMEM;
	cow__commit_forget_young(t);
	/* The kernel or a device would go on with the frozen pages. */
	if (t->map.backing != COW__ANON && !cow__tile_is_common(t) && !cow__is_frozen(t) && !cow__pins_memory())
		r = cow__freeze(t);
	if (r < 0)
		return r;
	cow__tile_change_begin(t);
	t->map.overlay = cow__max(t->map.overlay, COW__OVERLAY_PARTS);
	cow__tile_set_slow(t);
	cow__tile_change_end(t);
	return 0;
}

int
cow__range_leave_alone(struct cow__tile *t)
{
	int r = cow__range_prepare(t);

	if (r == 0)
		cow__range_lasts(t);
	return r;
}

void
cow__range_lasts(struct cow__tile *t)
{
	cow__range_traces(t);
	t->map.overlay = COW__OVERLAY_LASTS;
	cow__fallback(COW_FALLBACK_REMAPPED);
}

bool
cow__range_cut(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	if (t->map.allocation) /* a storage holds on to it */
		return false;
	if (start > cow__tile_start(t) || end < cow__tile_end(t))
		return cow__extent_cut(t, start, end);
	cow__extent_free(t);
	return true;
}

/* SPDX-License-Identifier: MIT */
/*
 * The program's mappings in the window, and blocks that become such
 *
 * What the program maps over a block is its own from then on. A range of a block
 * may also have to become anonymous memory. Both are notes on the block's tile
 * (core/memory/attribute.h).
 *
 * The program may also map where nothing is any more. What it unmapped became
 * free memory of the engine. To the program these are addresses that it had. They
 * become a tile again, of anonymous memory. The tile is one hole until the kernel
 * has mapped what the program wants there.
 */
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/memory/attribute.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/holders.h"
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/program/advise.h"
#include "core/program/grown.h"
#include "core/program/mapping.h"
#include "core/program/missing.h"
#include "core/program/range.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"
#include "memfd/pins.h"
#include "quiet/quiet.h"

#include <string.h>

#define PROTECTION_WRITE 2 /* of <sys/mman.h>, which belongs to memfd/ */

static int
is_mapped(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
          int value)
{
	(void)t, (void)start, (void)end, (void)own, (void)value;
	return -EEXIST;
}

static int
is_lasting(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
           int value)
{
	uintptr_t to = end;

	(void)value;
	/* A part of anonymous memory may also be any mapping of the program's. */
	for (uintptr_t at = start; at < end; at = to, to = end)
		if (cow__place_is_programs(cow__attribute_at(t, COW__ATTRIBUTE_PLACE,
		                                             COW__PLACE_OURS, at, &to)))
			return -EEXIST;
	return (own && t->map.backing != COW__ANON) ||
	                       cow__attributes_linger(t, start, end)
	               ? -EEXIST
	               : 0;
}

bool
cow__all_renewable(uintptr_t addr, size_t bytes)
{
	return cow__range_each(addr, bytes, is_lasting, 0, COW__HOLES_STOP) == 0;
}

static int
give_up_mapping(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
                int value)
{
	(void)start, (void)end, (void)own, (void)value;
	return cow__range_leave_alone(t);
}

/* Gives back file pages that something else covers, and that nobody else reads.
 * They are reached through another mapping for a moment. If that can't be
 * made, they stay as long as the block. -EBUSY: who reads them can't be told. */
static int
punch_covered(const struct cow__tile *t, uintptr_t start, size_t bytes)
{
	struct cow__census c = { .asked = 0 };
	uintptr_t at;
	int r;

	if (t->map.npieces || t->own.refs != 1 || cow__tile_is_punched(t))
		return 0;
	if (!cow__holders_unread(t, &c))
		return cow__engine.no_locks ? -EBUSY : 0;
	r = cow__map_reserve(bytes, cow__page, &at);
	if (r < 0)
		return r;
	r = cow__map_shared(at, bytes, &t->own.segment->file, cow__segment_offset(start), false);
	if (r == 0)
		r = cow__map_punch(at, bytes);
	(void)cow__map_release(at, bytes);
	return r;
}

int
cow__range_give_back(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t to;
	int r = 0, one;

	if (!t->own.segment || cow__tile_is_common(t) || t->map.backing == COW__ANON)
		return 0;
	for (; start < end; start = to) {
		to = end;
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS,
		                      start, &to) != COW__PLACE_OURS)
			continue;
		one = punch_covered(t, start, to - start);
		r = r ? r : one;
	}
	return r;
}

/* Notes that the program mapped [addr, end), all of it live tiles. */
static int
note_own(uintptr_t addr, uintptr_t end, enum cow__place place)
{
	int r = 0;

	while (r == 0 && addr < end) {
		struct cow__tile *t = cow__tile_find(addr);
		uintptr_t to = cow__min(cow__tile_end(t), end);

		(void)cow__range_give_back(t, addr, to);
		r = cow__attributes_cut(t, addr, to);
		if (r == 0)
			r = cow__attribute_add(t, addr, to,
			                       COW__ATTRIBUTE_PLACE, place);
		addr = to;
	}
	return r;
}

/* Makes free addresses a mapping of the program in which nothing is yet. */
static int
claim_part(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	struct cow__segment *s = t->own.segment;
	int r = 0;

	if (!cow__mappings_left(2))
		return -ENOMEM;
	t = cow__tile_carve(t, start, end - start);
	if (!t)
		return -ENOMEM;
	if (t->map.backing == COW__SHARED)
		r = cow__map_punch(start, end - start);
	if (r == 0)
		r = cow__map_none(start, end - start);
	if (r < 0) {
		(void)cow__tile_put(t);
		return r;
	}
	cow__tile_change_begin(t);
	if (s)
		cow__segment_unref(s);
	t->own.segment = NULL;
	t->map.backing = COW__ANON;
	cow__extent_live(t, end - start);
	t->map.use = COW__USE_MAPPING;
	cow__tile_change_end(t);
	cow__stat_add(blocks_live, 1);
	r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_PLACE,
	                       COW__PLACE_HOLE);
	if (r < 0) {
		cow__range_traces(t); /* it is no memory to use again */
		cow__extent_free(t);
	}
	return r;
}

/* -EBUSY: part of it is not free, and no block's. */
static int
claim(uintptr_t addr, uintptr_t end)
{
	int r = 0;

	while (r == 0 && addr < end) {
		struct cow__tile *t = cow__tile_find(addr);
		uintptr_t to = t ? cow__min(cow__tile_end(t), end) : end;

		if (!t || t->kind == COW__LOST)
			r = -ENOMEM;
		else if (t->kind == COW__FREE)
			r = claim_part(t, addr, to);
		else if (t->kind != COW__LIVE || t->work == COW__WORK_DOOMED)
			r = -EBUSY;
		addr = to;
	}
	return r;
}

/* Claims [addr, end). What the program unmapped a moment ago may still be in the
 * helper's hands, or may wait in limbo for processes that are gone by now. */
static int
claim_all(uintptr_t addr, uintptr_t end)
{
	int r = claim(addr, end);

	if (r != -EBUSY)
		return r;
	cow__engine_unlock();
	cow__helper_suspend();
	cow__engine_lock();
	(void)cow__extent_poll_limbo();
	r = claim(addr, end);
	cow__engine_unlock();
	cow__helper_resume();
	cow__engine_lock();
	cow__helper_want(true);
	return r;
}

/* Ends mappings of the program in which nothing is left. */
static void
end_empty(uintptr_t addr, uintptr_t end)
{
	uintptr_t to;

	for (; addr < end; addr = to) {
		struct cow__tile *t = cow__tile_find(addr);

		to = t ? cow__tile_end(t) : end;
		if (t && t->kind == COW__LIVE && cow__tile_is_mapping(t) &&
		    cow__attributes_unmapped(t))
			(void)cow__range_cut(t, cow__tile_start(t), to);
	}
}

COW_EXPORT int
cow__overmap(uintptr_t addr, size_t bytes, unsigned flags, bool (*map)(void *arg),
             void *arg)
{
	uintptr_t end = cow__round_up(addr + bytes, cow__page);
	bool mapped = false, holes = flags & COW__OVERMAP_HOLES;
	int r;

	cow__engine_lock();
	r = claim_all(addr, end);
	if (r == 0)
		r = cow__range_each_locked(addr, end,
		                           holes ? is_mapped : give_up_mapping,
		                           0, COW__HOLES_FINE);
	if (r == 0)
		mapped = map(arg);
	if (mapped)
		r = note_own(addr, end,
		             flags & COW__OVERMAP_ANONYMOUS ? COW__PLACE_COPY : COW__PLACE_OWN);
	else
		end_empty(addr, end);
	cow__engine_unlock();
	if (mapped && r < 0) /* what was there is gone in any case */
		(void)cow__unmap(addr, bytes);
	return r == -EBUSY ? holes ? -EEXIST : -ENOMEM : r;
}

/* The kernel keeps a gap between such a mapping and one below it (1 MiB unless its command
 * line says otherwise). */
#define GAP_BELOW (2 * MIB)

COW_EXPORT void
cow__grows_down(uintptr_t addr)
{
	uint64_t room = cow__min(cow__map_stack_limit(), COW__STACK_MOST) + GAP_BELOW;
	uintptr_t low, start;
	struct cow__tile *t;

	cow__engine_lock();
	low = addr - cow__engine.start > room
	              ? cow__round_down(addr - room, cow__page)
	              : cow__engine.start;
	for (; addr > low; addr = start) {
		t = cow__tile_find(addr - 1);
		start = t ? cow__max(cow__tile_start(t), low) : low;
		if (!t || t->kind != COW__FREE || claim_part(t, start, addr) < 0)
			break;
		if (note_own(start, addr, COW__PLACE_OWN) < 0) {
			end_empty(start, addr);
			break;
		}
		(void)cow__map_release(start, addr - start);
	}
	cow__engine_unlock();
}

/* A copy takes the mapping's place. Other threads that write meanwhile are not
 * stopped. What they write to a page that was already copied is lost. */
static int
replace_by_copy(struct cow__tile *t, uintptr_t start, uintptr_t end, const unsigned char *missing,
                enum cow__place place)
{
	void *copy;
	/* A common block would part from the pages that others have. */
	int r = cow__tile_is_common(t) ? -EBUSY : cow__range_leave_alone(t);

	if (r == 0)
		r = cow__map_meta(end - start, &copy);
	if (r < 0)
		return r;
	cow__attributes_reveal(t, start, end);
	cow__copy_there(start, end, missing, copy);
	r = cow__map_move((uintptr_t)copy, end - start, start);
	/* The note comes last: while the range is still the engine's, the kernel
	 * must not have the last word. Without the note the range counts as the
	 * engine's, and is not made anew, either. */
	if (r == 0)
		(void)cow__attribute_add(t, start, end, COW__ATTRIBUTE_PLACE, place);
	else
		(void)cow__map_release((uintptr_t)copy, end - start);
	cow__attributes_apply(t, start, end);
	if (r == 0 && t->own.segment)
		(void)punch_covered(t, start, end - start);
	return r;
}

/* What the engine emptied is the program's from now on. What is watched the engine may not read
 * any more: it would wait for the watcher, who may wait for the engine. */
static int
note_programs(struct cow__tile *t, uintptr_t start, uintptr_t end, enum cow__place place)
{
	uintptr_t to = end;

	if (place == COW__PLACE_COPY &&
	    (t->map.backing == COW__ANON ||
	     cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, start, &to) != COW__PLACE_ANON))
		return 0;
	return cow__attribute_add(t, start, end, COW__ATTRIBUTE_PLACE, place);
}

int
cow__range_own(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int why)
{
	size_t bits = cow__round_up((end - start) / cow__page / 8 + 1, cow__page);
	enum cow__place place = why == COW__OWN_TO_MOVE ? COW__PLACE_COPY : COW__PLACE_OWN;
	void *missing = NULL;
	int r;

	/* A freeze empties the page table, so this comes first. */
	if (!own && cow__tile_is_shared(t) && !t->map.npieces && !t->map.attributes &&
	    cow__map_meta(bits, &missing) == 0)
		cow__note_missing(t, start, end, why == COW__OWN_FOR_MISSING, missing);
	cow__range_traces(t); /* nor may the next block have these pages */
	if (own && t->map.backing != COW__ANON)
		t->map.overlay = COW__OVERLAY_LASTS;
	if (own)
		return note_programs(t, start, end, place);
	r = replace_by_copy(t, start, end, missing, place);
	if (missing)
		(void)cow__map_release((uintptr_t)missing, bits);
	return r;
}

/* The frozen mapping stays, and the kernel copies each of its pages as at a
 * write. So nothing is lost of what other threads write meanwhile. Pages that may
 * not be written are copied by cow__range_own(), where no write can be lost. A block that a device
 * may be using is not frozen. Its file pages are given back when it is freed (cow__recycle()). */
static int
lend_range(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
           int value)
{
	int r = 0, prot;
	uintptr_t to;

	cow__range_traces(t);
	if (own && t->map.backing != COW__ANON)
		t->map.overlay = COW__OVERLAY_LASTS;
	if (own)
		return 0;
	for (; r == 0 && start < end; start = to) {
		to = end;
		prot = cow__attribute_at(t, COW__ATTRIBUTE_PROTECTION,
		                         PROTECTION_WRITE, start, &to);
		if (cow__tile_is_common(t))
			r = -EBUSY;
		else if (prot & PROTECTION_WRITE)
			r = cow__range_leave_alone(t);
		if (r == 0 && (!(prot & PROTECTION_WRITE) ||
		               (cow__is_frozen(t) && cow__map_populate(start, to - start) < 0)))
			r = cow__range_own(t, start, to, own, value);
	}
	return r;
}

COW_EXPORT int
cow__lend(uintptr_t addr, size_t bytes)
{
	return cow__range_each(addr, bytes, lend_range, 0, COW__HOLES_STOP);
}

COW_EXPORT int
cow__own(uintptr_t addr, size_t bytes, enum cow__own_why why)
{
	uintptr_t end = cow__round_up(addr + bytes, cow__page);
	unsigned parts = 0;
	int r;

	if (addr % cow__page || end < addr)
		return -EINVAL;
	cow__engine_lock();
	if (why == COW__OWN_TO_MOVE || why == COW__OWN_TO_JOIN)
		parts = cow__count_parts(addr, end);
	if (parts > 1 || (parts && why == COW__OWN_TO_JOIN))
		r = cow__own_whole(addr, end);
	else if (why == COW__OWN_TO_JOIN)
		r = -EFAULT;
	else
		r = cow__range_each_locked(addr, end, cow__range_own, why, COW__HOLES_STOP);
	cow__engine_unlock();
	return r == -ENOMEM ? -EFAULT : r;
}

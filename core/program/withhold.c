/* SPDX-License-Identifier: MIT */
/*
 * Memory that children are denied: cow__withhold() of core/program/range.h
 *
 * What MADV_DONTFORK or MADV_WIPEONFORK names may lie in no file that a child maps, since the
 * child could grow its mapping over it. A device may have such pages from the advice on, so they
 * become private pages at once, and then stay where they are. If a device may have pages already,
 * they stay in the file, and the process's forks copy. The first fork after the device has gone
 * takes them out of the file.
 */
#include "core/base/base.h"
#include "core/cow/freeze.h"
#include "core/memory/attribute.h"
#include "core/memory/extent.h"
#include "core/memory/segment.h"
#include "core/memory/quiet_window.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/program/advise.h"
#include "core/program/missing.h"
#include "core/program/range.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/pins.h"
#include "quiet/quiet.h"

#define PROTECTION_WRITE 2 /* of <sys/mman.h>, which belongs to memfd/ */

static bool put_off; /* some of it is in files still, because of a device or a failure */

/* Makes private copies of what the file has of [start, end). Holes stay: a write to one makes a
 * private page. */
static int
copy_present(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uint64_t base = cow__segment_offset(start), from, to = base;
	int r = 1;

	if (t->map.npieces)
		return cow__map_populate(start, end - start);
	while (r > 0 && to < base + (end - start)) {
		r = cow__memfd_data(&t->own.segment->file, to, base + (end - start), &from, &to);
		if (r > 0 && cow__map_populate(start + (from - base), to - from) < 0)
			r = -ENOMEM;
	}
	return r < 0 ? r : 0;
}

/* Anonymous memory takes the place of a hole. */
static int
show_anonymous(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	int r = cow__mappings_left(2) ? cow__map_anon(start, end - start, false) : -ENOMEM;

	if (r < 0)
		return r;
	cow__attributes_apply(t, start, end);
	return cow__attribute_add(t, start, end, COW__ATTRIBUTE_PLACE, COW__PLACE_ANON);
}

/* A private page over a hole would take two: the kernel makes the file's, and copies it. So holes
 * become anonymous memory, if no thread and no device may be writing there just now. */
static void
fill_holes(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	size_t pages = (end - start) / cow__page, i, from;
	size_t bits = cow__round_up(pages / 8 + 1, cow__page);
	struct cow__park_range w;
	void *missing;
	bool known;

	if (pages < COW__HOLE_PAGES || cow__pins_memory() || cow__map_meta(bits, &missing) < 0)
		return;
	if (cow__engine_quiet(0)) {
		known = !cow__quiet_written(start, end, &w) &&
		        cow__note_absent(t, start, end, missing) == 0;
		for (i = from = 0; known && i <= pages; i++) {
			if (i < pages && ((unsigned char *)missing)[i / 8] & 1 << i % 8)
				continue;
			if (i - from >= COW__HOLE_PAGES)
				known = show_anonymous(t, start + from * cow__page,
				                       start + i * cow__page) == 0;
			from = i + 1;
		}
		cow__quiet_end();
	}
	(void)cow__map_release((uintptr_t)missing, bits);
}

int
cow__withhold(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t to;
	int r;

	if (t->own.outside)
		return -EBUSY;
	r = cow__range_leave_alone(t);
	if (r == 0 && cow__needs_freeze(t)) { /* a device may have its pages */
		put_off = true;
		return 0;
	}

	for (; r == 0 && start < end; start = to) {
		int prot;

		to = end;
		prot = cow__attribute_at(t, COW__ATTRIBUTE_PROTECTION, PROTECTION_WRITE, start,
		                         &to);
		if (!(prot & PROTECTION_WRITE) || copy_present(t, start, to) < 0)
			r = cow__range_own(t, start, to, false, COW__OWN_TO_WATCH);
		else
			fill_holes(t, start, to);
		if (r == 0 && cow__range_give_back(t, start, to) < 0)
			put_off = true;
	}
	return r;
}

/* Withholds what of [start, end) has the advice. */
static int
withhold_advised(struct cow__tile *t, enum cow__attribute_kind kind)
{
	uintptr_t at = cow__tile_start(t), to;
	int r = 0;

	for (; r == 0 && at < cow__tile_end(t); at = to) {
		to = cow__tile_end(t);
		if (cow__attribute_at(t, kind, 0, at, &to) &&
		    cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, at, &to) ==
		            COW__PLACE_OURS)
			r = cow__withhold(t, at, to);
	}
	return r;
}

/* Blocks that something else froze meanwhile may have it in their files, too. What was withheld
 * already stays as it is. */
int
cow__withhold_rest(void)
{
	int r, first = 0;

	if (!put_off)
		return 0;
	put_off = false;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		if (!t->map.attributes || t->kind != COW__LIVE || t->own.outside ||
		    t->map.backing == COW__ANON)
			continue;
		r = withhold_advised(t, COW__ATTRIBUTE_FORK);
		if (r == 0)
			r = withhold_advised(t, COW__ATTRIBUTE_WIPE);
		first = first ? first : r;
	}
	if (first == 0 && put_off)
		first = -EBUSY;
	put_off |= first < 0;
	return first;
}

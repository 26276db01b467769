/* SPDX-License-Identifier: MIT */
/*
 * Memory that thawed counts in RSS again: see the header.
 */
#include "core/memory/resident.h"
#include "core/base/base.h"
#include "core/memory/attribute.h"
#include "core/memory/can.h"
#include "core/memory/ends.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/wait.h"

static size_t lost COW_FORK_DATA;       /* bytes without entries, at most; 0: none */
static uint64_t begin_at COW_FORK_DATA; /* not before then */
static uintptr_t cursor; /* goes through the window; 0: at its beginning */

void
cow__resident_later(struct cow__tile *t, size_t bytes)
{
	t->map.faded = true;
	if (!lost)
		begin_at = cow__now() + COW__RESIDENT_REST_NS;
	lost += bytes;
	cursor = 0;
	if (lost >= COW__RESIDENT_LEAST)
		cow__helper_want(false);
}

void
cow__resident_before_freeze(void)
{
	if (lost)
		begin_at = cow__now() + COW__RESIDENT_REST_NS;
}

static bool
can_fill_tables(const struct cow__tile *t)
{
	return t->map.faded && cow__can(t, COW__TO_FILL);
}

static struct cow__tile *
find_faded(void)
{
	struct cow__tile *t = cursor ? cow__tile_find(cursor) : NULL;

	for (t = t ? t : cow__tile_first(); t; t = t->next)
		if (can_fill_tables(t))
			return t;
	return NULL;
}

/* The first part of the tile from `at` on that is mapped shared. */
static bool
shared_part(const struct cow__tile *t, uintptr_t at, struct cow__span *ret)
{
	*ret = (struct cow__span){ at, cow__tile_end(t) };
	if (t->map.backing == COW__SHARED)
		return ret->start < ret->end;
	if (t->map.backing != COW__PRIVATE || !t->map.nkept)
		return false;
	for (uint32_t i = 0; i < t->map.nkept; i++)
		if (t->map.kept[i].start <= ret->start)
			ret->start = cow__max(ret->start, t->map.kept[i].end);
		else if (t->map.kept[i].start < ret->end)
			ret->end = t->map.kept[i].start;
	return ret->start < ret->end;
}

/*
 * What the file has of the part, from its start on: *part becomes that. False: nothing, up to the
 * end of *part, which may be nearer then. The file is asked, because mincore() says "all of it" to
 * a process that gave up the user who made the file. What the program mapped there is left out: a
 * fault in a range that it watches would wait for the program.
 */
static bool
find_data(const struct cow__tile *t, struct cow__span *part)
{
	size_t at = part->start - cow__tile_start(t), here = 0, offset = at;
	const struct cow__tile *pages = t;
	uint64_t base, from, to;
	int place = COW__PLACE_OURS;

	if (t->map.attributes)
		place = cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, part->start,
		                          &part->end);
	for (uint32_t i = 0; i < t->map.npieces; here += t->map.pieces[i++].bytes) {
		const struct cow__piece *p = &t->map.pieces[i];

		if (at < here || at >= here + p->bytes)
			continue;
		pages = p->pages;
		offset = p->offset + (at - here);
		part->end = cow__min(part->end, part->start + (here + p->bytes - at));
	}
	if (place != COW__PLACE_OURS || !pages->own.segment)
		return false;
	base = cow__segment_offset(cow__tile_start(pages)) + offset;
	if (cow__memfd_data(&pages->own.segment->file, base, base + (part->end - part->start), &from,
	                    &to) <= 0)
		return false;
	part->end = cow__min(part->end, part->start + (to - base));
	part->start += from - base;
	return part->start < part->end;
}

static void
fill_tables(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t at, next;

	t->work = COW__WORK_PAGES;
	cow__engine_unlock();
	for (at = start; at < end; at = next) {
		next = cow__min(cow__round_down(at, COW__HUGE) + COW__HUGE, end);
		cow__map_show(at, next - at);
	}
	cow__helper_lock();
	cow__tile_work_ends(t);
	if (t->work == COW__WORK_DOOMED)
		cow__extent_free(t);
}

uint64_t
cow__resident_job(uint64_t now)
{
	struct cow__span part;
	struct cow__tile *t;
	bool found;

	if (lost <= cow__min(COW__RESIDENT_LEAST, cow__engine.live_bytes / COW__RESIDENT_SHARE))
		return UINT64_MAX;
	if (now < begin_at)
		return begin_at - now;
	t = find_faded();
	if (!t) {
		lost = cursor = 0;
		return 0;
	}
	cursor = cow__max(cursor, cow__tile_start(t));
	if (!shared_part(t, cursor, &part)) {
		t->map.faded = false;
		cursor = cow__tile_end(t);
		return 0;
	}
	found = find_data(t, &part);
	if (found)
		part.end = cow__min(part.end, part.start + COW__RESIDENT_STEP);
	cursor = part.end;
	if (cursor == cow__tile_end(t))
		t->map.faded = false;
	if (found)
		fill_tables(t, part.start, part.end);
	return 0;
}

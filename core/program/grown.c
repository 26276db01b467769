/* SPDX-License-Identifier: MIT */
/*
 * Mappings that grew in parts: see the header.
 */
#include "core/program/grown.h"
#include "core/base/base.h"
#include "core/memory/attribute.h"
#include "core/memory/extent.h"
#include "core/program/missing.h"
#include "core/program/range.h"
#include "memfd/map.h"

bool
cow__is_grown(uintptr_t addr, uintptr_t end)
{
	const struct cow__tile *t = cow__tile_find(addr);
	uintptr_t to;

	if (!t || end <= cow__tile_end(t))
		return false;
	for (; t && addr < end; t = t->next) {
		if (t->kind != COW__LIVE || t->work == COW__WORK_DOOMED || cow__tile_is_common(t) || t->map.use != COW__USE_PART)
			return false;
		for (; addr < cow__min(end, cow__tile_end(t)); addr = to) {
			int place;

			to = cow__min(end, cow__tile_end(t));
			place = cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, addr,
			                          &to);
			if (place != COW__PLACE_OURS && place != COW__PLACE_ANON)
				return false;
		}
	}
	return addr >= end;
}

/* Copies what is there of a tile's part to `copy`. Holes stay holes. */
static int
copy_part(struct cow__tile *t, uintptr_t start, uintptr_t end, char *copy)
{
	size_t bits = cow__round_up((end - start) / cow__page / 8 + 1, cow__page);
	void *missing = NULL;
	int r;

	if (cow__tile_is_shared(t) && !t->map.npieces && !t->map.attributes &&
	    cow__map_meta(bits, &missing) == 0)
		cow__note_missing(t, start, end, false, missing);
	r = cow__range_leave_alone(t);
	if (r == 0) {
		cow__attributes_reveal(t, start, end);
		cow__copy_there(start, end, missing, copy);
	}
	if (missing)
		(void)cow__map_release((uintptr_t)missing, bits);
	return r;
}

int
cow__own_grown(uintptr_t addr, uintptr_t end)
{
	struct cow__tile *t;
	uintptr_t at = addr, to;
	void *copy;
	int r = cow__map_meta(end - addr, &copy);

	if (r < 0)
		return r;
	for (; r == 0 && at < end; at = to) {
		t = cow__tile_find(at);
		to = cow__min(end, cow__tile_end(t));
		r = copy_part(t, at, to, (char *)copy + (at - addr));
	}
	if (r == 0)
		r = cow__map_move((uintptr_t)copy, end - addr, addr);
	if (r < 0)
		(void)cow__map_release((uintptr_t)copy, end - addr);
	for (end = at, at = addr; at < end; at = to) {
		t = cow__tile_find(at);
		to = cow__min(end, cow__tile_end(t));
		if (r == 0)
			(void)cow__attribute_add(t, at, to, COW__ATTRIBUTE_PLACE, COW__PLACE_OWN);
		cow__attributes_apply(t, at, to);
	}
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Ranges that are one anonymous mapping to the program: see the header.
 */
#include "core/program/grown.h"
#include "core/base/base.h"
#include "core/memory/attribute.h"
#include "core/memory/extent.h"
#include "core/program/missing.h"
#include "core/program/range.h"
#include "memfd/map.h"

/* Of <sys/mman.h>, which belongs to memfd/. */
enum { PROTECTION_ALL = 3, ADVICE_DODUMP = 17 };

bool
cow__is_uniform(uintptr_t addr, uintptr_t end)
{
	static const struct {
		enum cow__attribute_kind kind;
		int none;
	} kinds[] = {
		{ COW__ATTRIBUTE_PROTECTION, PROTECTION_ALL }, { COW__ATTRIBUTE_DUMP, ADVICE_DODUMP },
		{ COW__ATTRIBUTE_FORK, 0 }, { COW__ATTRIBUTE_WIPE, 0 }, { COW__ATTRIBUTE_LOCK, -1 },
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		int first = 0, value;
		uintptr_t at = addr, to;

		for (; at < end; at = to) {
			const struct cow__tile *t = cow__tile_find(at);

			to = cow__min(end, cow__tile_end(t));
			value = cow__attribute_at(t, kinds[i].kind, kinds[i].none, at, &to);
			if (at == addr)
				first = value;
			if (value != first)
				return false;
		}
	}
	return true;
}

unsigned
cow__count_parts(uintptr_t addr, uintptr_t end)
{
	uintptr_t at = addr, to;
	unsigned n = 0;

	for (; at < end; at = to, n++) {
		const struct cow__tile *t = cow__tile_find(at);
		int place;

		if (!t || t->kind != COW__LIVE || t->work == COW__WORK_DOOMED || cow__tile_is_common(t))
			return 0;
		to = cow__min(end, cow__tile_end(t));
		place = cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, at, &to);
		if (place == COW__PLACE_HOLE || place == COW__PLACE_OWN)
			return 0;
	}
	return cow__is_uniform(addr, end) ? n : 0;
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
cow__own_whole(uintptr_t addr, uintptr_t end)
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
			(void)cow__attribute_add(t, at, to, COW__ATTRIBUTE_PLACE, COW__PLACE_COPY);
		cow__attributes_apply(t, at, to);
	}
	return r;
}

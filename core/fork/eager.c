/* SPDX-License-Identifier: MIT */
/*
 * Eager copies: see the header.
 */
#include "core/fork/eager.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/sparse.h"
#include "core/memory/attribute.h"
#include "core/memory/extent.h"
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "memfd/map.h"

/* Do children not get what is at `at`? */
static bool
is_denied_to_child(const struct cow__tile *t, uintptr_t at, uintptr_t *end)
{
	int denied = cow__attribute_at(t, COW__ATTRIBUTE_FORK, 0, at, end);

	return cow__attribute_at(t, COW__ATTRIBUTE_WIPE, 0, at, end) || denied;
}

/* The kernel inherits what the program has mapped over a block, and it may not
 * even be readable. Holes stay address space. A closed gap has no bytes of the program's.
 * What children do not get is not copied for them. */
static void
copy_parts(struct cow__tile *t, bool for_child, char *to)
{
	uintptr_t start = cow__tile_start(t), at = start, end;
	uintptr_t last = at + cow__extent_usable(t);

	for (; at < last; at = end) {
		end = last;
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS,
		                      at, &end) == COW__PLACE_OURS &&
		    !(for_child && is_denied_to_child(t, at, &end)))
			(void)cow__sparse_fill_locked(to, t, at - start, end - start,
			                              false);
	}
}

int
cow__eager_copy(struct cow__tile *t, bool for_child, void **ret)
{
	int r = cow__map_meta(t->bytes, ret);

	if (r < 0 || t->own.outside == COW__OUTSIDE_IDLE)
		return r;
	/* Guard pages, too: their bytes come back when they are opened. */
	cow__attributes_reveal(t, cow__tile_start(t), cow__tile_end(t));
	copy_parts(t, for_child, *ret);
	cow__attributes_apply(t, cow__tile_start(t), cow__tile_end(t));
	return 0;
}

bool
cow__eager_shows(const struct cow__tile *t, const struct cow__segment *s)
{
	if (t->kind != COW__LIVE || t->map.backing == COW__ANON)
		return false;
	for (uint32_t i = 0; i < t->map.npieces; i++)
		if (t->map.pieces[i].pages->own.segment == s)
			return true;
	return t->own.segment == s;
}

int
cow__eager_leave(const struct cow__segment *s)
{
	struct cow__tile *t, *next;
	void *data;
	int r = 0;

	for (t = cow__tile_first(); r == 0 && t; t = next) {
		next = t->next;
		if (t->own.outside || !cow__eager_shows(t, s))
			continue;
		r = cow__eager_copy(t, false, &data);
		if (r < 0)
			break;
		cow__stat_add(bytes_copied, cow__extent_usable(t));
		r = cow__extent_replace(t, data);
		/* The end of a view may end the tile of its pages. */
		next = t->next;
	}
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Freezing: see the header.
 */
#include "core/cow/freeze.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/old_tables.h"
#include "core/cow/part.h"
#include "core/memory/attribute.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"

/* All that a tile shows is [*ret_offset, + its bytes) of one file, and one mapping call can
 * freeze it. NULL: it is not so. */
static struct cow__segment *
file_range(const struct cow__tile *t, uint64_t *ret_offset)
{
	struct cow__segment *s = t->map.npieces ? t->map.pieces[0].pages->own.segment : t->own.segment;
	uint64_t at = 0;

	if (!s || t->own.outside || t->map.nkept || t->map.attributes)
		return NULL;
	*ret_offset = cow__segment_offset(cow__tile_start(t));
	for (uint32_t i = 0; i < t->map.npieces; i++) {
		const struct cow__piece *p = &t->map.pieces[i];
		uint64_t here = cow__segment_offset(cow__tile_start(p->pages)) + p->offset;

		if (i == 0)
			*ret_offset = at = here;
		if (p->pages->own.segment != s || here != at)
			return NULL;
		at += p->bytes;
	}
	return s;
}

/* Can both be frozen with one mapping call? */
static bool
freezes_with(const struct cow__tile *a, const struct cow__tile *b)
{
	uint64_t at, next;
	const struct cow__segment *s = file_range(a, &at);

	return s && s == file_range(b, &next) && at + a->bytes == next &&
	       cow__tile_end(a) == cow__tile_start(b);
}

static void
note_frozen(struct cow__tile *t)
{
	cow__tile_change_begin(t);
	cow__tile_set_backing(t, COW__PRIVATE);
	cow__array_free(t->map.kept, t->map.kept_cap, sizeof(*t->map.kept));
	t->map.kept = NULL;
	t->map.nkept = t->map.kept_cap = 0;
	cow__tile_change_end(t);
	cow__stat_add(freezes, 1);
	cow__stat_add(bytes_frozen, t->bytes);
}

/* Freezes all of the shared tiles in [from, to], which join. `inherit`: a fork is being
 * prepared. */
static int
freeze_run(struct cow__tile *from, struct cow__tile *to, bool inherit)
{
	size_t bytes = cow__tile_end(to) - cow__tile_start(from), count = 0;
	uint64_t offset;
	struct cow__segment *s = file_range(from, &offset);
	int r;

	cow__require(s != NULL);

	if (!cow__mappings_left(2))
		return -ENOMEM;
	if (!inherit) /* a fork has moved them, with those of more tiles */
		cow__old_tables_move(cow__tile_start(from), bytes, s, offset);
	r = cow__map_private(cow__tile_start(from), bytes, &s->file, offset, inherit);
	if (r < 0)
		return r;
	cow__tiles_change_begin(from, to);
	for (struct cow__tile *t = from;; t = t->next) {
		cow__commit_stop(t);
		cow__tile_set_backing(t, COW__PRIVATE);
		count++;
		if (t == to)
			break;
	}
	cow__tiles_change_end(from, to, count);
	cow__stat_add(freezes, count);
	cow__stat_add(bytes_frozen, bytes);
	return 0;
}

/* A freeze failed at `done`. Everything below is private now, which `kept` can
 * say: room for that was made before. */
static void
note_frozen_up_to(struct cow__tile *t, uintptr_t done)
{
	uint32_t n = 0;

	if (done == cow__tile_start(t)) {
		if (t->map.nkept)
			return;
		cow__array_free(t->map.kept, t->map.kept_cap, sizeof(*t->map.kept));
		t->map.kept = NULL;
		t->map.kept_cap = 0;
		return;
	}
	cow__tile_change_begin(t);
	while (n < t->map.nkept && t->map.kept[n].end <= done)
		n++;
	memmove(t->map.kept + 1, t->map.kept + n, (t->map.nkept - n) * sizeof(*t->map.kept));
	t->map.nkept = t->map.nkept - n + 1;
	t->map.kept[0] = (struct cow__span){ cow__tile_start(t), done };
	t->map.backing = COW__PRIVATE;
	cow__tile_change_end(t);
}

int
cow__freeze(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	int r;

	if (!cow__can(t, COW__TO_FREEZE))
		return -EBUSY;
	if (!t->map.npieces && !t->map.nkept && !t->map.attributes)
		return freeze_run(t, t, false);
	if (!cow__mappings_left(2 + t->map.npieces + cow__attributes_count(t)))
		return -ENOMEM;
	r = cow__array_reserve((void **)&t->map.kept, &t->map.kept_cap,
	                       sizeof(*t->map.kept), t->map.nkept + 1);
	if (r < 0)
		return r;
	cow__commit_stop(t);
	/* Around the parts that a thaw left private. */
	for (uint32_t i = 0; i <= t->map.nkept; i++) {
		uintptr_t end = i < t->map.nkept ? t->map.kept[i].start
		                             : cow__tile_end(t);

		r = cow__part_map(t, at, end, false, &at);
		if (r < 0) {
			note_frozen_up_to(t, at);
			return r;
		}
		if (i < t->map.nkept)
			at = t->map.kept[i].end;
	}
	note_frozen(t);
	return 0;
}

/* Is it still as it was when it was chosen, apart from its backing? */
static bool
is_chosen(const struct cow__tile *t)
{
	return t && t->mark == COW__MARK_CHOSEN && t->kind == COW__LIVE && t->map.backing == COW__SHARED;
}

void
cow__freeze_chosen(struct cow__tile *t)
{
	struct cow__tile *to = t;

	if (is_chosen(t)) {
		while (is_chosen(t->prev) && freezes_with(t->prev, t))
			t = t->prev;
		while (is_chosen(to->next) && freezes_with(to, to->next))
			to = to->next;
		if (t != to)
			(void)freeze_run(t, to, false);
	}
	for (;; t = t->next) {
		t->mark = COW__MARK_NONE;
		if (t == to)
			break;
	}
}

void
cow__freeze_close_gap(struct cow__tile *t)
{
	struct cow__tile *b = t->next;
	uintptr_t end = cow__tile_end(t);
	size_t gap = cow__round_up(end, COW__HUGE) - end;

	if (!gap || !cow__can(t, COW__TO_CLOSE_GAP) || t->own.segment->single || !b ||
	    b->kind != COW__FREE || b->map.backing != COW__SHARED ||
	    b->own.segment != t->own.segment || cow__tile_heat(b) != COW__COLD)
		return;
	gap = cow__min(gap, b->bytes);
	if (cow__tile_grow(t, gap) < 0)
		return;
	t->own.hollow = 0;
	cow__extent_counts(gap);
}

/* Behind all blocks, and behind storages whose address is exposed. */
static void
close_gap(struct cow__tile *t)
{
	if (cow__tile_is_exposed(t) || !t->map.allocation)
		cow__freeze_close_gap(t);
}

/* Moves the old page tables of `t` and what follows it in one go, as far as the kernel
 * has merged the mappings. Small gaps of free memory go along: they lose no page. To
 * move a whole GiB takes the kernel one step. Returns the end. */
static uintptr_t
move_old_tables(struct cow__tile *t)
{
	uintptr_t start = cow__tile_start(t), end = start;
	uint64_t offset;
	size_t gap = 0;

	for (struct cow__tile *s = t; s && s->own.segment == t->own.segment; s = s->next) {
		if (s->kind == COW__FREE && s->map.backing == COW__SHARED) {
			gap += s->bytes;
			continue;
		}
		if (!cow__needs_freeze(s) || s->map.npieces || s->map.slow ||
		    !file_range(s, &offset) ||
		    (gap >= COW__HUGE && gap > (end - start) / COW__TABLES_GAP_SHARE))
			break;
		close_gap(s);
		gap = 0;
		end = cow__tile_end(s);
	}
	cow__old_tables_move(start, end - start, t->own.segment, cow__segment_offset(start));
	return end;
}

int
cow__freeze_onward(struct cow__tile **t, uintptr_t *moved)
{
	struct cow__tile *from = *t, *to = from;
	uintptr_t start = cow__tile_start(from);
	struct cow__segment *s;
	uint64_t offset;
	int r;

	close_gap(from);
	s = file_range(from, &offset);
	if (!s) {
		r = cow__freeze(from);
		return r < 0 ? r : 1;
	}
	while (to->next && cow__needs_freeze(to->next) && freezes_with(to, to->next)) {
		to = to->next;
		close_gap(to);
	}
	if (from->map.npieces)
		cow__old_tables_move(start, cow__tile_end(to) - start, s, offset);
	else if (start >= *moved)
		*moved = move_old_tables(from);
	r = freeze_run(from, to, true);
	if (r == 0)
		*t = to;
	return r;
}

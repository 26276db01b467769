/* SPDX-License-Identifier: MIT */
/*
 * Extents in a forked child: what it inherited, and what it did not
 *
 * Live tiles were inherited, or reserved at the fork. Free memory was not: its addresses
 * become bare. Of the files it is noted where such memory had pages, because a child that gives
 * up privileges has to give these back (core/memory/stranger.c).
 */
#include "core/memory/extent.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "memfd/forked.h"
#include "memfd/map.h"

/* What was mapped here was not inherited. */
static void
unmap_in_child(struct cow__tile *t)
{
	if (t->kind == COW__FREE)
		cow__tile_unlist(t);
	(void)cow__map_none(cow__tile_start(t), t->bytes);
	cow__tile_change_begin(t);
	t->map.backing = COW__NONE;
	cow__tile_change_end(t);
	t->own.freed_at = 0;
}

/* One tile of a forked child. Returns the tile behind it. */
static struct cow__tile *
tile_in_child(struct cow__tile *t)
{
	/* The helper's own mappings were not inherited: no holes. */
	if (t->kind == COW__INNER && t->map.backing == COW__NONE &&
	    cow__map_none(cow__tile_start(t), t->bytes) == 0)
		return cow__tile_put(t)->next;
	/* Live: inherited, or kept by the helper at the fork. */
	if (t->kind == COW__INNER || t->kind == COW__LOST ||
	    t->kind == COW__LIVE)
		return t->next;
	if (t->map.backing != COW__NONE) {
		unmap_in_child(t);
		if (t->kind == COW__FREE) {
			if (t->own.segment)
				cow__segment_unref(t->own.segment);
			t->own.segment = NULL;
			return cow__tile_put(t)->next;
		}
	}
	/* Limbo: wait for views, or drop what nobody here reads. */
	if (t->kind == COW__LIMBO && t->own.refs == 0) {
		if (t->own.segment)
			cow__extent_leave_segment(t);
		return cow__tile_put(t)->next;
	}
	return t->next;
}

/* A tile that shows others' pages alone has no use for its own ones, which a child may not
 * write. It keeps no file for them. The fork gave this process no hold on them: their word is
 * others', and may be used again. */
static void
drop_own_pages(struct cow__tile *t)
{
	if (!t->own.held)
		cow__segment_note_left(t->own.segment, cow__tile_start(t), t->bytes);
	t->own.word = 0;
	t->own.held = COW__HELD_NEVER;
	if (!t->own.segment || !t->map.npieces)
		return;
	cow__tile_change_begin(t);
	cow__segment_unref(t->own.segment);
	t->own.segment = NULL;
	cow__tile_change_end(t);
	/* From now on it is counted as a view: where its pages are. */
	cow__stat_sub(bytes_live, t->bytes);
	cow__stat_sub(blocks_live, 1);
}

COW_FORK_CODE void
cow__extents_child(void)
{
	struct cow__tile *t, *next;

	cow__limbo_child();
	for (t = cow__tile_first(); t; t = next) {
		if (cow__tile_is_pinned(t))
			t->own.outside = COW__OUTSIDE_NONE;
		cow__tile_work_ends(t);
		if (t->work) {
			cow__extent_free(t);
			return cow__extents_child();
		}
		if (t->kind == COW__LIVE && t->own.refs == 0)
			drop_own_pages(t);
		next = tile_in_child(t);
	}
}

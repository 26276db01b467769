/* SPDX-License-Identifier: MIT */
/*
 * Extents: the end of their lives
 *
 *   live -free-> pages still read? -no-> held by other processes? -no-> warm
 *                        | yes                     | yes
 *                        v                         v
 *                  limbo, until the          limbo, polled until
 *                  last view is gone         the others are done
 *
 * Warm memory lies in files that no other process has, because a relative could read what
 * is written there. The pages of other files are given back to the kernel, by the last
 * process that reads them.
 */
#include "core/memory/extent.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/attribute.h"
#include "core/memory/bare.h"
#include "core/memory/commit.h"
#include "core/memory/copy_history.h"
#include "core/memory/decay.h"
#include "core/memory/segment.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/wait.h"

/* Tiles whose pages no view here reads, but another process may: polled. */
static struct cow__tile *limbo COW_FORK_DATA;
static unsigned limbo_count COW_FORK_DATA;

/* Makes sure that what the program did not touch has no pages. It does not count
 * as warm then. */
static void
hollow_out(struct cow__tile *t)
{
	if (t->own.hollow < COW__HOLLOW_LEAST || t->map.backing != COW__SHARED ||
	    cow__map_punch(cow__tile_end(t) - t->own.hollow, t->own.hollow) < 0)
		t->own.hollow = 0;
	if (t->own.hollow == t->bytes)
		t->own.freed_at = 0;
}

/* cow__extent_poll_limbo() looks at it again. */
static void
wait_in_limbo(struct cow__tile *t)
{
	t->kind = COW__LIMBO;
	t->list_next = limbo;
	limbo = t;
	limbo_count++;
}

/* Maps the tile as free memory is mapped: its segment shared if this process may
 * use the pages again (`alone`), anonymous memory as it lies, else nothing. Nothing, too, in a
 * retired engine, which has no helper that would give it back. */
static int
map_as_free(struct cow__tile *t, bool alone)
{
	struct cow__segment *s = t->own.segment;
	int r = 0;

	if (s && !(alone && s->owner)) {
		r = cow__map_none(cow__tile_start(t), t->bytes);
		if (r == 0) {
			cow__segment_unref(s);
			t->own.segment = NULL;
			t->map.backing = COW__NONE;
		}
	} else if (s && (t->map.backing != COW__SHARED || t->map.slow)) {
		r = cow__map_shared(cow__tile_start(t), t->bytes, &s->file,
		                    cow__segment_offset(cow__tile_start(t)),
		                    false);
		if (r == 0)
			t->map.backing = COW__SHARED;
		else if (cow__map_none(cow__tile_start(t), t->bytes) == 0) {
			cow__segment_leave(s, cow__tile_start(t), t->bytes);
			cow__segment_unref(s);
			t->own.segment = NULL;
			t->map.backing = COW__NONE;
			r = 0;
		}
	} else if (!s && (t->map.backing != COW__ANON || t->map.slow || cow__engine.retired)) {
		r = cow__map_none(cow__tile_start(t), t->bytes);
		if (r == 0)
			t->map.backing = COW__NONE;
	}
	return r;
}

void
cow__recycle(struct cow__tile *t, bool alone)
{
	struct cow__segment *s = t->own.segment;
	/* It was not frozen, because a device had pages of it. The kernel may have some still. */
	bool kept = t->map.overlay == COW__OVERLAY_LASTS && t->map.backing == COW__SHARED;
	int r;

	cow__tile_change_begin(t);
	r = map_as_free(t, alone);
	cow__attributes_free(t);
	if (t->own.bound && t->map.backing == COW__SHARED)
		(void)cow__map_unbind(cow__tile_start(t), t->bytes);
	if (r == 0) {
		t->map.overlay = COW__OVERLAY_NONE;
		t->map.slow = t->own.bound = false;
	}
	cow__tile_change_end(t);
	if (r < 0) {
		/* The limit on mappings is reached, and to unmap this would need
		 * one more. Its addresses are lost until a mapping is freed. It
		 * is tried again from limbo. */
		if (s)
			cow__stat_add(bytes_limbo, t->bytes);
		wait_in_limbo(t);
		return;
	}
	t->own.freed_at = t->map.backing == COW__NONE ? 0 : cow__now();
	/* With many holes it counts as cold. To have no pages, and huge pages
	 * later, is better than small pages in between. */
	if (t->map.backing == COW__SHARED && (kept || t->own.shadow > t->bytes / COW__HOLES_SHARE) &&
	    cow__map_punch(cow__tile_start(t), t->bytes) == 0)
		t->own.freed_at = 0;
	t->own.shadow = 0;
	hollow_out(t);
	if (t->map.backing == COW__NONE)
		cow__bare_put(t);
	else
		(void)cow__tile_put(t);
}

/* Gives pages back to the kernel that this process may not use again: they lie in a file
 * that relatives have. */
static int
give_pages_back(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	int r;

	r = cow__map_shared(at, t->bytes, &t->own.segment->file,
	                    cow__segment_offset(at), false);
	if (r < 0)
		return r;
	cow__tile_change_begin(t);
	t->map.backing = COW__SHARED;
	cow__tile_change_end(t);
	r = cow__map_punch(at, t->bytes);
	if (r == 0 && t->own.segment->owner)
		cow__decay_rest(t);
	return r;
}

/* No mapping of this process reads them any more. */
static void
release_pages(struct cow__tile *t)
{
	struct cow__census c = { .asked = 0 };
	bool apart, unread;

	if (!t->own.segment) {
		cow__recycle(t, true);
		return;
	}
	/* A child may have set a NUMA policy: it is the file's, not the mapping's. */
	t->own.bound |= t->own.held != COW__HELD_NEVER;
	apart = t->own.segment->owner && cow__holders_alone(t, &c);
	unread = cow__holders_drop(t, &c, apart ? NULL : give_pages_back);
	/* A segment of its own is not waited for: the last process that has it
	 * ends it. */
	if (!unread && t->own.segment->single && t->own.segment->tiles == 1)
		t->own.segment->owner = false;
	if (unread || !t->own.segment->owner) {
		cow__recycle(t, apart);
		return;
	}
	/* Other processes still read the file pages. The mapping is of no use
	 * here. Its copied pages go now, the file pages when the other processes
	 * are done. */
	cow__tile_change_begin(t);
	if (cow__map_none(cow__tile_start(t), t->bytes) == 0)
		t->map.backing = COW__NONE;
	cow__tile_change_end(t);
	wait_in_limbo(t);
	cow__stat_add(bytes_limbo, t->bytes);
}

void
cow__extent_unref_pages(struct cow__tile *t)
{
	cow__require(t->own.refs > 0);
	if (--t->own.refs == 0 && t->kind == COW__LIMBO)
		release_pages(t);
}

static void
drop_pieces(struct cow__tile *t)
{
	struct cow__piece *pieces = t->map.pieces;
	uint32_t n = t->map.npieces, cap = t->map.pieces_cap;

	if (!n) {
		t->own.refs--;
		return;
	}
	cow__tile_change_begin(t);
	t->map.pieces = NULL;
	t->map.npieces = t->map.pieces_cap = 0;
	t->map.slow = true; /* others' pages are mapped here still */
	cow__tile_change_end(t);
	for (uint32_t i = 0; i < n; i++) {
		if (pieces[i].pages == t)
			t->own.refs--;
		else
			cow__extent_unref_pages(pieces[i].pages);
	}
	cow__array_free(pieces, cap, sizeof(*pieces));
}

/* Between cow__tile_change_begin() and cow__tile_change_end(). */
static void
drop_kept(struct cow__tile *t)
{
	cow__array_free(t->map.kept, t->map.kept_cap, sizeof(*t->map.kept));
	t->map.kept = NULL;
	t->map.nkept = t->map.kept_cap = 0;
}

static void
uncount_live(const struct cow__tile *t)
{
	cow__engine.live_bytes -= t->bytes;
	if (!t->own.segment && t->map.backing != COW__ANON)
		return; /* a view: counted where its pages are */
	cow__stat_sub(bytes_live, t->bytes);
	cow__stat_sub(blocks_live, 1);
}

void
cow__extent_detach(struct cow__tile *t)
{
	cow__commit_forget(t);
	uncount_live(t);
	t->kind = COW__LIMBO;
}

void
cow__extent_free(struct cow__tile *t)
{
	bool again = t->work == COW__WORK_DOOMED;

	cow__require(t->kind == COW__LIVE && !cow__tile_is_pinned(t));
	if (!again) {
		cow__copy_history_end(t);
		cow__hooks.tile_freed(t);
		t->own.hollow = t->bytes - cow__commit_reached(t);
		/* The program reserved it, and how much of it was used is not
		 * known. */
		if (cow__tile_is_mapping(t) && t->map.slow)
			t->own.hollow = t->bytes;
		if (t->map.lazy) /* a lazy copy freed its pages */
			t->own.shadow = t->bytes;
	}
	cow__commit_forget(t);
	cow__spares_drop(t);
	t->map.use = COW__USE_STORAGE;
	t->map.lazy = false;
	t->own.outside = COW__OUTSIDE_NONE;
	t->map.allocation = NULL;
	if (!again) {
		uncount_live(t);
		if (t->work) { /* what works on it calls again */
			t->work = COW__WORK_DOOMED;
			return;
		}
	}
	t->work = COW__WORK_NONE;
	cow__tile_change_begin(t);
	t->kind = COW__LIMBO;
	drop_kept(t);
	cow__tile_change_end(t);
	drop_pieces(t);
	if (t->own.refs == 0) {
		release_pages(t);
		return;
	}
	/* Views still read the file pages. Nobody needs the pages copied here. */
	if (t->map.backing == COW__PRIVATE || t->map.slow) {
		cow__tile_change_begin(t);
		if (cow__map_none(cow__tile_start(t), t->bytes) == 0)
			t->map.backing = COW__NONE;
		cow__tile_change_end(t);
	}
}

unsigned
cow__extent_poll_limbo(void)
{
	struct cow__census c = { .asked = 0 };
	struct cow__tile *t = limbo, *next;
	bool apart;

	limbo = NULL;
	limbo_count = 0;
	for (; t; t = next) {
		next = t->list_next;
		t->list_next = NULL;
		if (t->own.segment && t->own.segment->owner &&
		    !cow__holders_unread(t, &c)) {
			t->list_next = limbo;
			limbo = t;
			limbo_count++;
			continue;
		}
		apart = !t->own.segment || (t->own.segment->owner && cow__holders_alone(t, &c));
		if (t->own.segment) {
			cow__stat_sub(bytes_limbo, t->bytes);
			(void)cow__holders_drop(t, &c, apart ? NULL : give_pages_back);
		}
		cow__recycle(t, apart);
	}
	return limbo_count;
}

void
cow__extent_remapped(struct cow__tile *t)
{
	if (!t->own.segment && t->map.backing != COW__ANON) {
		/* A view: its pages were counted elsewhere. */
		cow__stat_add(bytes_live, t->bytes);
		cow__stat_add(bytes_served, t->bytes);
		cow__stat_add(blocks_live, 1);
	}
	drop_pieces(t);
	cow__tile_change_begin(t);
	drop_kept(t);
	t->map.slow = false;
	cow__tile_change_end(t);
}

/* Of what is not the engine's in the tile, the child has what its parent has. */
static int
replace_part(uintptr_t at, size_t bytes, uintptr_t copy, bool ours)
{
	int r;

	if (ours && cow__map_move(copy, bytes, at) == 0)
		return 0;
	r = ours ? cow__map_anon(at, bytes, false) : 0;
	if (r < 0)
		return r;
	if (ours)
		memcpy((void *)at, (void *)copy, bytes);
	(void)cow__map_release(copy, bytes);
	return 0;
}

void
cow__extent_leave_segment(struct cow__tile *t)
{
	struct cow__census c = { .asked = 0 };

	(void)cow__holders_drop(t, &c, NULL);
	cow__segment_unref(t->own.segment);
	t->own.segment = NULL;
	/* It may join another file, whose words are others. */
	t->own.word = 0;
	t->own.held = COW__HELD_NEVER;
}

int
cow__extent_replace(struct cow__tile *t, void *copy)
{
	struct cow__segment *s = t->own.segment;
	uintptr_t at = cow__tile_start(t), end;
	uintptr_t from = (uintptr_t)copy - at;
	int r = 0, place;

	for (; r == 0 && at < cow__tile_end(t); at = end) {
		end = cow__tile_end(t);
		place = cow__attribute_at(t, COW__ATTRIBUTE_PLACE,
		                          COW__PLACE_OURS, at, &end);
		r = replace_part(at, end - at, from + at,
		                 place == COW__PLACE_OURS);
	}
	if (r < 0)
		return r;
	if (!s) { /* a view: its pages were counted elsewhere */
		cow__stat_add(bytes_live, t->bytes);
		cow__stat_add(bytes_served, t->bytes);
		cow__stat_add(blocks_live, 1);
	}
	drop_pieces(t);
	cow__tile_change_begin(t);
	drop_kept(t);
	if (s && t->own.refs == 0)
		cow__extent_leave_segment(t);
	t->map.backing = COW__ANON;
	t->own.refs++;
	cow__tile_change_end(t);
	if (t->map.attributes)
		cow__attributes_apply(t, cow__tile_start(t), cow__tile_end(t));
	return 0;
}

COW_FORK_CODE void
cow__limbo_child(void)
{
	limbo = NULL;
	limbo_count = 0;
}

uint64_t
cow__limbo_job(uint64_t now)
{
	cow__segments_return_filled(now, false);
	if (cow__segments_ended()) /* a block was freed while the helper had it */
		cow__segments_end();
	return cow__extent_poll_limbo() || cow__engine.frozen ? COW__LIMBO_NS
	                                                       : UINT64_MAX;
}

/* SPDX-License-Identifier: MIT */
/*
 * Write intents: see the header.
 */
#include "core/cow/rewrite.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/cow/exclusive.h"
#include "core/cow/part.h"
#include "core/cow/target.h"
#include "core/cow/thaw.h"
#include "core/memory/apart.h"
#include "core/memory/bulk.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pins.h"
#include "memfd/process.h"
#include "memfd/wait.h"

struct intent {
	bool all;
	bool asked, pins; /* may memory be under I/O? Asked once */
	uint64_t copied;
};

/* Looks in /proc, which costs more than a small intent may. */
static bool
is_under_io(struct intent *w)
{
	if (!w->asked) {
		w->pins = cow__pins_memory();
		if (w->pins)
			cow__fallback(COW_FALLBACK_PINNED);
	}
	w->asked = true;
	return w->pins;
}

/* The next part of [*at, end) that is to be replaced: private, whole chunks of 2 MiB or
 * up to an end of the tile. *at moves there. Empty: there is none. */
static uintptr_t
next_part(const struct cow__tile *t, uintptr_t *at, uintptr_t end)
{
	uintptr_t first = cow__tile_start(t), last = cow__tile_end(t), to;
	size_t step = cow__max(COW__REWRITE_STEP, cow__round_up(t->bytes / COW__REWRITE_STEPS, COW__HUGE));
	struct cow__span part;

	while (*at < end && cow__private_part(t, *at, &part) && part.start < end) {
		*at = cow__max(*at, part.start);
		if (*at != first)
			*at = cow__round_up(*at, COW__HUGE);
		to = cow__min(part.end, end);
		if (to != last)
			to = cow__round_down(to, COW__HUGE);
		if (*at < to)
			return cow__min(to, cow__round_down(*at, COW__HUGE) + step);
		*at = cow__max(*at, part.end);
	}
	*at = cow__max(*at, end);
	return *at;
}

/* Replaces the pages of [start, end). */
static int
replace_pages(struct cow__tile *t, uintptr_t start, uintptr_t end, bool all, struct intent *w)
{
	size_t bytes = cow__min(end, cow__tile_start(t) + cow__extent_usable(t)) - start;
	struct cow__target to;
	int r = cow__target_for(t, start, end - start, &to);

	if (r < 0)
		return r;
	cow__target_prepare(&to);
	if (!all) {
		cow__bulk_copy((void *)to.at, (const void *)start, bytes, to.fresh);
		cow__stat_add(bytes_copied, bytes);
		w->copied += bytes;
	} else if (to.fresh) {
		cow__bulk_commit(to.at, bytes);
	}
	r = cow__target_show(t, start, end, &to);
	cow__target_end(t, &to, r == 0);
	return r;
}

/* Nobody else reads the tile: the way back, in place. *at moves as far as it came. */
static int
thaw_part(struct cow__tile *t, uintptr_t *at, uintptr_t end, bool all)
{
	size_t copied, done = 0;
	int r = 0;

	if (all) {
		r = cow__thaw_tile_discard(t, *at, end);
		*at = end;
	}
	while (r >= 0 && *at < end && done < COW__REWRITE_STEP) {
		r = cow__thaw_tile_step(t, at, end, SIZE_MAX, &copied);
		done += copied;
	}
	return r;
}

/* Works on the first part of [*at, end), which lies in the tile, and moves *at behind
 * it. */
static void
rewrite_part(struct cow__tile *t, uintptr_t *at, uintptr_t end, struct intent *w)
{
	struct cow__census c = { .asked = 0 };
	uintptr_t to, last = end, bytes_end = cow__tile_start(t) + cow__extent_usable(t);
	/* A tracked storage may have clones on this tile. */
	bool all = w->all && (!t->map.allocation || cow__tile_is_exposed(t));
	static char tail[64 * KIB]; /* the largest page; too much for a small stack */
	size_t ntail = 0;
	int r = 0;

	/* The last page of a block comes with its last byte. The program may use what is
	 * behind that (cow_block_bytes()). */
	if (end >= cow__tile_start(t) + t->map.used && bytes_end - last <= cow__page)
		end = cow__tile_end(t);
	to = next_part(t, at, end);
	if (*at == to || is_under_io(w)) {
		*at = end;
		return;
	}
	if (all && to == cow__tile_end(t) && last < bytes_end)
		memcpy(tail, (const void *)last, ntail = bytes_end - last);
	if (cow__exclusive(t, &c)) {
		r = thaw_part(t, at, to, all);
	} else {
		r = replace_pages(t, *at, to, all, w);
		*at = to;
	}
	if (ntail)
		memcpy((void *)last, tail, ntail);
	if (r < 0) /* it stays as it is */
		*at = end;
}

void
cow__rewrite(uintptr_t start, uintptr_t end, bool all, uint64_t *copied)
{
	struct intent w = { .all = all };

	while (start < end && __atomic_load_n(&cow__engine.frozen, __ATOMIC_RELAXED)) {
		struct cow__tile *t;

		cow__engine_lock();
		t = cow__engine.process == cow__process_id() ? cow__tile_find(start)
		                                             : NULL;
		if (!t) {
			cow__engine_unlock();
			break;
		}
		if (cow__commit_wait(&t, start) && t && cow__can(t, COW__TO_REWRITE))
			rewrite_part(t, &start, cow__min(end, cow__tile_end(t)), &w);
		else
			start = t ? cow__tile_end(t) : end;
		cow__engine_unlock();
	}
	*copied += w.copied;
}

struct cow__rewrite {
	uintptr_t start;
	size_t bytes;
	uint32_t generation; /* of the process that has the pages */
	struct cow__target to;
	bool own; /* a reference on the tile's own pages */
	bool frozen; /* a fork froze the new pages: they can't take the place of the old ones */
	struct cow__rewrite *next;
};

static struct cow__rewrite *open; /* those that have begun */

static struct cow__pool rewrites = { .object_bytes = sizeof(struct cow__rewrite) };

/* Is all of the block frozen, and may it show other pages? */
static bool
is_block_frozen(const struct cow__tile *t, uintptr_t start, size_t bytes)
{
	uintptr_t end = cow__tile_start(t) + cow__extent_usable(t);
	struct cow__span part;

	return cow__can(t, COW__TO_REWRITE) && (!t->map.allocation || cow__tile_is_exposed(t)) &&
	       start == cow__tile_start(t) && start + bytes >= start + t->map.used && start + bytes <= end &&
	       cow__private_part(t, start, &part) && part.start == start &&
	       part.end >= cow__tile_end(t);
}

/* The tile there, if it is to be had: the helper may be working on it for long. */
static int
find_live_tile(uintptr_t start, struct cow__tile **ret)
{
	struct cow__tile *t = cow__engine.process == cow__process_id() ? cow__tile_find(start)
	                                                               : NULL;
	bool free = t && cow__commit_wait(&t, start);

	*ret = t;
	return !t || t->kind != COW__LIVE ? -ENOENT : free ? 0 : -EBUSY;
}

/* With the reference that keeps the pages. */
static int
begin_rewrite(struct cow__rewrite *w, size_t bytes)
{
	struct intent i = { .asked = false };
	struct cow__census c = { .asked = 0 };
	struct cow__tile *t;
	int r = find_live_tile(w->start, &t);

	if (r < 0)
		return r == -ENOENT ? -ENOTSUP : r;
	if (!is_block_frozen(t, w->start, bytes))
		return -ENOTSUP;
	if (cow__exclusive(t, &c))
		return -EAGAIN;
	if (is_under_io(&i))
		return -EBUSY;
	r = cow__target_for(t, w->start, t->bytes, &w->to);
	if (r < 0)
		return r;
	w->own = w->to.piece.pages == t;
	if (w->own)
		t->own.refs++;
	else if (w->to.made)
		cow__extent_detach(w->to.piece.pages);
	w->to.made = false;
	w->to.piece.pages->own.open++;
	w->next = open;
	open = w;
	return 0;
}

static void
unlist_rewrite(const struct cow__rewrite *w)
{
	for (struct cow__rewrite **p = &open; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			return;
		}
}

void
cow__rewrites_freeze(void)
{
	for (struct cow__rewrite *w = open; w; w = w->next) {
		const struct cow__tile *pages = w->to.piece.pages;

		if (w->frozen)
			continue;
		w->frozen = cow__map_private(w->to.at, w->to.piece.bytes, &pages->own.segment->file,
		                             cow__segment_offset(cow__tile_start(pages)) +
		                                     w->to.piece.offset,
		                             false) == 0;
	}
}

/* The open rewrite of these pages that begins first at `from` or behind it. */
static const struct cow__rewrite *
next_open(const struct cow__tile *pages, uintptr_t from)
{
	const struct cow__rewrite *first = NULL;

	for (const struct cow__rewrite *w = open; w; w = w->next)
		if (w->to.piece.pages == pages && !w->to.alias && w->to.at >= from &&
		    (!first || w->to.at < first->to.at))
			first = w;
	return first;
}

static int
unmap_around(const struct cow__tile *pages)
{
	uintptr_t at = cow__tile_start(pages), end = cow__tile_end(pages), to;
	int r = 0;

	while (r == 0 && at < end) {
		const struct cow__rewrite *w = next_open(pages, at);

		if (w && !w->frozen)
			return -ENOMEM; /* the fork could not freeze it */
		to = w ? w->to.at : end;
		if (to > at)
			r = cow__map_none(at, to - at);
		at = w ? to + w->to.piece.bytes : end;
	}
	return r;
}

int
cow__rewrites_unmap(void)
{
	int r = 0;

	for (struct cow__tile *t = cow__tile_first(); r == 0 && t; t = t->next)
		if (t->own.open && t->kind == COW__LIMBO && t->map.backing == COW__SHARED && t->own.segment &&
		    t->own.segment->leaving)
			r = unmap_around(t);
	return r;
}

/* The parent goes on to read the pages. So the child may not take a block's own ones, which nobody
 * shows, for memory that was free at the fork, and give them back (cow__extents_child()). */
COW_FORK_CODE void
cow__rewrites_child(void)
{
	for (const struct cow__rewrite *w = open; w; w = w->next)
		cow__spare_leave(w->to.piece.pages);
	for (const struct cow__rewrite *w = open; w; w = w->next)
		if (w->own && !w->to.piece.pages->own.held)
			w->to.piece.pages->own.held = COW__HELD_COUNTED;
	if (open)
		open = NULL;
}

int
cow__rewrite_begin(uintptr_t start, size_t bytes, void **ret_at, struct cow__rewrite **ret)
{
	struct cow__rewrite *w;
	int r;

	if (!__atomic_load_n(&cow__engine.frozen, __ATOMIC_RELAXED))
		return -EAGAIN;
	w = cow__pool_take(&rewrites);
	if (!w)
		return -ENOMEM;
	*w = (struct cow__rewrite){ .start = start,
		                    .bytes = bytes,
		                    .generation = cow__engine.generation };
	cow__engine_lock();
	r = begin_rewrite(w, bytes);
	cow__engine_unlock();
	if (r < 0) {
		cow__pool_give(&rewrites, w);
		return r;
	}
	cow__target_prepare(&w->to);
	if (w->to.fresh)
		cow__bulk_commit(w->to.at, bytes);
	*ret_at = (void *)w->to.at;
	*ret = w;
	return 0;
}

/* The pages are free again soon, as if they had been written at no other place. */
static void
unmap_frozen_pages(struct cow__tile *pages)
{
	cow__tile_change_begin(pages);
	if (cow__map_none(cow__tile_start(pages), pages->bytes) == 0)
		pages->map.backing = COW__NONE;
	cow__tile_change_end(pages);
}

/* Shows the pages. */
static int
show_new_pages(const struct cow__rewrite *w)
{
	struct intent i = { .asked = false };
	struct cow__tile *t;
	int r = find_live_tile(w->start, &t);
	size_t rest;

	if (r < 0)
		return r;
	if (w->frozen || !is_block_frozen(t, w->start, w->bytes) ||
	    (w->own && w->to.piece.pages != t) ||
	    is_under_io(&i))
		return -ENOTSUP;
	/* The program may use what is behind the bytes (cow_block_bytes()). */
	rest = cow__extent_usable(t) - w->bytes;
	memcpy((char *)w->to.at + w->bytes, (char *)w->start + w->bytes, rest);
	return cow__target_show(t, w->start, cow__tile_end(t), &w->to);
}

int
cow__rewrite_end(struct cow__rewrite *w, bool keep)
{
	/* Of a raw fork the engine knows by the number alone. */
	bool is_child = w->generation != cow__engine.generation ||
	                cow__engine.process != cow__process_id();
	uint64_t copied = 0;
	int r = 0;

	if (!is_child) {
		cow__engine_lock();
		r = keep ? show_new_pages(w) : 0;
		cow__engine_unlock();
		if (r < 0 && r != -ENOENT) { /* the block was not freed meanwhile */
			if (w->frozen)
				cow__rewrite(w->start, w->start + w->bytes, true, &copied);
			memcpy((void *)w->start, (void *)w->to.at, w->bytes);
		}
		cow__engine_lock();
		unlist_rewrite(w);
		if (w->frozen && !w->to.alias)
			unmap_frozen_pages(w->to.piece.pages);
		if (w->to.alias)
			cow__tile_inner_free(w->to.alias);
		w->to.piece.pages->own.open--;
		cow__extent_unref_pages(w->to.piece.pages);
		cow__engine_unlock();
	}
	cow__pool_give(&rewrites, w);
	return is_child ? -ESTALE : 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Write intents: see the header.
 */
#include "core/cow/rewrite.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/exclusive.h"
#include "core/cow/part.h"
#include "core/cow/thaw.h"
#include "core/cow/view.h"
#include "core/memory/apart.h"
#include "core/memory/bulk.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/wait.h"

#define STEP (32 * MIB)
#define STEPS 16       /* of one tile, at most, where they are larger than STEP */
#define PIECES_MOST 48 /* with many more, a tile never thaws (core/cow/exclusive.c) */
#define BUSY_NS 50000u
#define BUSY_MOST_NS 50000000u /* the helper works on the tile: not longer than that */

struct intent {
	bool all;
	bool asked, pins; /* may memory be under I/O? Asked once */
	uint64_t copied;
};

/* Where a part is copied to, and what the tile shows there afterwards. */
struct target {
	struct cow__piece piece; /* of this tile */
	uintptr_t at;            /* mapped shared here */
	bool fresh;
	struct cow__tile *alias; /* of the tile's own pages; NULL: none */
	bool made;               /* the pages are new, and nobody has a reference yet */
};

static bool
suitable(const struct cow__tile *t)
{
	return t->kind == COW__LIVE && t->backing == COW__PRIVATE && !t->pinned &&
	       !t->common && !t->attributes && !t->overlaid && !t->lasting &&
	       !t->slow && !t->bound && !t->punching && !t->doomed &&
	       t->npieces <= PIECES_MOST;
}

/* Looks in /proc, which costs more than a small intent may. */
static bool
is_under_io(struct intent *w)
{
	if (!w->asked) {
		w->pins = cow__process_pins_memory();
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
	size_t step = cow__max(STEP, cow__round_up(t->bytes / STEPS, COW__HUGE));
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

static bool
target_spare(struct cow__tile *t, size_t at, size_t bytes, struct target *ret)
{
	if (!cow__spare_take(t, at, bytes, &ret->piece))
		return false;
	ret->at = cow__tile_start(ret->piece.pages) + ret->piece.offset;
	return true;
}

static bool
target_own(struct cow__tile *t, size_t at, size_t bytes, struct target *ret)
{
	if (!cow__spare_own(t, at, bytes))
		return false;
	ret->alias = cow__spare_alias(t, at, bytes);
	if (!ret->alias)
		return false;
	ret->piece = (struct cow__piece){ t, at, bytes };
	ret->at = cow__tile_start(ret->alias);
	/* Huge pages are better than small ones, or than pages here and there. */
	if (t->small || t->own_punched) {
		ret->fresh = cow__map_punch(ret->at, bytes) == 0;
	} else if (t->own_huge < at + bytes) {
		/* The program filled them, maybe faster than they were made huge. Behind
		 * them it has no pages. */
		cow__commit_at(ret->at, ret->at + cow__min(bytes, cow__extent_usable(t) - at));
		if (at <= t->own_huge)
			t->own_huge = at + bytes;
	}
	return true;
}

static int
target_new(size_t bytes, bool huge, struct target *ret)
{
	struct cow__tile *pages;
	size_t dirty;
	int r = cow__extent_new(bytes, huge ? COW__HUGE : 0,
	                        COW__EXTENT_MEMFD | COW__EXTENT_WHOLE |
	                                COW__EXTENT_PAGES,
	                        &pages, &dirty);

	if (r < 0)
		return r;
	if (pages->backing != COW__SHARED) {
		cow__extent_free(pages);
		return -ENOTSUP;
	}
	ret->piece = (struct cow__piece){ pages, 0, bytes };
	ret->at = cow__tile_start(pages);
	ret->fresh = dirty == 0;
	ret->made = true;
	return 0;
}

static int
target_for(struct cow__tile *t, uintptr_t start, size_t bytes, struct target *ret)
{
	size_t at = start - cow__tile_start(t);

	*ret = (struct target){ .made = false };
	if (target_spare(t, at, bytes, ret) || target_own(t, at, bytes, ret))
		return 0;
	return target_new(bytes, start % COW__HUGE == 0 && bytes >= COW__HUGE, ret);
}

/* Gives up what target_for() took, apart from the pieces of `t`. */
static void
target_end(struct cow__tile *t, struct target *to, bool used)
{
	struct cow__tile *pages = to->piece.pages;

	if (to->alias)
		cow__tile_inner_free(to->alias);
	if (to->made && !used) {
		cow__extent_free(pages);
	} else if (pages != t) {
		/* The pages have no mapping of their own that counts: only
		 * those who show them hold them. */
		if (to->made)
			cow__extent_detach(pages);
		cow__extent_unref_pages(pages);
	}
}

/* The pieces of `t`, with `piece` at `at`. Neighbours of one tile become one. */
static uint32_t
pieces_with(const struct cow__tile *t, size_t at, const struct cow__piece *piece,
            struct cow__piece *list)
{
	size_t end = at + piece->bytes, here = 0, offset, bytes;
	uint32_t n = 0;

	while (here < t->bytes) {
		struct cow__piece p = *piece;

		if (here != at) {
			p.pages = cow__view_source(t, cow__tile_start(t) + here,
			                           &offset, &bytes);
			p.offset = offset;
			p.bytes = here < at ? cow__min(bytes, at - here) : bytes;
		}
		here = here == at ? end : here + p.bytes;
		if (n && list[n - 1].pages == p.pages &&
		    list[n - 1].offset + list[n - 1].bytes == p.offset)
			list[n - 1].bytes += p.bytes;
		else
			list[n++] = p;
	}
	return n;
}

/* Keeps what the tile shows in [at, at + bytes) for later, if it may be written then. */
static void
keep_old(struct cow__tile *t, size_t at, size_t bytes)
{
	size_t here = 0;

	for (uint32_t i = 0; i < t->npieces; here += t->pieces[i++].bytes) {
		const struct cow__piece *p = &t->pieces[i];

		if (here == at && p->bytes == bytes && p->pages != t &&
		    p->pages->kind == COW__LIMBO &&
		    p->pages->backing == COW__SHARED && p->pages->segment->owner)
			cow__spare_keep(t, at, p);
	}
}

/* Maps the target in the place of [start, end), and notes it. */
static int
replace(struct cow__tile *t, uintptr_t start, uintptr_t end, const struct target *to)
{
	size_t at = start - cow__tile_start(t);
	struct cow__tile *pages = to->piece.pages;
	struct cow__piece *list = NULL;
	uint32_t cap = 0, n;
	int r = cow__mappings_left(4) ? 0 : -ENOMEM;

	if (r == 0)
		r = cow__part_thaws(t);
	if (r == 0)
		r = cow__array_reserve((void **)&list, &cap, sizeof(*list),
		                       t->npieces + 3);
	if (r < 0)
		return r;
	n = pieces_with(t, at, &to->piece, list);
	r = cow__map_shared(start, end - start, &pages->segment->file,
	                    cow__segment_offset(cow__tile_start(pages)) +
	                            to->piece.offset,
	                    false);
	if (r < 0 || (n == 1 && list[0].pages == t)) {
		cow__array_free(list, cap, sizeof(*list));
		list = NULL;
		n = cap = 0;
	}
	if (r < 0)
		return r;
	cow__commit_forget(t);
	keep_old(t, at, end - start);
	cow__view_change(t, list, n, cap);
	if (!t->npieces)
		t->lazy = t->own_punched = t->small = false;
	cow__part_thawed(t, start, end);
	cow__spare_rewritten(t);
	return 0;
}

/* Replaces the pages of [start, end). */
static int
renew(struct cow__tile *t, uintptr_t start, uintptr_t end, bool all, struct intent *w)
{
	size_t bytes = cow__min(end, cow__tile_start(t) + cow__extent_usable(t)) - start;
	struct target to;
	int r = target_for(t, start, end - start, &to);

	if (r < 0)
		return r;
	if (!all) {
		cow__bulk_copy((void *)to.at, (const void *)start, bytes, to.fresh);
		cow__stat_add(bytes_copied, bytes);
		w->copied += bytes;
	} else if (to.fresh) {
		cow__bulk_commit(to.at, bytes);
	}
	r = replace(t, start, end, &to);
	target_end(t, &to, r == 0);
	return r;
}

/* Nobody else reads the tile: the way back, in place. *at moves as far as it came. */
static int
thaw(struct cow__tile *t, uintptr_t *at, uintptr_t end, bool all)
{
	size_t copied, done = 0;
	int r = 0;

	if (all) {
		r = cow__thaw_discard(t, *at, end);
		*at = end;
	}
	while (r >= 0 && *at < end && done < STEP) {
		r = cow__thaw_step(t, at, end, SIZE_MAX, &copied);
		done += copied;
	}
	return r;
}

/* Works on the first part of [*at, end), which lies in the tile, and moves *at behind
 * it. */
static void
step(struct cow__tile *t, uintptr_t *at, uintptr_t end, struct intent *w)
{
	struct cow__census c = { 0, 0 };
	uintptr_t to, last = end, bytes_end = cow__tile_start(t) + cow__extent_usable(t);
	/* A tracked storage may have clones on this tile. */
	bool all = w->all && (!t->allocation || t->exposed);
	char tail[4096];
	size_t ntail = 0;
	int r = 0;

	/* The last page of a block comes with its last byte. The program may use what is
	 * behind that (cow_block_bytes()). */
	if (end >= cow__tile_start(t) + t->used && bytes_end - last <= sizeof(tail))
		end = cow__tile_end(t);
	to = next_part(t, at, end);
	if (*at == to || is_under_io(w)) {
		*at = end;
		return;
	}
	if (all && to == cow__tile_end(t) && last < bytes_end)
		memcpy(tail, (const void *)last, ntail = bytes_end - last);
	if (cow__exclusive(t, &c)) {
		r = thaw(t, at, to, all);
	} else {
		r = renew(t, *at, to, all, w);
		*at = to;
	}
	if (ntail)
		memcpy((void *)last, tail, ntail);
	if (r < 0) /* it stays as it is */
		*at = end;
}

/* The helper may be working on the tile at this moment. */
static bool
wait_for_helper(struct cow__tile **t, uintptr_t at)
{
	uint64_t until = cow__now() + BUSY_MOST_NS;
	uint32_t nothing = 0;

	while (*t && (*t)->kind == COW__LIVE && (*t)->busy) {
		if (cow__now() > until)
			return false;
		cow__commit_forget(*t);
		cow__engine_unlock();
		cow__wait(&nothing, 0, BUSY_NS);
		cow__engine_lock();
		*t = cow__tile_find(at);
	}
	return true;
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
		if (wait_for_helper(&t, start) && t && suitable(t))
			step(t, &start, cow__min(end, cow__tile_end(t)), &w);
		else
			start = t ? cow__tile_end(t) : end;
		cow__engine_unlock();
	}
	*copied += w.copied;
}

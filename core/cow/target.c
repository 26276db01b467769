/* SPDX-License-Identifier: MIT */
/*
 * Targets of a rewrite: see the header.
 */
#include "core/cow/target.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/cow/part.h"
#include "core/cow/thaw.h"
#include "core/cow/view.h"
#include "core/memory/apart.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "memfd/map.h"

static bool
target_spare(struct cow__tile *t, size_t at, size_t bytes, struct cow__target *ret)
{
	if (!cow__spare_take(t, at, bytes, &ret->piece))
		return false;
	ret->at = cow__tile_start(ret->piece.pages) + ret->piece.offset;
	return true;
}

static bool
target_own(struct cow__tile *t, size_t at, size_t bytes, struct cow__target *ret)
{
	struct cow__rewritten *r;

	if (!cow__spare_own(t, at, bytes))
		return false;
	ret->alias = cow__spare_alias(t, at, bytes);
	if (!ret->alias)
		return false;
	ret->piece = (struct cow__piece){ t, at, bytes };
	ret->at = cow__tile_start(ret->alias);
	r = cow__rewritten_of(t);
	/* Huge pages are better than small ones, or than pages here and there. */
	ret->punch = t->own.small_pages || !r || r->own_punched;
	if (!ret->punch && r->own_huge < at + bytes) {
		/* The program filled them, maybe faster than they were made huge. Behind
		 * them it has no pages. */
		ret->commit = cow__min(bytes, cow__extent_usable(t) - at);
		if (at <= r->own_huge)
			r->own_huge = at + bytes;
	}
	return true;
}

void
cow__target_prepare(struct cow__target *to)
{
	if (to->punch)
		to->fresh = cow__map_punch(to->at, to->piece.bytes) == 0;
	else if (to->commit)
		cow__commit_at(to->at, to->at + to->commit);
}

int
cow__target_new(size_t bytes, bool huge, struct cow__target *ret)
{
	struct cow__tile *pages;
	size_t dirty;
	int r = cow__extent_new(bytes, huge ? COW__HUGE : 0,
	                        COW__EXTENT_MEMFD | COW__EXTENT_WHOLE |
	                                COW__EXTENT_PAGES,
	                        &pages, &dirty);

	if (r < 0)
		return r;
	if (pages->map.backing != COW__SHARED) {
		cow__extent_free(pages);
		return -ENOTSUP;
	}
	ret->piece = (struct cow__piece){ pages, 0, bytes };
	ret->at = cow__tile_start(pages);
	ret->fresh = dirty == 0;
	ret->made = true;
	return 0;
}

int
cow__target_for(struct cow__tile *t, uintptr_t start, size_t bytes, struct cow__target *ret)
{
	size_t at = start - cow__tile_start(t);

	*ret = (struct cow__target){ .made = false };
	if (target_spare(t, at, bytes, ret) || target_own(t, at, bytes, ret))
		return 0;
	cow__spares_useless(t, at, bytes);
	return cow__target_new(bytes, start % COW__HUGE == 0 && bytes >= COW__HUGE, ret);
}

void
cow__target_end(struct cow__tile *t, struct cow__target *to, bool used)
{
	struct cow__tile *pages = to->piece.pages;

	if (to->alias)
		cow__tile_inner_free(to->alias);
	if (to->made && !used) {
		cow__extent_free(pages);
	} else if (pages != t) {
		/* The program reads them at the tile's address. Their entries here would count
		 * twice in RSS. */
		if (used && !to->alias)
			(void)cow__map_zap(to->at, to->piece.bytes);
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
			p.pages = cow__part_source(t, cow__tile_start(t) + here,
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

	for (uint32_t i = 0; i < t->map.npieces; here += t->map.pieces[i++].bytes) {
		const struct cow__piece *p = &t->map.pieces[i];

		if (here == at && p->bytes == bytes && p->pages != t &&
		    p->pages->kind == COW__LIMBO &&
		    p->pages->map.backing == COW__SHARED && p->pages->own.segment->owner)
			cow__spare_keep(t, at, p);
	}
}

int
cow__target_show(struct cow__tile *t, uintptr_t start, uintptr_t end, const struct cow__target *to)
{
	size_t at = start - cow__tile_start(t);
	struct cow__tile *pages = to->piece.pages;
	struct cow__piece *list = NULL;
	uint32_t cap = 0, n;
	int r = cow__mappings_left(4) ? 0 : -ENOMEM;

	/* A tile may have become longer meanwhile (cow__freeze_close_gap()). */
	if (to->piece.bytes != end - start)
		r = -EINVAL;

	if (r == 0)
		r = cow__thaw_part_room(t);
	if (r == 0)
		r = cow__array_reserve((void **)&list, &cap, sizeof(*list),
		                       t->map.npieces + 3);
	if (r < 0)
		return r;
	n = pieces_with(t, at, &to->piece, list);
	r = cow__map_shared(start, end - start, &pages->own.segment->file,
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
	if (!t->map.npieces) {
		t->map.lazy = t->own.small_pages = false;
		if (t->map.rewritten)
			t->map.rewritten->own_punched = false;
	}
	cow__thaw_part_note(t, start, end);
	cow__spare_rewritten(t);
	return 0;
}

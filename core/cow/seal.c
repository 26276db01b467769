/* SPDX-License-Identifier: MIT */
/*
 * Sealing: see the header.
 */
#include "core/cow/seal.h"
#include "core/base/base.h"
#include "core/cow/freeze.h"
#include "core/cow/old_tables.h"
#include "core/cow/thaw.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/own_segment.h"
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "memfd/memfd.h"

/* The tile whose pages this one shows, if it shows all of them and no others; or
 * NULL. */
static struct cow__tile *
shown_tile(const struct cow__tile *t)
{
	const struct cow__piece *p = t->map.pieces;

	if (!t->map.npieces)
		return t->own.segment ? (struct cow__tile *)t : NULL;
	return t->map.npieces == 1 && !p->offset && p->bytes == t->bytes &&
	                       p->pages->bytes == t->bytes && p->pages->own.segment
	               ? p->pages
	               : NULL;
}

bool
cow__seal_may(const struct cow__tile *t)
{
	const struct cow__tile *pages = shown_tile(t);

	return pages && pages->own.segment->single;
}

static bool
alone_in_file(const struct cow__tile *t)
{
	return !(t->prev && t->prev->own.segment == t->own.segment) &&
	       !(t->next && t->next->own.segment == t->own.segment);
}

/* This can't be undone: this process writes these file pages never again. */
static int
seal_file(struct cow__tile *t, size_t bytes)
{
	struct cow__segment *s = t->own.segment;
	int r = 0;

	if (!s->single || !s->owner)
		return -ENOTSUP;
	/* A free tile beside it is mapped for writing, too, and stays so. */
	if (!alone_in_file(t))
		return -ENOTSUP;
	if (t->map.backing == COW__SHARED)
		r = t->kind == COW__LIVE ? cow__freeze(t) : -ENOTSUP;
	if (r < 0)
		return r;
	/* Page tables that were moved away are a mapping for writing. */
	cow__old_tables_release();
	r = cow__memfd_seal(&s->file, COW__SEALED_WRITE);
	if (r < 0)
		return r;
	s->owner = false;
	cow__commit_forget_young(t); /* the helper can't mend it any more */
	t->own.held = COW__HELD_UNCOUNTED;
	if (cow__memfd_holds_only(
	            &s->file, cow__segment_offset(cow__tile_start(t)), bytes)) {
		s->sealed = cow__tile_start(t);
		s->sealed_bytes = bytes;
	}
	return 0;
}

/* The tile whose file can be sealed for this one, or NULL. */
static struct cow__tile *
sealable_tile(const struct cow__tile *t, size_t bytes)
{
	struct cow__tile *pages = shown_tile(t);

	if (!pages || !cow__can(t, COW__TO_SEAL) || bytes > t->bytes ||
	    t->bytes - bytes >= cow__page)
		return NULL;
	/* Another tile's pages must not be written in place meanwhile, nor lie in
	 * pieces. */
	if (pages != t && (pages->map.nkept || pages->map.npieces || pages->map.slow ||
	                   pages->map.overlay || pages->own.bound))
		return NULL;
	/* Pages that were written since it was frozen are in no file. */
	if (t->map.backing == COW__PRIVATE && cow__copied_bytes(t) != 0)
		return NULL;
	return pages;
}

/* A neighbour in the file may have been empty when it was sealed. Then its descriptor would
 * show the other block's bytes, too. */
static bool
is_sealed(const struct cow__tile *pages, size_t bytes)
{
	return pages->own.segment->sealed == cow__tile_start(pages) &&
	       pages->own.segment->sealed_bytes == bytes;
}

enum cow__seal_ready
cow__seal_ready(const struct cow__tile *t, size_t bytes)
{
	const struct cow__tile *pages = sealable_tile(t, bytes);

	if (!pages)
		return COW__SEAL_NOT;
	if (pages->own.segment->sealed)
		return is_sealed(pages, bytes) ? COW__SEAL_DONE : COW__SEAL_NOT;
	return pages->own.segment->single && pages->own.segment->owner && alone_in_file(pages)
	               ? COW__SEAL_READY
	               : COW__SEAL_NOT;
}

int
cow__seal(struct cow__tile *t, size_t bytes, struct cow__descriptor *ret,
          uint64_t *ret_offset)
{
	struct cow__tile *pages = sealable_tile(t, bytes);
	int r = 0;

	if (!pages)
		return -ENOTSUP;
	if (!pages->own.segment->sealed)
		r = seal_file(pages, bytes);
	if (r == 0 && !is_sealed(pages, bytes))
		r = -ENOTSUP;
	if (r == 0)
		r = cow__descriptor_dup(&pages->own.segment->file, ret);
	if (r == 0)
		*ret_offset = cow__segment_offset(cow__tile_start(pages));
	return r;
}

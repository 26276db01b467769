/* SPDX-License-Identifier: MIT */
/*
 * Aliases in place: see the header.
 */
#include "core/cow/alias.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/old_tables.h"
#include "core/cow/seal.h"
#include "core/cow/sparse.h"
#include "core/memory/bare.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/holders.h"
#include "core/memory/own_segment.h"
#include "core/memory/segment.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/memfd.h"

/* Does the tile already have a file for its pages alone, mapped shared? */
static bool
has_own_file(const struct cow__tile *t)
{
	const struct cow__segment *s = t->own.segment;

	return s && s->single && s->owner && s->tiles == 1 &&
	       t->map.backing == COW__SHARED && !t->own.held && t->own.refs == 1 &&
	       cow__memfd_holds_only(&s->file,
	                             cow__segment_offset(cow__tile_start(t)),
	                             t->bytes);
}

/* Does another mapping or process read the tile's own pages? */
static bool
read_elsewhere(const struct cow__tile *t)
{
	struct cow__census c = { .asked = 0 };

	if (!t->own.segment) /* anonymous, or a view of others' */
		return false;
	return t->map.npieces || t->own.refs > 1 || !t->own.segment->owner ||
	       !cow__holders_alone(t, &c);
}

/* The bytes, in pages of the new file. */
static int
copy_to_file(struct cow__tile *t, struct cow__segment *s)
{
	uint64_t offset = cow__segment_offset(cow__tile_start(t));
	uintptr_t at;
	int r = cow__map_reserve(t->bytes, COW__HUGE, &at);

	if (r < 0)
		return r;
	r = cow__map_shared(at, t->bytes, &s->file, offset, false);
	if (r == 0)
		cow__stat_add(bytes_copied,
		              cow__sparse_fill_locked((char *)at, t, 0,
		                                      cow__extent_usable(t), true));
	(void)cow__map_release(at, t->bytes);
	return r;
}

static void
free_rest(struct cow__tile *rest, struct cow__segment *old)
{
	if (rest && rest->bytes < COW__HUGE)
		cow__bare_make(rest, old);
}

/* Frees the pages that the tile leaves behind in a file with other blocks. The
 * rests of the last 2 MiB beside the tile are freed, too: they would lie alone
 * between addresses that nothing else fits in. This also holds for rests of
 * anonymous memory (`old` is NULL). */
static void
free_left_pages(const struct cow__tile *t, struct cow__segment *old)
{
	free_rest(t->prev, old);
	free_rest(t->next, old);
	if (old)
		cow__segment_leave(old, cow__tile_start(t), t->bytes);
}

static int
move_to_file(struct cow__tile *t)
{
	struct cow__segment *s, *old = t->own.segment;
	uintptr_t start = cow__tile_start(t);
	struct cow__census c = { .asked = 0 };
	int r = cow__segment_single(cow__own_segments_most_asked(), &s);

	if (r < 0)
		return r;
	cow__spares_drop(t);
	r = copy_to_file(t, s);
	if (r == 0)
		r = cow__map_shared(start, t->bytes, &s->file,
		                    cow__segment_offset(start), true);
	if (r < 0)
		return r; /* nothing refers to it: the next sweep closes it */
	cow__commit_forget(t);
	cow__extent_remapped(t);
	if (old) {
		(void)cow__holders_drop(t, &c, NULL);
		free_left_pages(t, old);
		cow__segment_unref(old);
	} else if (t->map.backing == COW__ANON) {
		free_left_pages(t, NULL);
	}
	cow__tile_change_begin(t);
	t->own.segment = s;
	cow__segment_ref(s);
	t->own.refs = 1;
	t->own.word = 0;
	t->own.shadow = t->own.hollow = 0;
	cow__tile_set_backing(t, COW__SHARED);
	cow__tile_change_end(t);
	return 0;
}

int
cow__alias_in_place(struct cow__tile *t)
{
	int r = 0;

	if (cow__tile_is_common(t))
		return 0;
	if (!cow__can(t, COW__TO_ALIAS))
		return -EOPNOTSUPP;
	if (t->work || read_elsewhere(t))
		return -EBUSY;
	if (!has_own_file(t))
		r = move_to_file(t);
	else
		r = cow__map_inherit(cow__tile_start(t), t->bytes, true);
	if (r < 0)
		return r;
	cow__old_tables_release();
	cow__commit_forget(t);
	t->own.segment->owner = false;
	t->own.held = COW__HELD_UNCOUNTED;
	t->own.outside = COW__OUTSIDE_PROCESSES;
	return 0;
}

int
cow__alias_file(const struct cow__tile *t, struct cow__descriptor *ret,
                uint64_t *ret_offset)
{
	int r = !cow__tile_is_common(t) ? -ENOTSUP
	                   : cow__descriptor_dup(&t->own.segment->file, ret);

	if (r == 0)
		*ret_offset = cow__segment_offset(cow__tile_start(t));
	return r;
}

bool
cow__alias_at(uint64_t dev, uint64_t ino, uint64_t offset, uintptr_t *ret)
{
	const struct cow__tile *t;

	if (offset >= cow__engine.end - cow__engine.start)
		return false;
	/* A tile lies as far from the start of the window as in its file. */
	t = cow__tile_find(cow__engine.start + offset);
	if (!t || t->kind != COW__LIVE || !cow__tile_is_common(t) ||
	    cow__segment_offset(cow__tile_start(t)) != offset ||
	    t->own.segment->file.dev != dev || t->own.segment->file.ino != ino)
		return false;
	*ret = cow__tile_start(t);
	return true;
}

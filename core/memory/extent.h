/* SPDX-License-Identifier: MIT */
/*
 * Extents: live tiles, from allocation to recycling
 *
 * But for cow__extent_make(), the engine is locked when these are called, and stays locked.
 */
#ifndef COW_CORE_MEMORY_EXTENT_H
#define COW_CORE_MEMORY_EXTENT_H

#include "core/base/base.h"
#include "core/memory/ends.h"
#include "core/memory/holders.h"
#include "core/memory/place.h"

/*
 * Allocates, from start to end: enters the engine, makes a live tile of at least `bytes` bytes for
 * `use`, or for the allocation `a`, and makes the huge pages that it is owed. Its first *ret_dirty
 * bytes may be anything, the rest reads as zero. -ENOMEM, and what the kernel says. Engine not
 * locked. Takes microseconds, and up to 0.1 s for huge pages of a large block, without the lock.
 */
int cow__extent_make(size_t bytes, size_t align, unsigned flags, enum cow__use use,
                     struct cow__allocation *a, struct cow__tile **ret, size_t *ret_dirty);

/* The same with the engine locked, and for nobody yet. It is COW__EXTENT_WHOLE, or has less than
 * 2 MiB: nothing is owed to it. */
int cow__extent_new(size_t bytes, size_t align, unsigned flags,
                    struct cow__tile **ret, size_t *ret_dirty);

/* Makes live tiles, one behind the other, of free memory at `at`: `bytes` bytes, a multiple of
 * the page. *ret_dirty: so many bytes from the start on may be anything. -ENOMEM: it is not all
 * free, and nothing changed. */
int cow__extent_new_at(uintptr_t at, size_t bytes, size_t *ret_dirty);

/* Makes a live tile of one that was taken off the free lists. Its backing
 * stays. */
void cow__extent_live(struct cow__tile *t, size_t used);

/* Live tiles have so many bytes more, which nobody asked for. */
void cow__extent_counts(size_t bytes);

/* Puts a live tile into limbo: only views read it from now on. Its own mapping
 * ends. The caller drops the reference of that mapping. */
void cow__extent_detach(struct cow__tile *t);

/* Puts a tile back on the free lists. No mapping here reads its pages. It becomes
 * warm if this process may use the pages again. `alone`: no other process has
 * them. */
void cow__recycle(struct cow__tile *t, bool alone);

/* Resizes a live tile in place. False: that is not possible, and nothing
 * changed. */
bool cow__extent_resize(struct cow__tile *t, size_t bytes);

/* How many bytes the program may use. */
static inline size_t
cow__extent_usable(const struct cow__tile *t)
{
	return cow__min(cow__round_up(cow__max(t->map.used, 1), cow__page), t->bytes);
}

/* Ends a part of a live tile. What is before and behind it lives on, each as a
 * tile of its own. False if that is not possible. */
bool cow__extent_cut(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Releases the tiles in limbo that no other process holds any more. Returns how
 * many still wait. */
unsigned cow__extent_poll_limbo(void);

/* In a forked child that did not inherit a live tile: moves this copy of its
 * bytes, which cow__map_meta() made, to its address. */
int cow__extent_replace(struct cow__tile *t, void *copy);

/* In a forked child: makes addresses free again that were not inherited. */
void cow__extents_child(void);

/* Another mapping has replaced all of the tile's: forgets the pieces and private
 * parts that were mapped there. The caller sets what is there. Engine locked. */
void cow__extent_remapped(struct cow__tile *t);

/* The helper's job: polls the tiles in limbo, and closes segments that have
 * ended. */
uint64_t cow__limbo_job(uint64_t now);

/* This process holds the tile's pages no longer. */
void cow__extent_leave_segment(struct cow__tile *t);

/* In a forked child: it has nothing in limbo. */
void cow__limbo_child(void);

#endif

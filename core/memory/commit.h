/* SPDX-License-Identifier: MIT */
/*
 * Committing fresh memory ahead of the program, in huge pages
 *
 * A page fault in a memfd brings 4 KiB and costs about 2 us; a collapse brings
 * 2 MiB and costs about 100 us: eight times less for the same bytes. But a
 * collapse commits memory, and a program may never touch what it asked for. So
 * memory is committed ahead only in proportion to what was touched, by a share
 * that depends on what the program did with memory so far (core/memory/fill_history.h):
 *
 *      0         touched          committed                         bytes
 *      |------------|--------ahead---|- - - - - - - not there - - - -|
 *                 writer ->
 *
 *      all that is ahead, of all tiles  <=  a few MiB + a share of touched
 *
 * "Touched" is known because a collapse here leaves the program's page table
 * empty: the first touch of a huge page enters it, and pagemap shows that.
 * Young tiles (fresh, still being filled from the start) are looked at when the
 * program allocates, and by the helper thread if enough of them is missing.
 *
 * Where the program was faster, small pages came. The helper makes huge ones
 * of them afterwards (it *mends*): they would be dear at every fork.
 *
 * Where a thread has a NUMA policy of its own, nothing is committed ahead: the
 * helper's first touch, or the allocating thread's, would place the page by
 * theirs. Mending leaves pages on the node where most of them are.
 */
#ifndef COW_CORE_MEMORY_COMMIT_H
#define COW_CORE_MEMORY_COMMIT_H

#include "core/memory/tile.h"

/* A fresh live tile. `whole`: its user commits it himself, see below. */
void cow__commit_fresh(struct cow__tile *t, bool whole);

/* A live tile that has pages up to `there`, and none behind. */
void cow__commit_from(struct cow__tile *t, size_t there);

/* How far a live tile may have pages. */
size_t cow__commit_reached(const struct cow__tile *t);

/* A live tile of warm memory that has small pages: they are mended. */
void cow__commit_recycled(struct cow__tile *t);

/* A fresh, mapped huge page's worth of space that extents of `bytes` bytes, all
 * smaller, will be cut from. It is committed if they fill it well, and if the
 * ones before were touched. */
void cow__commit_unit(uintptr_t start, size_t bytes);

/* It is freed or cut: no more of anything. Notes that it has small pages. */
void cow__commit_forget(struct cow__tile *t);

/* It is frozen: nothing is committed ahead any more, mending goes on. */
void cow__commit_frozen(struct cow__tile *t);

/* The program changes its mapping: no more commits, what was touched stays. */
void cow__commit_forget_young(struct cow__tile *t);

/* One round over young tiles. Unlocks the engine while it collapses. True if
 * anything moved. For the helper. */
bool cow__commit_step(uint64_t now);

/* Is there any young tile? */
bool cow__commit_pending(void);

/*
 * The caller is about to write all of [offset, offset + bytes) of memory that
 * nobody else sees yet or that it may write: makes it huge pages. Best effort.
 * Without the lock if nobody can free the tile.
 */
void cow__commit_range(const struct cow__tile *t, size_t offset, size_t bytes);

/* Copies into such memory, committing piece by piece, so that the zeroed page
 * is still in the cache when it is written. */
void cow__commit_copy(const struct cow__tile *to, size_t offset,
                      const void *from, size_t bytes, bool fresh);

void cow__commit_child(void);

/* The helper's job. */
uint64_t cow__commit_job(uint64_t now);

#endif

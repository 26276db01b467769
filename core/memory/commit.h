/* SPDX-License-Identifier: MIT */
/*
 * Committing fresh memory ahead of the program, in huge pages
 *
 * A page fault in a memfd brings 4 KiB and costs about 2 us. A collapse brings
 * 2 MiB and costs about 100 us: eight times less for the same bytes.
 *
 * But a collapse commits memory, and a program may never touch what it asked for.
 * So memory is committed ahead only in proportion to what was touched. The share
 * depends on how the program used its memory so far (core/policy/fill.h):
 *
 *       0         touched          committed                         bytes
 *       |------------|--------ahead---|- - - - - - - not there - - - -|
 *                  writer ->
 *
 *       all that is ahead, of all tiles  <=  a few MiB + a share of touched
 *
 * A program that fills all blocks of a size gets more at once: as much as makes its
 * memory what it has once touched.
 *
 * A collapse here leaves the page table of the program empty. The first touch of
 * a huge page enters it there, and pagemap shows that. That is how the engine
 * knows what was touched. A young tile is fresh, and the program still fills it
 * from its start. The engine looks at young tiles when the program allocates. The
 * helper thread looks as well, if enough is missing.
 *
 * Where the program was faster than the helper, it got small pages. They are mended
 * afterwards (core/memory/mend.h).
 *
 * Where a thread has a NUMA policy of its own, nothing is committed ahead. The
 * first touch by the helper, or by the allocating thread, would place the page by
 * the policy of that thread. Mending leaves pages on the node where most of them
 * are.
 */
#ifndef COW_CORE_MEMORY_COMMIT_H
#define COW_CORE_MEMORY_COMMIT_H

#include "core/memory/tile.h"

/* A new live tile that has pages up to `there`, and none behind. Huge pages may be owed
 * to it. */
void cow__commit_fresh(struct cow__tile *t, size_t there);

/* Makes the huge pages that are owed to a new tile (COW__WORK_OWED). Engine not locked. That may
 * take 0.1 s, in which other threads use the engine, so the tile is finished. But no other thread
 * knows its address yet. */
void cow__commit_owed(struct cow__tile *t);

/* The same as cow__commit_fresh() for a tile that grew. Nothing is owed to it. */
void cow__commit_from(struct cow__tile *t, size_t there);

/* How far a live tile may have pages. Notes what was touched of it. */
size_t cow__commit_reached(struct cow__tile *t);

/* A live tile of warm memory that has small pages: they are mended. */
void cow__commit_recycled(struct cow__tile *t);

/* A tile is freed or cut: no more commits or mending. Notes that it has small
 * pages. */
void cow__commit_forget(struct cow__tile *t);

/* Waits until the helper has left the live tile at `at`, 50 ms at most, and keeps it from coming
 * back. Unlocks the engine meanwhile: *t is the tile that is there afterwards, or NULL. */
bool cow__commit_wait(struct cow__tile **t, uintptr_t at);

/* Nothing is committed ahead any more, mending goes on: the tile is frozen, or is read around its
 * holes. What is read counts as touched, so the helper would fill one hole after the other. */
void cow__commit_stop(struct cow__tile *t);

/* The program changes the mapping: no more commits. What is known to be touched
 * stays. */
void cow__commit_forget_young(struct cow__tile *t);

void cow__commit_child(void);

/* The helper's job. */
uint64_t cow__commit_job(uint64_t now);

#endif

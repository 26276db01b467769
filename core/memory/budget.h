/* SPDX-License-Identifier: MIT */
/*
 * Budget: how much memory may be committed ahead of the program
 *
 *   ahead     committed, and not known to be touched, of all tiles
 *   touched   of all live tiles; the most that it ever was is remembered
 *
 * core/memory/commit.h says why. Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_BUDGET_H
#define COW_CORE_MEMORY_BUDGET_H

#include "core/memory/tile.h"

/* How much more may be committed for an extent of `bytes` bytes: `least` and a share
 * of what was touched. Small pages cost more than to commit all at once. So does a
 * helper that comes after the writer. */
size_t cow__budget_room(size_t least, size_t bytes);

/* A program that fills extents of this size gets memory back at once, up to the peak of memory
 * that it had touched before. */
size_t cow__budget_room_again(const struct cow__tile *t);

/* Of an extent of `bytes` bytes, `filled` bytes were committed and then touched, and `wasted`
 * were not touched (core/policy/fill.h). */
void cow__budget_learn(size_t bytes, size_t filled, size_t wasted);

/* So many bytes more are ahead, or fewer. */
void cow__budget_ahead(size_t bytes);
void cow__budget_ahead_ends(size_t bytes);

/* So many bytes more of live tiles are touched, or fewer. */
void cow__budget_touched(size_t bytes);
void cow__budget_touched_ends(size_t bytes);

/* In a forked child: it has nothing ahead, and has itself touched what there is. */
void cow__budget_child(void);

#endif

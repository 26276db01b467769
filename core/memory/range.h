/* SPDX-License-Identifier: MIT */
/*
 * Ranges of the window, part by part
 *
 * What core/program/advise.c and core/program/overmap.c share. A range that a program names may
 * cover several blocks, holes in them, and mappings of its own.
 */
#ifndef COW_CORE_MEMORY_RANGE_H
#define COW_CORE_MEMORY_RANGE_H

#include "core/memory/tile.h"

/* `own`: the mapping is the program's, or anonymous. */
typedef int cow__range_fn(struct cow__tile *t, uintptr_t start, uintptr_t end,
                          bool own, int value);

/* What a call does where nothing is mapped: it fails, at once or at the end, or
 * it has nothing to do there (in a block; anywhere). */
enum cow__holes {
	COW__HOLES_STOP,
	COW__HOLES_SKIP,
	COW__HOLES_FINE,
	COW__HOLES_ANYWHERE,
};

/* Calls `fn` for each part of the range that is one thing. */
int cow__range_each(uintptr_t addr, size_t bytes, cow__range_fn *fn, int value,
                    enum cow__holes holes);

/* The same under the engine's lock; both ends at pages. */
int cow__range_each_locked(uintptr_t addr, uintptr_t end, cow__range_fn *fn,
                           int value, enum cow__holes holes);

/* From now on the tile's mapping is not made anew, nor its pages shared. */
int cow__range_leave_alone(struct cow__tile *t);

/* The mapping has something that the next block there must not inherit. */
void cow__range_traces(struct cow__tile *t);

#endif

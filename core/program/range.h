/* SPDX-License-Identifier: MIT */
/*
 * Ranges of the window, part by part
 *
 * core/program/advise.c and core/program/overmap.c share this. A range that a
 * program names may cover several blocks, holes in them, and mappings of its own.
 */
#ifndef COW_CORE_PROGRAM_RANGE_H
#define COW_CORE_PROGRAM_RANGE_H

#include "core/memory/tile.h"

/* `own`: the mapping is the program's, or anonymous. */
typedef int cow__range_fn(struct cow__tile *t, uintptr_t start, uintptr_t end,
                          bool own, int value);

/* What a call does where nothing is mapped. */
enum cow__holes {
	COW__HOLES_STOP,     /* it fails at once */
	COW__HOLES_SKIP,     /* it goes on, and fails at the end */
	COW__HOLES_FINE,     /* it has nothing to do there, if a block has the hole */
	COW__HOLES_ANYWHERE, /* it has nothing to do there, wherever the hole is */
};

/* Calls `fn` for each part of the range that is of one kind and in one tile. */
int cow__range_each(uintptr_t addr, size_t bytes, cow__range_fn *fn, int value,
                    enum cow__holes holes);

/* The same with the engine locked; both ends lie at pages. */
int cow__range_each_locked(uintptr_t addr, uintptr_t end, cow__range_fn *fn,
                           int value, enum cow__holes holes);

/* Ends [start, end) of a tile made by cow__mapping_new(), if that can be cut
 * out or is all of the tile. True: it was ended, and `t` may be gone. Engine
 * locked. */
bool cow__range_cut(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* A part of the tile is about to become anonymous memory or a hole. Freezes the
 * tile, unless it is anonymous or common, or a device may have its pages. 0 or -errno. */
int cow__range_prepare(struct cow__tile *t);

/* The tile's mapping is not made anew from now on, nor are its pages shared.
 * Prepares it as above. 0 or -errno. */
int cow__range_leave_alone(struct cow__tile *t);

/* Parts of the tile are the program's own for good: it never thaws. */
void cow__range_lasts(struct cow__tile *t);

/* A cow__range_fn: the kernel is about to move the range or to watch it (core/program/advise.h,
 * cow__own()), and `why`. */
int cow__range_own(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int why);

/* Gives back the file pages of the range that are the engine's own and that nobody else reads:
 * other pages are shown there now. 0, also where others read them, or -errno: they stay. */
int cow__range_give_back(const struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Takes [start, end), the engine's own, out of the file, into private copies at the same
 * address, which stay for good. No write of another thread is lost. What no relative reads of
 * the file is given back. If a device may have the pages, or this fails, it is put off. */
int cow__withhold(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Before a fork that freezes, since no device has pages: does what was put off. -errno: some
 * of it is in files still, so the child may map none. */
int cow__withhold_rest(void);

/* The mapping has something that the next block there must not inherit: it is
 * mapped anew before it is used again. */
void cow__range_traces(struct cow__tile *t);

#endif

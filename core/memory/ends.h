/* SPDX-License-Identifier: MIT */
/*
 * The end of extents, for what works on them
 *
 * A thread may work on a busy tile without the lock, while the program frees the tile. Then that
 * thread ends it. But the end asks all who may work on a tile, or keep its pages, to let go. So
 * it lies above them, in recycle.c, and they know these two functions alone.
 *
 * Engine locked.
 */
#ifndef COW_CORE_MEMORY_ENDS_H
#define COW_CORE_MEMORY_ENDS_H

#include "core/memory/tile.h"

/* The program's mapping ends. What views or other processes still read stays in
 * limbo until they are done. The rest becomes warm. Can't fail. */
void cow__extent_free(struct cow__tile *t);

/* One mapping less reads the pages of `t`. After the last one a tile in limbo is
 * released. */
void cow__extent_unref_pages(struct cow__tile *t);

#endif

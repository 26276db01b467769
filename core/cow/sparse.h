/* SPDX-License-Identifier: MIT */
/*
 * Memory that was never touched
 *
 * A page that nobody wrote has no memory: it is a hole in the file. To read it through a
 * shared mapping makes a page there, and to copy its zeros makes another one in the copy. A
 * storage of 16 GiB with one written page would take 32 GiB by that. So copies ask first where the
 * source has memory, and leave the holes alone.
 */
#ifndef COW_CORE_COW_SPARSE_H
#define COW_CORE_COW_SPARSE_H

#include "core/base/base.h"
#include "core/memory/tile.h"

/* The next run of bytes of a live tile, from `at` on and before `end`, that have memory: 1.
 * 0: the rest reads as zero. -errno: that can't be known. Writes that other threads begin
 * meanwhile may be missed. Engine locked. */
int cow__sparse_next_locked(struct cow__tile *t, size_t at, size_t end, size_t *ret_start,
                            size_t *ret_end);

/* The same, for a caller without the lock. */
int cow__sparse_next(struct cow__tile *t, size_t at, size_t end, size_t *ret_start,
                     size_t *ret_end);

/* Copies [at, end) of a tile to `to`, memory that reads as zero. `fresh`: it is mapped
 * shared and has no pages yet. Returns how many bytes were copied. Engine locked. */
size_t cow__sparse_fill_locked(char *to, struct cow__tile *t, size_t at, size_t end,
                               bool fresh);

/* Sets [at, end) of a tile to zero. What has no memory gets none. */
void cow__sparse_clear(struct cow__tile *t, size_t at, size_t end);

/* Copies the first `bytes` bytes of a tile to another one, which is fresh but for its first
 * `dirty` bytes. */
void cow__sparse_copy(struct cow__tile *to, struct cow__tile *from, size_t bytes,
                      size_t dirty);

#endif

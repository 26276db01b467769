/* SPDX-License-Identifier: MIT */
/*
 * Committing units: the ranges of 2 MiB in which extents end (core/memory/commit.h)
 *
 * Such a unit belongs to several extents, and so to none. It is committed when the first of
 * them is made, if the program has filled the memory before it. At most two units are ahead of the
 * program. A unit of which the program then leaves an eighth empty costs it the next 16.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_COMMIT_UNIT_H
#define COW_CORE_MEMORY_COMMIT_UNIT_H

#include "core/memory/tile.h"

/* An extent of `bytes` bytes will be cut from the start of a cold tile with a segment. The
 * unit in which it ends is committed, if all of it is free and the above holds. */
void cow__commit_unit(const struct cow__tile *t, size_t bytes);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Where a new extent is found
 *
 * Warm if possible, else in part warm, else cold (mapped, no pages), else bare
 * (address space alone). Fresh extents of 2 MiB and more start at a 2 MiB boundary
 * of address and file, so that huge pages fit. Bare space is mapped in multiples of
 * 2 MiB. What an extent leaves of the last one is cold and serves small extents.
 *
 * The engine is locked when these are called, and stays locked.
 */
#ifndef COW_CORE_MEMORY_PLACE_H
#define COW_CORE_MEMORY_PLACE_H

#include "core/memory/tile.h"

/* Takes `bytes` bytes of free memory off the lists. `flags`: enum
 * cow__extent_flags. The first *ret_dirty bytes may be anything, the rest reads as
 * zero. -ENOMEM, and what the kernel says. */
int cow__place_take(size_t bytes, size_t align, bool anon, unsigned flags,
                    struct cow__tile **ret, size_t *ret_dirty);

/* Takes free memory at `at`, at most `bytes` bytes: as much as lies there alike. *ret_dirty as
 * above. -ENOMEM: what is there is not free. */
int cow__place_at(uintptr_t at, size_t bytes, bool anon, struct cow__tile **ret, size_t *ret_dirty);

/* Would cow__place_take() find warm memory of a segment, all of it with pages? */
bool cow__place_has_warm(size_t bytes, size_t align, unsigned flags);

/* Sees to it that `bytes` bytes of free memory lie behind a tile, mapped as it is.
 * False: there is other memory. */
bool cow__place_behind(struct cow__tile *t, size_t bytes);

#endif

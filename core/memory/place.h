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

/* What is wanted of an extent. */
enum cow__extent_flags {
	COW__EXTENT_MEMFD = 1 << 0,  /* not anonymous, whatever the policy */
	COW__EXTENT_STRICT = 1 << 1, /* commit now */
	COW__EXTENT_ROOM = 1 << 2,   /* leave address space to grow behind it */
	COW__EXTENT_WHOLE = 1 << 3,  /* all of it will be written at once */
	COW__EXTENT_MAPPING = 1 << 4, /* in the half of core/program/mapping.h */
	COW__EXTENT_PAGES = 1 << 5,  /* pages for another tile: no segment of its own */
	COW__EXTENT_APART = 1 << 6,  /* in a file of its own, if there may be one more */
	COW__EXTENT_ZEROED = 1 << 7, /* what is only read shall take no memory */
};

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

/* SPDX-License-Identifier: MIT */
/*
 * Copies in bulk: into fresh huge pages, and by all processors where the caller says so
 *
 * The kernel clears a huge page before anybody may write it. So a copy into fresh memory
 * commits a few huge pages and writes them at once, while they are in the cache. Memory that
 * is there is written past the caches, from 4 MiB on (core/base/stream.h). Large
 * copies are divided among the threads of core/memory/workers.h. cow_threads_set() says
 * how many they are.
 *
 * Needs no lock, but may be called with the engine locked.
 */
#ifndef COW_CORE_MEMORY_BULK_H
#define COW_CORE_MEMORY_BULK_H

#include "core/memory/tile.h"

/* Copies, by all processors. `fresh`: `to` is mapped shared and has no pages yet. The threads
 * stay for 0.2 seconds, and nothing is healed meanwhile (quiet/quiet.h). */
void cow__bulk_copy(void *to, const void *from, size_t bytes, bool fresh);

/* The same by the calling thread alone. */
void cow__bulk_copy_here(void *to, const void *from, size_t bytes, bool fresh);

/* Commits huge pages of such memory, for a caller who writes it. */
void cow__bulk_commit(uintptr_t at, size_t bytes);

/* Copies, by the calling thread, into [offset, offset + bytes) of a tile that it may write,
 * or that nobody else sees yet. */
static inline void
cow__bulk_copy_to(const struct cow__tile *to, size_t offset, const void *from,
                  size_t bytes, bool fresh)
{
	cow__bulk_copy_here((char *)cow__tile_start(to) + offset, from, bytes,
	                    fresh && cow__tile_is_shared(to));
}

#endif

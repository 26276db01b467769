/* SPDX-License-Identifier: MIT */
/*
 * Progress: how far a program has filled a young tile (core/memory/commit.h)
 *
 * Tiles are filled from their start, and some from their end as well. Only whole
 * chunks of 2 MiB count. `touched` and `committed` are bytes from the start,
 * `down_touched` and `down_committed` bytes from the end:
 *
 *   touched <= committed, down_touched <= down_committed,
 *   committed + down_committed <= all chunks
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_PROGRESS_H
#define COW_CORE_MEMORY_PROGRESS_H

#include "core/memory/mend.h"

/* Bytes of all chunks. */
size_t cow__progress_chunks(const struct cow__tile *t);

static inline uintptr_t
cow__progress_end(const struct cow__tile *t)
{
	return cow__mend_origin(t) + cow__progress_chunks(t);
}

/* Bytes that are committed and not known to be touched. */
static inline size_t
cow__progress_ahead_up(const struct cow__tile *t)
{
	return t->committed - t->touched;
}

static inline size_t
cow__progress_ahead_down(const struct cow__tile *t)
{
	return t->down_committed - t->down_touched;
}

/* Looks how far the tile was filled from its start. Returns the chunks that are new, or
 * -errno. */
int cow__progress_up(struct cow__tile *t);

/* The same from its end. True if a chunk is new. */
bool cow__progress_down(struct cow__tile *t);

#endif

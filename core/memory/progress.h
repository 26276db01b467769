/* SPDX-License-Identifier: MIT */
/*
 * Progress: how far a program has filled a young tile (core/memory/commit.h)
 *
 * Only whole chunks of 2 MiB count, from the start on: touched <= committed <= all chunks. A
 * program that fills a tile from its end gets small pages there, and what it has then looks
 * untouched.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_PROGRESS_H
#define COW_CORE_MEMORY_PROGRESS_H

#include "core/memory/mend.h"

/* Bytes of all chunks. */
size_t cow__progress_chunks(const struct cow__tile *t);

/* Bytes that are committed and not known to be touched. */
static inline size_t
cow__progress_ahead(const struct cow__tile *t)
{
	return t->filling.committed - t->filling.touched;
}

/* Looks how far the tile was filled. Returns the chunks that are new, or -errno. */
int cow__progress_look(struct cow__tile *t);

#endif

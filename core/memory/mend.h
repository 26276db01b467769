/* SPDX-License-Identifier: MIT */
/*
 * Mending: small pages of a segment become huge ones
 *
 * Where the program filled memory faster than the helper commits it
 * (core/memory/commit.h), it got small pages. So do blocks of warm memory that had
 * them. Small pages make every fork slow. The helper makes huge pages of them, a tenth
 * of a second later, where seven of eight small pages of a chunk are there.
 *
 * A tile that is mended has `touched` bytes, `committed` of which are done.
 */
#ifndef COW_CORE_MEMORY_MEND_H
#define COW_CORE_MEMORY_MEND_H

#include "core/base/base.h"
#include "core/memory/tile.h"

/* `touched` and `committed` of a tile count from here on, its first 2 MiB boundary. */
static inline uintptr_t
cow__mend_origin(const struct cow__tile *t)
{
	return cow__round_up(cow__tile_start(t), COW__HUGE);
}

/* A live tile that is not young has small pages up to `touched`. */
void cow__mend_later(struct cow__tile *t);

/* No more of it. Without effect on a tile that is not mended. */
void cow__mend_end(struct cow__tile *t);

/* For the helper: mends a batch, if its time has come. Unlocks the engine while it
 * works. True if there is more to mend at once. */
bool cow__mend_step(uint64_t now);

bool cow__mend_pending(void);

/* In a forked child: nothing is mended. */
void cow__mend_child(void);

#endif

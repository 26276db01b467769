/* SPDX-License-Identifier: MIT */
/*
 * Copy history: was it right to copy?
 *
 * Earlier copies by the same code predict the next one (core/policy/sites.h). The engine learns
 * from eager copies, without risk. It hashes some pages when both sides are equal. It hashes them
 * again when a side is freed or overwritten by another copy. For a lazy copy it counts the pages
 * that were copied in the end.
 *
 * The tables have a fixed size. The engine's lock guards them. They hold code
 * addresses, counts and hashes, and nothing else of the program's history.
 */
#ifndef COW_CORE_MEMORY_COPY_HISTORY_H
#define COW_CORE_MEMORY_COPY_HISTORY_H

#include "core/memory/tile.h"
#include "core/policy/sites.h"

enum cow__verdict cow__copy_history_ask(uintptr_t site, size_t bytes);

/* `to` has just been copied from [offset, offset + bytes) of `from`. */
void cow__copy_history_add(struct cow__tile *to, struct cow__tile *from,
                       size_t offset, size_t bytes, uintptr_t site, bool lazy);

/* The content of a watched tile is about to go, or the tile is about to be
 * cut. */
void cow__copy_history_end(struct cow__tile *t);

/* Is the tile a side of a copy that is watched? */
bool cow__copy_history_watches(const struct cow__tile *t);

/* In a forked child: it keeps what was learned and forgets the copies, which are
 * the parent's. */
void cow__copy_history_child(void);

#endif

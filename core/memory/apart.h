/* SPDX-License-Identifier: MIT */
/*
 * Apart: long calls into the kernel for a tile, without the engine's lock
 *
 * To make huge pages, and to take down page tables, may take 0.1 s. Forks, allocations and
 * the helper would wait as long for the lock. So the tile is marked (`work`), as for the
 * helper, and the lock is given back. The calling thread is parked meanwhile
 * (quiet/park.h): it does not keep the memory of the process frozen.
 *
 * cow__commit_range() and cow__commit_at() need no tile that is busy, since the caller has
 * the memory for itself.
 */
#ifndef COW_CORE_MEMORY_APART_H
#define COW_CORE_MEMORY_APART_H

#include "core/memory/tile.h"

/* Collapses `bytes` bytes from `at` on of a busy tile, where the program will see them.
 * Nobody has written there yet. The page tables are empty afterwards. If another thread's
 * fork freezes the tile meanwhile, this ends: huge pages are of no more use then, since
 * what is written next is copied. *ret_done: bytes that are huge now. 0 or -errno. Engine
 * not locked. */
int cow__apart_collapse(const struct cow__tile *t, uintptr_t at, size_t bytes,
                        size_t *ret_done);

/* For the helper: collapses up to COW__APART_MOST bytes from `at` on of a live tile with a
 * segment, at addresses of the engine. The program may have changed the mapping that it
 * sees, or may be using it. The tile is busy meanwhile, and the engine is not locked.
 * Afterwards the tile may be doomed, or no longer what it was. *ret_done: bytes that are
 * huge now. 0 or -errno. */
int cow__apart_remake(struct cow__tile *t, uintptr_t at, size_t bytes, size_t *ret_done);

/* In a forked child, which does not have those addresses. */
void cow__apart_child(void);

/* cow__extent_free() for a thread of the program. A large frozen tile loses the copied
 * pages first, without the lock. Engine locked, but not all the time. */
void cow__apart_free(struct cow__tile *t);

/*
 * The caller is about to write all of [offset, offset + bytes), in memory that it
 * may write or that nobody else sees yet. Makes huge pages of it, as far as
 * possible. The engine need not be locked if no other thread can free the tile.
 */
void cow__commit_range(const struct cow__tile *t, size_t offset, size_t bytes);

/* The same for [start, end) of a segment that is mapped shared there. */
void cow__commit_at(uintptr_t start, uintptr_t end);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Copying ahead: written pages go back to the file while the program runs
 *
 * To copy a chunk takes longer than all else in a slice. Nobody has to be parked for
 * that. The helper marks the pages (memfd/watch.h) and copies them to the
 * file, where nobody looks: the program reads its copies, and nobody else reads these
 * file pages. When all threads are parked, only what was written since is copied once
 * more, and the chunk is mapped shared.
 *
 * Where the kernel can't watch, a thaw copies all while the threads are parked.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_AHEAD_H
#define COW_CORE_COW_AHEAD_H

#include "core/cow/exclusive.h"
#include "core/memory/tile.h"
#include "memfd/pagemap.h"

bool cow__ahead_usable(void);

/* Copies ahead for about `ns`, less if another thread waits for the lock. For the
 * helper. Returns how many chunks are ready. -EBUSY: memory may be under I/O, and nothing
 * more can be made ready while it is. */
int cow__ahead_prepare(uint64_t ns);

/* Takes one of the chunks that are ready off the list. False: there is none. */
bool cow__ahead_take(struct cow__span *ret);

/* `end`, or before it the end of the chunk that was taken last, if `at` is in that. */
uintptr_t cow__ahead_end(uintptr_t at, uintptr_t end);

/* In a quiet moment: the pages in [start, end) that were written since they were copied
 * ahead. Their number, or -ENOENT: these were not copied ahead. It answers for the
 * chunk that was taken last. */
int cow__ahead_rest(const struct cow__tile *t, uintptr_t start, uintptr_t end,
                    struct cow__run *runs, int max);

/* How many bytes were copied ahead of the chunk that was taken last. 0 when asked again. */
size_t cow__ahead_copied(void);

/* The chunk from `start` on was taken, and could not be thawed. Most often the kernel may write
 * there for a parked thread. Such a thread may park there most of the time. So the chunk is not
 * copied again for so long. */
void cow__ahead_pass(uintptr_t start);

/* Is `at` in such a chunk? */
bool cow__ahead_passed(uintptr_t at);

/* File pages under private ones change, or other ones take their place. */
void cow__ahead_forget(void);

#endif

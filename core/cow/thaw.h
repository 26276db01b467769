/* SPDX-License-Identifier: MIT */
/*
 * Thawing: back to writing in place
 *
 * A program that rewrites frozen memory pays for it: each page is copied, becomes
 * a small page, and leaves the frozen page behind as a shadow. So the frozen
 * pages are mapped shared again, in place, when nobody else reads them any more
 * (the clone is gone, the forked child exited or exec'd):
 *
 *   clean parts        mapped shared again; costs what their page tables cost
 *   written parts      the written pages are copied back to the file first, a chunk
 *                      of 2 MiB at a time; where most was written, into a huge page
 *
 * A write between the look for copied pages and the remapping would be lost. So
 * thawing needs a moment in which nobody can write: the process is quiet
 * (quiet/quiet.h), or the storage is tracked and its writer is the caller. Nor
 * may a device or ring write. Where memory may be pinned, nothing is thawed.
 *
 * Each cow__thaw_*() works on one tile, or on clean neighbours. The cow__heal_*() of core/cow/heal.h
 * decide when a whole process is thawed. Engine locked throughout.
 */
#ifndef COW_CORE_COW_THAW_H
#define COW_CORE_COW_THAW_H

#include "core/cow/exclusive.h"
#include "core/memory/tile.h"

/* Thaws a part of a tile, which nobody writes meanwhile and which is exclusive
 * (core/cow/exclusive.h): about `most` bytes from where the last call stopped, or less if much of
 * that was written. So a program that writes a page now and then does not wait for all of them. If
 * `most` is half of the tile or more, the call thaws all of it. 0 or -errno. The bytes are as
 * before in either case. */
int cow__thaw_tile(struct cow__tile *t, size_t most);

/* One step, from *at on and up to `end`: a chunk of 2 MiB with written pages, or up to 16 MiB
 * without. It is up to 256 MiB if hardly a page was touched since the freeze. *at
 * moves behind it, or to the end of the tile if all is shared there. It leaves out
 * what the kernel may write for a parked thread. No memory is pinned. *ret_copied:
 * bytes that were written back. A chunk with more than `most` bytes of copies is
 * passed over, unless they were copied ahead or the tile has attributes: 1. */
int cow__thaw_tile_step(struct cow__tile *t, uintptr_t *at, uintptr_t end, size_t most,
                        size_t *ret_copied);

/* Maps [start, end) of an exclusive tile shared, without the pages that were copied there.
 * For a caller who overwrites all of it. 0 or -errno, and then some of it is private as
 * before. */
int cow__thaw_tile_discard(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Makes room for the note that a part is mapped shared. */
int cow__thaw_part_room(struct cow__tile *t);

/* [start, end) of a private part is mapped shared now, and has the bytes that the program
 * reads. The room was made. */
void cow__thaw_part_note(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Thaws a tile and the neighbours that are frozen alike with one call, if they are
 * all clean. Returns the last of them. NULL: it did nothing. */
struct cow__tile *cow__thaw_clean_tiles(struct cow__tile *t, struct cow__census *c);

#endif

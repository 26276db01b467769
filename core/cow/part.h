/* SPDX-License-Identifier: MIT */
/*
 * Parts of a tile: what they show, and which are private
 *
 * A tile may show pages of other tiles, in pieces. A tile that thaws is a patchwork, too: some
 * parts are mapped shared again, others are still private. Engine locked throughout.
 */
#ifndef COW_CORE_COW_PART_H
#define COW_CORE_COW_PART_H

#include "core/memory/tile.h"
#include "memfd/pagemap.h"

/* What `addr` in a live tile shows: the tile of the pages, and the offset in
 * it. */
struct cow__tile *cow__part_source(const struct cow__tile *t, uintptr_t addr,
                                   size_t *ret_offset, size_t *ret_bytes);

/* Maps [start, end) of a live tile anew from its pieces, shared or private.
 * *ret_done, unless NULL, is the address up to which it came, also on failure. */
int cow__part_map(struct cow__tile *t, uintptr_t start, uintptr_t end,
                  bool shared, uintptr_t *ret_done);

/* The first part at or behind `at` that is mapped private. False: there is none. */
bool cow__private_part(const struct cow__tile *t, uintptr_t at,
                       struct cow__span *ret);

/* Maps the file pages under [start, end) shared, at other addresses, for a while.
 * There they can be written or given back, and the program does not notice. NULL: no
 * memory. */
struct cow__tile *cow__part_alias(struct cow__tile *t, uintptr_t start,
                                  uintptr_t end);

/* Copies bytes into such a mapping. It reads there first: a read fault maps up to 16 small
 * pages that the file has, and all of them writable. A write fault maps one. */
void cow__part_write(uintptr_t to, const void *from, size_t bytes);

size_t cow__runs_bytes(const struct cow__run *runs, int n);

/* How many bytes of [at, end) the mapping has in pages of its own, pages of zeros left out. It
 * counts no further than `enough`, and what can't be looked at as nothing. */
size_t cow__made_bytes(uintptr_t at, uintptr_t end, size_t enough);

#endif

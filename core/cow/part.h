/* SPDX-License-Identifier: MIT */
/*
 * Private parts of a tile, and the file pages under them
 *
 * A tile that thaws is a patchwork. Some parts are mapped shared again, others are
 * still private. Engine locked throughout.
 */
#ifndef COW_CORE_COW_PART_H
#define COW_CORE_COW_PART_H

#include "core/memory/tile.h"
#include "memfd/pagemap.h"

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

/* SPDX-License-Identifier: MIT */
/*
 * Small storages
 *
 * Storages of at most 2 KiB get a cell in a slab: a tile of 64 KiB cut into cells
 * of one size. Their clones materialize by copy.
 */
#ifndef COW_CORE_STORAGE_SMALL_H
#define COW_CORE_STORAGE_SMALL_H

#include <stdbool.h>
#include <stddef.h>

struct cow__slab;

/* Takes a cell for *bytes bytes, which become those of the cell. Takes the engine's lock. */
int cow__small_new(size_t *bytes, bool zero, void **ret);
void cow__small_free(void *data);

/* The bytes of each cell. */
size_t cow__small_bytes(const struct cow__slab *slab);

#endif

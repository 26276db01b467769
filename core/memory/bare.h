/* SPDX-License-Identifier: MIT */
/*
 * Free memory that becomes bare: address space without pages
 *
 * Engine locked.
 */
#ifndef COW_CORE_MEMORY_BARE_H
#define COW_CORE_MEMORY_BARE_H

#include "core/memory/tile.h"

/* Unmaps a free tile of the segment `s` (NULL: a free anonymous tile). It becomes
 * bare: address space without pages. Any other tile stays as it is, and so does
 * this one where the kernel refuses. */
void cow__bare_make(struct cow__tile *rest, struct cow__segment *s);

/* cow__tile_put() for a tile whose mapping is gone. An anonymous block may have
 * left a cold rest of its last 2 MiB. The last huge page of the block may lie
 * under that rest, and nothing would ever free it there. So the rest is unmapped,
 * too. */
void cow__bare_put(struct cow__tile *t);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Mappings: blocks that the program made with mmap
 *
 * An allocator of the program's own, or a virtual machine, maps memory in large
 * pieces, and cuts it up with munmap and with mmap over what it has. Such a
 * piece is a block whose parts may end one by one. All else that may be done to
 * pages is done by core/program/advise.h.
 */
#ifndef COW_CORE_PROGRAM_MAPPING_H
#define COW_CORE_PROGRAM_MAPPING_H

#include "core/memory/tile.h"

/*
 * Sets the second half of the window apart: an allocator tells a block of ours
 * from one inside somebody's mapping by its address. To be called once, before
 * cow__mapping_new(). -ENOMEM: then not at all.
 */
int cow__mapping_init(uintptr_t *ret_start);

/*
 * Private anonymous memory of `bytes`, a multiple of the page, zero, with
 * protection `prot` (PROT_...), at a multiple of the page or of 2 MiB. -ENOMEM
 * and what the kernel says: the caller may ask the kernel.
 */
int cow__mapping_new(size_t bytes, int prot, void **ret);

/* mmap with MAP_FIXED of private anonymous memory over live blocks: the range
 * reads as zero again. -EEXIST if it is not all ours, or has something that a new
 * mapping must not keep: the caller asks the kernel. */
int cow__mapping_renew(uintptr_t addr, size_t bytes, int prot);

/* Ends [start, end) of a tile made by cow__mapping_new(), if it can be cut out
 * or is all that there is: then true, and `t` may be gone. Locked. */
bool cow__mapping_cut(struct cow__tile *t, uintptr_t start, uintptr_t end);

#endif

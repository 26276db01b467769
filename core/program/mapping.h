/* SPDX-License-Identifier: MIT */
/*
 * Mappings: blocks that the program made with mmap
 *
 * An allocator of the program, or a virtual machine, maps memory in large pieces.
 * It cuts them up with munmap, and with mmap over what it has. Such a piece is a
 * block whose parts may end one by one. core/program/advise.h does all else that
 * may be done to pages.
 */
#ifndef COW_CORE_PROGRAM_MAPPING_H
#define COW_CORE_PROGRAM_MAPPING_H

#include "core/memory/tile.h"

/*
 * Sets the second half of the window apart. By the address an allocator tells a
 * block of malloc from a block inside of its own mapping. Called once, before
 * cow__mapping_new(). -ENOMEM: don't call that one at all.
 */
int cow__mapping_init(uintptr_t *ret_start);

/*
 * Makes private anonymous memory of `bytes`, a multiple of the page, zero, with
 * protection `prot` (PROT_...). It begins at a multiple of the page or of 2 MiB.
 * -ENOMEM and what the kernel says: the caller may ask the kernel.
 */
int cow__mapping_new(size_t bytes, int prot, void **ret);

/* mmap with MAP_FIXED of private anonymous memory over live blocks: the range
 * reads as zero again. -EEXIST: it is not all the engine's, or has something that
 * a new mapping must not keep. The caller asks the kernel then. */
int cow__mapping_renew(uintptr_t addr, size_t bytes, int prot);

/* mremap of such mappings without a move: [addr, addr + old) becomes `bytes` bytes, which is
 * more. What is new reads as zero, and has the protection, locks and advice of the last page. It
 * succeeds where the kernel would: nothing is mapped behind. What can't grow in one piece consists
 * of parts then, of which none is a storage. -EFAULT: the range is not all mapped. -ENOMEM: there is
 * no room, the last page is not the engine's, or a file or descriptor is lacking. -EAGAIN: a limit
 * on locked memory. Nothing changed then. */
int cow__mapping_grow(uintptr_t addr, size_t old, size_t bytes);

#endif

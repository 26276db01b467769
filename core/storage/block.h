/* SPDX-License-Identifier: MIT */
/*
 * Blocks of a program that knows nothing of the engine
 */
#ifndef COW_CORE_STORAGE_BLOCK_H
#define COW_CORE_STORAGE_BLOCK_H

#include <stddef.h>

/*
 * calloc(): as cow_block_new() with COW_BLOCK_ZERO, for a program that may read more of the
 * block than it writes. A large one is anonymous memory, unless an option says memfd or memory
 * of that size is to be sent. So what is read and never written takes no memory. A fork copies
 * its page tables, and a clone is a copy.
 */
int cow__block_zeroed(size_t bytes, void **ret);

#endif

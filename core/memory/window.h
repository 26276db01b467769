/* SPDX-License-Identifier: MIT */
/*
 * The window: the address range in which everything lies
 */
#ifndef COW_CORE_MEMORY_WINDOW_H
#define COW_CORE_MEMORY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Reserves it. -ENOMEM: not to be had, as under a limit on address space. */
int cow__window_reserve(void);

/*
 * Gives the addresses that are not in use back to the kernel, for good: a limit
 * on address space is about to be set, and counts reserved addresses like any
 * others. What lives goes on; new memory must come from elsewhere. After it,
 * addresses within the window may be other people's: ask cow__window_owns().
 * False: nothing was given back, since the limit is that of vfork's child.
 */
bool cow__window_yield(void);

/* A limit on private memory is about to be set: from now on blocks count. As
 * above, not for vfork's child. */
void cow__window_counts(void);

bool cow__window_owns(uintptr_t addr);

#endif

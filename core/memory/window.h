/* SPDX-License-Identifier: MIT */
/*
 * The window: the address range in which all memory of the engine lies
 */
#ifndef COW_CORE_MEMORY_WINDOW_H
#define COW_CORE_MEMORY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Reserves the window. -ENOMEM: there is no room, or a limit on address space. */
int cow__window_reserve(void);

/*
 * Gives unused addresses of the window back to the kernel, for good. It is called
 * when a limit on address space is about to be set, which counts reserved
 * addresses like any others. Memory that lives goes on; new memory must come from
 * elsewhere. Afterwards other mappings may lie within the window: ask
 * cow__window_owns(). False: nothing was given back, since the limit is for
 * vfork's child.
 */
bool cow__window_yield(void);

/* A part of the window was given back. Set before anything is unmapped. */
extern bool cow__window_holed;

/* If a limit on address space forbids any new mapping, gives unused addresses back, but for
 * an eighth of what the limit allows, or all of them. Returns whether it gave any. Such a
 * limit may be set behind the library's back, and would fail forks and what they copy. Engine
 * locked. */
bool cow__window_fit(void);

/* A limit on private memory is about to be set: from now on new blocks count
 * against it (`counted` in core/memory/engine.h). Does nothing in vfork's
 * child. */
void cow__window_counts(void);

/* The kernel looks for equal pages of the process from now on, or no more: new blocks are memory in
 * which it does (`merged` in core/memory/engine.h). */
void cow__window_merged(bool merged);

/* Does the address belong to the engine? Takes its lock. */
bool cow__window_owns(uintptr_t addr);

#endif

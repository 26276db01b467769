/* SPDX-License-Identifier: MIT */
/*
 * A block behaves as anonymous memory
 *
 * What a program does to the pages of its malloc memory with madvise, mprotect,
 * mlock, munmap and mremap has to have the effect that it has on anonymous
 * memory, though the pages lie in a memfd and may be frozen. The shim passes
 * such calls on when they concern the window.
 *
 * Each returns 0 or -errno as the system call would. A range that is not all
 * live blocks is -ENOMEM, as unmapped memory is.
 */
#ifndef COW_CORE_ADVISE_H
#define COW_CORE_ADVISE_H

#include <stddef.h>
#include <stdint.h>

int cow__advise(uintptr_t addr, size_t bytes, int advice);
int cow__protect(uintptr_t addr, size_t bytes, int prot);
int cow__lock_pages(uintptr_t addr, size_t bytes, int flags);
int cow__unmap(uintptr_t addr, size_t bytes);

/* The program is about to map something of its own over the range. */
int cow__overmap(uintptr_t addr, size_t bytes);

/* In a forked child: empties what the program asked to be wiped. */
void cow__advise_child(void);

#endif

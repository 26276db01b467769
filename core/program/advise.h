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
#ifndef COW_CORE_PROGRAM_ADVISE_H
#define COW_CORE_PROGRAM_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int cow__advise(uintptr_t addr, size_t bytes, int advice);

/* With a protection key; -1: none given. */
#define COW__KEYS 16
int cow__protect(uintptr_t addr, size_t bytes, int prot, int key);

int cow__lock_pages(uintptr_t addr, size_t bytes, int flags);

/* munlockall(): nor is anything locked again where it is mapped anew. */
int cow__unlock_all(void);

int cow__unmap(uintptr_t addr, size_t bytes);

/* Is all of the range mapped, by the engine, and would be like new if it were
 * emptied and protected anew? */
bool cow__all_renewable(uintptr_t addr, size_t bytes);

/*
 * The program maps something of its own over the range, which `map` does; it
 * returns what the system call did. With `holes` alone, only where nothing is
 * mapped any more: -EEXIST otherwise, and `map` was not called. -ENOMEM: other
 * processes still read what was there.
 */
int cow__overmap(uintptr_t addr, size_t bytes, bool holes,
                 bool (*map)(void *arg), void *arg);

/* The program set a NUMA policy for the range. It belongs to the pages, and
 * ends with the block. */
void cow__bound(uintptr_t addr, size_t bytes);

/* A thread has a NUMA policy of its own: nobody else touches memory first. */
void cow__placed(void);

/* The range is about to be moved by the kernel (`moves`: then it is one mapping if it
 * was one to the program), or watched (pages that are missing stay so): makes it
 * anonymous memory with the same bytes and protections. What other threads write during
 * the call may be lost. -EFAULT: part of it is not mapped. */
int cow__own(uintptr_t addr, size_t bytes, bool moves);

/* The kernel is about to keep pages of the range: makes them copies of its own,
 * which are neither written back to a file nor used again. */
int cow__lend(uintptr_t addr, size_t bytes);

/* In a forked child, before anything is mapped there: reserves the addresses of
 * what the program asked not to be inherited. */
void cow__advise_child_early(void);

/* In a forked child: makes holes of these, and empties what was to be wiped. */
void cow__advise_child(void);

#endif

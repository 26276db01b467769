/* SPDX-License-Identifier: MIT */
/*
 * A block behaves as anonymous memory
 *
 * A program may call madvise, mprotect, mlock, munmap and mremap on the pages of
 * its malloc memory. Each call must have the effect that it has on anonymous
 * memory, though the pages lie in a memfd and may be frozen. The shim passes such
 * calls on when they concern the window.
 *
 * Each function returns 0 or -errno as the system call would. A range that is not
 * all live blocks is -ENOMEM, as unmapped memory is.
 */
#ifndef COW_CORE_PROGRAM_ADVISE_H
#define COW_CORE_PROGRAM_ADVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int cow__advise(uintptr_t addr, size_t bytes, int advice);

/* The process is about to forbid huge pages that are not advised (`yes`), or no longer does. The
 * engine's memory has the advice from now on. False: it wants no huge pages (option collapse), or
 * a signal handler interrupted the engine. */
bool cow__huge_apart(bool yes);

/* mprotect(), and pkey_mprotect() with a protection key. -1: no key. */
#define COW__KEYS 16
int cow__protect(uintptr_t addr, size_t bytes, int prot, int key);

int cow__lock_pages(uintptr_t addr, size_t bytes, int flags);

/* munlockall(). Later remappings lock nothing again, either. */
int cow__unlock_all(void);

int cow__unmap(uintptr_t addr, size_t bytes);

/* Is all of the range mapped by the engine, and would it be like new if it were
 * emptied and protected anew? */
bool cow__all_renewable(uintptr_t addr, size_t bytes);

enum {
	COW__OVERMAP_HOLES = 1,     /* only where nothing is mapped any more: -EEXIST otherwise */
	COW__OVERMAP_ANONYMOUS = 2, /* the mapping is anonymous, private, readable and writable */
};

/*
 * The program maps something of its own over the range. `map` does it, and
 * returns whether the system call succeeded. After an error it was not called.
 * -ENOMEM: other processes still read what was there.
 */
int cow__overmap(uintptr_t addr, size_t bytes, unsigned flags,
                 bool (*map)(void *arg), void *arg);

/* The program made a mapping at `addr` with MAP_GROWSDOWN. Unmaps the engine's free
 * addresses below it, as far as it may grow, and gives them to the program for good: the
 * kernel grows the mapping into them, and keeps its gap. Free memory may be mapped, so that
 * a touch would not fault. If that can't be done, the addresses stay as they are. */
void cow__grows_down(uintptr_t addr);

/* The program set a NUMA policy for the range. The policy belongs to the pages,
 * and ends with the block. */
void cow__bound(uintptr_t addr, size_t bytes);

/* A thread has a NUMA policy of its own: no other thread may touch memory
 * first. */
void cow__placed(void);

enum cow__own_why { COW__OWN_TO_WATCH, COW__OWN_FOR_MISSING, COW__OWN_TO_MOVE, COW__OWN_TO_JOIN };

/* The kernel is about to move the range, or to watch it. Makes it anonymous memory with
 * the same bytes and protections. What is moved becomes one mapping if it was one to the
 * program, and is known to be several. TO_JOIN: it becomes one in any case, since the kernel
 * refused to move it. What the program did not touch is missing. Whether it touched zeros in a
 * huge page can't be told. They are missing if only missing pages are watched: the watcher then
 * gets a question too many, and otherwise one too few. What other threads write during the
 * call may be lost. -EFAULT: part of it is not mapped, or with TO_JOIN, it was not one mapping to
 * the program, or that can't be told. */
int cow__own(uintptr_t addr, size_t bytes, enum cow__own_why why);

/* The kernel is about to keep pages of the range. Makes private copies of them,
 * which are neither written back to a file nor used again. */
int cow__lend(uintptr_t addr, size_t bytes);

/* In a forked child, before anything is mapped there: reserves the addresses of
 * the ranges that the program asked not to be inherited. Forgets locks, which
 * children don't inherit. */
void cow__advise_child_early(void);

/* In a forked child: makes holes of these ranges, and empties those that were to
 * be wiped. */
void cow__advise_child(void);

#endif

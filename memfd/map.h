/* SPDX-License-Identifier: MIT */
/*
 * Mappings
 *
 * Addresses and lengths are page aligned, and lengths are not zero. Every address
 * lies in the reserved window, so MAP_FIXED replaces no mapping of other code.
 * All functions return 0 or -errno. After a failure the old mapping stays, except
 * where a function says otherwise.
 *
 * A function that maps a file checks the descriptor before, and again after if another
 * thread can have changed it (memfd/descriptor.h): no write ever reaches another file, and
 * no memory shows one when the function returns. A private mapping, or one beside a limit on
 * addresses, that turns out to be another file's becomes reserved memory, and its old mapping
 * is gone (-EBADF): the program crashes there at its first touch.
 */
#ifndef COW_MEMFD_MAP_H
#define COW_MEMFD_MAP_H

#include "memfd/descriptor.h"

#include <stddef.h>

/* Reserves address space: no access, no memory, no commit charge. Aligned to
 * `align`. */
int cow__map_reserve(size_t bytes, size_t align, uintptr_t *ret);
int cow__map_release(uintptr_t addr, size_t bytes);

/* Whether another program stands in for the kernel and takes any advice, as qemu-user and gVisor do.
 * Under qemu-user a reservation costs memory and time for each page. */
bool cow__map_is_emulated(void);

/* Turns a range back into reserved address space. What was there is gone. */
int cow__map_none(uintptr_t addr, size_t bytes);

/* Maps anonymous zero memory. `huge` asks for huge pages. */
int cow__map_anon(uintptr_t addr, size_t bytes, bool huge);

/* Maps anonymous memory for metadata, at an address that the kernel chooses. */
int cow__map_meta(size_t bytes, void **ret);

/* The same, shared by forked children with their parent. */
int cow__map_common(size_t bytes, uintptr_t *ret);

/*
 * Maps the file shared: writes go to it. fork does not inherit the mapping unless
 * `inherit`. Two processes that both believe to own one heap would corrupt it. A
 * crash at the first touch does not.
 */
int cow__map_shared(uintptr_t addr, size_t bytes,
                    const struct cow__descriptor *d, uint64_t offset,
                    bool inherit);

/* The beginning of the file, shared, inherited, at an address that the kernel
 * chooses outside of the window. */
int cow__map_somewhere(size_t bytes, const struct cow__descriptor *d,
                       uintptr_t *ret);

/*
 * Maps the file private: reads come from it, writes go to copies of its pages.
 * Nobody may write the file from now on. fork does not inherit the mapping unless
 * `inherit`, or until cow__map_inherit() says so. A child that is not counted as
 * a holder would see pages that were thawed.
 *
 * Where the same file range was mapped before, concurrent readers and writers go
 * on undisturbed. Each access sees one mapping or the other.
 */
int cow__map_private(uintptr_t addr, size_t bytes,
                     const struct cow__descriptor *d, uint64_t offset,
                     bool inherit);

/*
 * Maps the file at reserved addresses that nobody uses yet, shared or private, and not
 * locked. After mlockall(MCL_FUTURE) the kernel locks each new mapping and fills it at once: a
 * shared one with all pages of a sparse file, a private one with a copy of each page.
 */
int cow__map_unlocked(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
                      uint64_t offset, bool shared, bool inherit);

/* cow__map_private(), inherited and not locked, where other threads may be using what is
 * there now. */
int cow__map_private_unlocked(uintptr_t addr, size_t bytes,
                              const struct cow__descriptor *d, uint64_t offset);

#define COW__MAP_READ_ONLY 1  /* PROT_READ */
#define COW__MAP_READ_WRITE 3 /* PROT_READ | PROT_WRITE */
/* `prot` with COW__MAP_KEY() or'ed in sets a protection key, too. */
#define COW__MAP_KEY(key) (((key) + 1) << 16)
#define COW__MAP_KEYS (31 << 16)
int cow__map_protect(uintptr_t addr, size_t bytes, int prot);

/* Maps the file shared or private, not inherited, with `prot` from its first
 * moment. A key has to be set afterwards. */
int cow__map_protected(uintptr_t addr, size_t bytes,
                       const struct cow__descriptor *d, uint64_t offset,
                       bool shared, int prot);

/* Moves a whole mapping over another range, which it replaces. */
int cow__map_move(uintptr_t from, size_t bytes, uintptr_t to);

/*
 * Moves the page tables of a shared mapping to the reserved range `to`, which
 * then maps the same pages. The mapping itself stays, and faults fill it again.
 * Both are 2 MiB aligned. It costs less if both lie at the same place within a
 * GiB. Linux 5.13. After a failure `to` is reserved as before; -ENOTRECOVERABLE:
 * perhaps not.
 */
int cow__map_displace(uintptr_t addr, size_t bytes, uintptr_t to);

/* Moves a part of what was displaced back over `to`, which it replaces, and reserves the
 * place again. -ENOTRECOVERABLE: it was moved, but its place may be another thread's now.
 * After any other failure nothing was moved. Only where the kernel lacks memory is `to`
 * unmapped then. */
int cow__map_bring_back(uintptr_t from, size_t bytes, uintptr_t to);

/* Makes the 2 MiB ranges of a shared mapping huge pages, and allocates what is
 * not there. Leaves out ranges that are busy, and stops at other failures.
 * *ret_done: the bytes that were done. */
int cow__map_collapse(uintptr_t addr, size_t bytes, size_t *ret_done);

/* Has this kernel that call? It may still refuse a given range. */
bool cow__map_knows_collapse(void);

/* Drops the page tables of a shared mapping. The file keeps its pages. */
int cow__map_zap(uintptr_t addr, size_t bytes);

/* Frees the file pages under a shared mapping. They read as zero then. */
int cow__map_punch(uintptr_t addr, size_t bytes);

/* Allocates every page now: -ENOMEM instead of a SIGBUS later. */
int cow__map_populate(uintptr_t addr, size_t bytes);

/* Fills the page tables of at most 2 MiB of which the file has all pages. What was swapped out
 * stays so. The kernel may refuse it (Linux before 5.14). Where a thread frees some of the pages
 * meanwhile, pages of zeros come back. */
void cow__map_show(uintptr_t addr, size_t bytes);

/* How many pages of a mapping of at most 2 MiB are in memory. Pages of the file
 * count, too, if the page table lacks them. */
int cow__map_resident(uintptr_t addr, size_t bytes);

/* Can this thread read all of it? Any address and length. 0, or -EFAULT: something is
 * unmapped or protected, or lies behind the end of its file. */
int cow__map_readable(uintptr_t addr, size_t bytes);

/* Lets children inherit the mapping, or not. Allowing it succeeds also where the
 * kernel can't withhold mappings. */
int cow__map_inherit(uintptr_t addr, size_t bytes, bool inherit);

/* The process forbids huge pages that are not advised: each mapping of a file gets the advice,
 * or the huge pages of the file would be mapped as small ones. */
extern bool cow__map_advised;

int cow__map_advise(uintptr_t addr, size_t bytes, int advice);

/* Goes back to the NUMA policy of the process; for a shared mapping, of the
 * file. */
int cow__map_unbind(uintptr_t addr, size_t bytes);

/* mlock2() with these flags; munlock() for -1. */
int cow__map_lock(uintptr_t addr, size_t bytes, int flags);
int cow__map_unlock_all(void);

/* Would the kernel grant so much anonymous memory? 0, or -ENOMEM. The kernel
 * refuses what the machine could never have. Of a memfd it lets any size be
 * mapped. */
int cow__map_ask(size_t bytes);

/* The bytes of RLIMIT_AS, RLIMIT_DATA and RLIMIT_STACK, or UINT64_MAX. RLIMIT_DATA counts
 * private writable mappings alone. */
uint64_t cow__map_address_limit(void);
uint64_t cow__map_private_limit(void);
uint64_t cow__map_stack_limit(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Mappings
 *
 * Addresses and lengths are page aligned, lengths not zero, and every address
 * lies in the reserved window, so that MAP_FIXED replaces nothing of anybody
 * else's. All return 0 or -errno. On failure the old mapping stays, except
 * where a function says otherwise.
 */
#ifndef COW_MEMFD_MAP_H
#define COW_MEMFD_MAP_H

#include "memfd/descriptor.h"

#include <stddef.h>

/* Address space and nothing else: no access, no memory, no commit charge.
 * Aligned to `align`. */
int cow__map_reserve(size_t bytes, size_t align, uintptr_t *ret);
int cow__map_release(uintptr_t addr, size_t bytes);

/* Turns a range back into reserved address space; what was there is gone. */
int cow__map_none(uintptr_t addr, size_t bytes);

/* Anonymous zero memory. `huge` asks for huge pages. */
int cow__map_anon(uintptr_t addr, size_t bytes, bool huge);

/* Anonymous memory wherever the kernel likes, for metadata. */
int cow__map_meta(size_t bytes, void **ret);

/* The same, which forked children have in common with their parent. */
int cow__map_common(size_t bytes, uintptr_t *ret);

/*
 * The file, shared: writes go to it. Not inherited by fork unless `inherit`:
 * two processes that both believe to own one heap would corrupt it, a crash at
 * the first touch does not.
 */
int cow__map_shared(uintptr_t addr, size_t bytes,
                    const struct cow__descriptor *d, uint64_t offset,
                    bool inherit);

/*
 * The file, private: reads come from it, writes go to copies of its pages.
 * Nobody may write the file from now on. Not inherited by fork unless `inherit`,
 * or until cow__map_inherit() says so: a child that nobody counts would see pages
 * that were thawed.
 * Concurrent readers and writers of the range are not disturbed when the same
 * file range is mapped here before: each access sees one mapping or the other.
 */
int cow__map_private(uintptr_t addr, size_t bytes,
                     const struct cow__descriptor *d, uint64_t offset,
                     bool inherit);

#define COW__MAP_READ_ONLY 1  /* PROT_READ */
#define COW__MAP_READ_WRITE 3 /* PROT_READ | PROT_WRITE */
/* `prot` with COW__MAP_KEY() or'ed in sets a protection key, too. */
#define COW__MAP_KEY(key) (((key) + 1) << 16)
#define COW__MAP_KEYS (31 << 16)
int cow__map_protect(uintptr_t addr, size_t bytes, int prot);

/* Either of the two, not inherited, with `prot` from its first moment; but a key, which has to
 * be set afterwards. */
int cow__map_protected(uintptr_t addr, size_t bytes,
                       const struct cow__descriptor *d, uint64_t offset,
                       bool shared, int prot);

/* Moves a whole mapping over another range, which it replaces. */
int cow__map_move(uintptr_t from, size_t bytes, uintptr_t to);

/*
 * Moves the page tables of a shared mapping to the reserved range `to`, which
 * maps the same pages then; the mapping itself stays, and fills up again by
 * faults. Both 2 MiB aligned, better at the same place within a GiB. Linux 5.13.
 * After a failure `to` is reserved as before; -ENOTRECOVERABLE: it may not be.
 */
int cow__map_displace(uintptr_t addr, size_t bytes, uintptr_t to);

/* Makes the 2 MiB ranges of a shared mapping huge pages, allocating what is
 * not there. Leaves out ranges that are busy; stops at other failures.
 * `ret_done` bytes were done. */
int cow__map_collapse(uintptr_t addr, size_t bytes, size_t *ret_done);

/* Forgets page tables of a shared mapping; the file keeps its pages. */
int cow__map_zap(uintptr_t addr, size_t bytes);

/* Frees the file pages under a shared mapping (they read as zero then). */
int cow__map_punch(uintptr_t addr, size_t bytes);

/* Allocates every page now; -ENOMEM instead of a SIGBUS later. */
int cow__map_populate(uintptr_t addr, size_t bytes);

/* How many pages of a mapping of at most 2 MiB have memory, in the file if it
 * is one, also where the page table does not know of it. */
int cow__map_resident(uintptr_t addr, size_t bytes);

/* By children, or not. Giving succeeds, too, where the kernel never withholds. */
int cow__map_inherit(uintptr_t addr, size_t bytes, bool inherit);

int cow__map_advise(uintptr_t addr, size_t bytes, int advice);

/* Back to the process's own NUMA policy; of a shared mapping, the file's. */
int cow__map_unbind(uintptr_t addr, size_t bytes);

/* mlock2 with these flags; munlock for -1. */
int cow__map_lock(uintptr_t addr, size_t bytes, int flags);
int cow__map_unlock_all(void);

/* Would the kernel give so much anonymous memory? 0, or -ENOMEM. It refuses what
 * the machine could never have; of a memfd it lets everything be mapped. */
int cow__map_ask(size_t bytes);

/* Bytes of RLIMIT_AS and RLIMIT_DATA, or UINT64_MAX. The latter counts private
 * writable mappings alone. */
uint64_t cow__map_address_limit(void);
uint64_t cow__map_private_limit(void);

#endif

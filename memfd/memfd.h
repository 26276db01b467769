/* SPDX-License-Identifier: MIT */
/*
 * Sealed memfds
 */
#ifndef COW_MEMFD_MEMFD_H
#define COW_MEMFD_MEMFD_H

#include "memfd/descriptor.h"

#include <stddef.h>

/*
 * Makes a memfd of `bytes` bytes, all holes, that can neither grow nor shrink.
 * GROW and SHRINK are sealed before anybody can map it. So no holder of it can be
 * made to take a SIGBUS. It is not executable where the kernel knows that seal. 0
 * or -errno. -EFBIG: RLIMIT_FSIZE forbids the size, which is asked first, since
 * exceeding it would be a signal.
 */
int cow__memfd_new(const char *name, uint64_t bytes,
                   struct cow__descriptor *ret);

/* Makes a memfd of exactly so many bytes, on which more can be sealed. */
int cow__memfd_new_open(const char *name, uint64_t bytes,
                        struct cow__descriptor *ret);

enum cow__seals {
	COW__SEALED_SIZE = 1 << 0,  /* neither grows nor shrinks */
	COW__SEALED_WRITE = 1 << 1, /* its bytes never change, either */
	COW__SEALED_FUTURE = 1 << 2, /* size, and nobody gets new ways to write or free its pages */
};
/* -EBUSY (WRITE): some process has it mapped writable. */
int cow__memfd_seal(const struct cow__descriptor *d, unsigned seals);

/* Checks what another process sent: it must be a memfd (no file, pipe or
 * device, not hugetlbfs) with at least these seals. Says its size. -EBADMSG:
 * it is not. */
int cow__memfd_check(int fd, unsigned seals, uint64_t *ret_bytes);

/* Reads all of [offset, offset + bytes). -EBADMSG: there is less. */
int cow__memfd_read(int fd, uint64_t offset, void *buf, size_t bytes);

/* Are all bytes of [from, end) zero? Makes no pages where the file has none. 1, 0, -errno. The
 * caller knows that the descriptor is ours. */
int cow__memfd_zeros(const struct cow__descriptor *d, uint64_t from, uint64_t end);

/* Writes the digits of n and a final null, at most 21 bytes with base 10. Returns where the null is. */
char *cow__number_append(char *to, uint64_t n, unsigned base);

/* Opens the same file under an open file description of its own, which alone owns
 * the locks made through it. Needs /proc. */
int cow__memfd_reopen(const struct cow__descriptor *d,
                      struct cow__descriptor *ret);

/* The same, for reading alone. */
int cow__memfd_reopen_to_read(const struct cow__descriptor *d, struct cow__descriptor *ret);

/* Opens the file that is mapped at exactly [addr, addr + bytes), if it is the one that `of`
 * describes. The kernel wants CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN for that. */
int cow__memfd_reopen_mapped(uintptr_t addr, size_t bytes, const struct cow__descriptor *of,
                             struct cow__descriptor *ret);

/* Only processes of this user may open the file again (/proc/PID/fd). 0 or -errno. */
int cow__memfd_close_to_others(const struct cow__descriptor *d);

/* Frees the pages in [from, from + bytes), wherever they are mapped, or not
 * mapped. It also frees locked memory, whose pages cow__map_punch() may not take.
 * 0 or -errno. */
int cow__memfd_punch(const struct cow__descriptor *d, uint64_t from, uint64_t bytes);

/* Finds the first run of pages that the file has, swapped out or not, in [from,
 * end). 1, 0 if there is none, -errno. */
int cow__memfd_data(const struct cow__descriptor *d, uint64_t from,
                    uint64_t end, uint64_t *ret_start, uint64_t *ret_end);

/* How many bytes of pages it has. 0 or -errno. */
int cow__memfd_has(const struct cow__descriptor *d, uint64_t *ret_bytes);

/* Are the bytes outside of [from, from + bytes) all zero, also in its first and
 * last page? False also if that can't be told. */
bool cow__memfd_holds_only(const struct cow__descriptor *d, uint64_t from,
                           uint64_t bytes);

/*
 * Locks of one byte, owned by the open file description. They last until the last
 * descriptor *and mapping* of it is gone. So the kernel drops them when their
 * owner dies or execs. take: 0, or -EAGAIN if another description has it
 * (`shared`: any number may have it together). taken: 1 if another description
 * has it, 0 if none has, -errno.
 */
int cow__memfd_lock_take(const struct cow__descriptor *d, uint64_t byte,
                         bool shared);
/* One page of the file without access, which children inherit: keeps the description, and so its
 * locks, after every descriptor is closed. It is never unmapped. */
int cow__memfd_lock_keep(const struct cow__descriptor *d, uintptr_t *ret_at);
int cow__memfd_lock_drop(const struct cow__descriptor *d, uint64_t byte);
int cow__memfd_lock_taken(const struct cow__descriptor *d, uint64_t byte);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory, for those who copy from and to it
 */
#ifndef COW_CUDA_PINNED_H
#define COW_CUDA_PINNED_H

#include "cuda/context.h"
#include "cuda/uses.h"

/*
 * `stream` of `d` reads or writes host memory at this address, from now until what is
 * queued there has run: no new owner gets it before. Told after the work was queued,
 * before the memory is freed. By address, so slices and other storages on the same
 * memory count. 1: noted; 0: not ours; -ENOMEM: it is, and could not be noted: the
 * caller waits for the work before anybody can let go of the memory.
 */
int cow__cuda_pinned_used(const void *address, struct cow__cuda *d,
                          struct cow__cu_stream *stream);

/* Is it in memory of ours? */
bool cow__cuda_pinned_has(const void *address);

/* For pinned_alias.c. owns: the storage is of cow_cuda_pinned_new(), and no alias. home: the
 * home's mapping is pinned, and in use, until home_unused, after which the home has one
 * reference, which goes when all streams have passed. await: all that was noted of it has
 * run; -EBUSY: it is part of a graph that is recorded. Entered, but for owns and unused. */
struct cow__home;
bool cow__cuda_pinned_owns(const struct cow_storage *s);
int cow__cuda_pinned_home(struct cow__cuda *d, struct cow__home *h);
void cow__cuda_pinned_home_unused(const struct cow__home *h);
int cow__cuda_pinned_await(struct cow__cuda *d, const void *data);

/* Of cow_cuda_pinned_new(): it becomes an alias (share/parcel.h), at other addresses, when
 * the copies from and to it have run, which is waited for. -EOPNOTSUPP: other memory. */
int cow__cuda_pinned_alias(struct cow_storage *s, struct cow__home **ret);

/* What becomes of the notes of a stream that ends (cuda/uses.h). Entered. */
int cow__cuda_pinned_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream,
                                 enum cow__cuda_end how);

/* Of this library: all, and of those what is cached or waits. */
void cow__cuda_pinned_count(uint64_t *ret_bytes, uint64_t *ret_cached);

#endif

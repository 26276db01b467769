/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory, for code that copies from and to it
 */
#ifndef COW_CUDA_PINNED_H
#define COW_CUDA_PINNED_H

#include "cuda/context.h"
#include "cuda/uses.h"

/*
 * Notes that `stream` of `d` reads or writes host memory at this address until the work that
 * is queued there has run. The memory gets no new owner before that. To be called after the
 * work was queued and before the memory is freed. It goes by address, so slices and other
 * storages on the same memory count. 1: noted; 0: the memory is not ours; -ENOMEM: it is
 * ours and could not be noted, so the caller must wait for the work before the memory can
 * be freed.
 */
int cow__cuda_pinned_used(const void *address, struct cow__cuda *d,
                          struct cow__cu_stream *stream);

/* Is the address in pinned memory of ours? */
bool cow__cuda_pinned_has(const void *address);

/*
 * For pinned_alias.c. home and await must be entered.
 *
 *   owns         is the storage of cow_cuda_pinned_new(), and no alias?
 *   home         pins the home's mapping, which is in use until home_unused
 *   home_unused  the home's one reference is dropped when all streams have passed
 *   await        waits until all work that was noted for the memory has run. -EBUSY: some
 *                is part of a graph that is being recorded
 */
struct cow__home;
bool cow__cuda_pinned_owns(const struct cow_storage *s);
int cow__cuda_pinned_home(struct cow__cuda *d, struct cow__home *h);
void cow__cuda_pinned_home_unused(const struct cow__home *h);
int cow__cuda_pinned_await(struct cow__cuda *d, const void *data);

/* Makes a storage of cow_cuda_pinned_new() an alias (share/parcel.h), at another address.
 * Waits for the copies from and to it first. -EOPNOTSUPP: it is other memory. */
int cow__cuda_pinned_alias(struct cow_storage *s, struct cow__home **ret);

/* A stream ends: see cow__cuda_uses_end(). Entered. */
int cow__cuda_pinned_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream,
                                 enum cow__cuda_end how);

/* The bytes that this library has pinned; and how many of those are cached or wait. */
void cow__cuda_pinned_count(uint64_t *ret_bytes, uint64_t *ret_cached);

#endif

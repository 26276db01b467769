/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory, for those who copy from and to it
 */
#ifndef COW_CUDA_PINNED_H
#define COW_CUDA_PINNED_H

#include "cuda/context.h"

/*
 * `stream` of `d` reads or writes host memory at this address, from now until what is
 * queued there has run: no new owner gets it before. Told after the work was queued,
 * before the memory is freed. By address, so slices and other storages on the same
 * memory count. 1: noted; 0: not ours; -ENOMEM: it is, and could not be noted: the
 * caller waits for the work before anybody can let go of the memory.
 */
int cow__cuda_pinned_used(const void *address, struct cow__cuda *d,
                          struct cow__cu_stream *stream);

/* The stream is about to be ended. Entered. */
int cow__cuda_pinned_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream);

/* Of this library: all, and of those what is cached or waits. */
void cow__cuda_pinned_count(uint64_t *ret_bytes, uint64_t *ret_cached);

#endif

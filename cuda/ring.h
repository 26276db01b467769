/* SPDX-License-Identifier: MIT */
/*
 * Ordinary host memory, through two pinned buffers in turn
 *
 * A device reaches only pinned memory. So the host copies to one buffer while the device
 * reads the other, or the device fills one while the host reads the other. The copy takes
 * as long as the slower of the two. The first such copy makes the buffers, and they stay.
 */
#ifndef COW_CUDA_RING_H
#define COW_CUDA_RING_H

#include "cuda/context.h"

/* Entered. to: on return the host's bytes have been read, and the rest of the work is queued
 * on the stream. from: on return the bytes are in host memory. */
int cow__cuda_ring_to(struct cow__cuda *d, struct cow__cu_stream *stream,
                      cow__cu_ptr to, const void *host, size_t bytes);
int cow__cuda_ring_from(struct cow__cuda *d, struct cow__cu_stream *stream,
                        void *host, cow__cu_ptr from, size_t bytes);

#endif

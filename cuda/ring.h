/* SPDX-License-Identifier: MIT */
/*
 * Ordinary host memory, through two pinned buffers in turn
 *
 * A device reaches pinned memory alone. So the host copies into one buffer while the
 * device empties the other, or the other way round; what is slower of the two is what
 * the copy costs. The buffers are made when they are first needed, and stay.
 */
#ifndef COW_CUDA_RING_H
#define COW_CUDA_RING_H

#include "cuda/context.h"

/* Entered. to: when it returns the host's bytes were read, and the rest is queued on the
 * stream. from: when it returns they are there. */
int cow__cuda_ring_to(struct cow__cuda *d, struct cow__cu_stream *stream,
                      cow__cu_ptr to, const void *host, size_t bytes);
int cow__cuda_ring_from(struct cow__cuda *d, struct cow__cu_stream *stream,
                        void *host, cow__cu_ptr from, size_t bytes);

#endif

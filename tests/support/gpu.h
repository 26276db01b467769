/* SPDX-License-Identifier: MIT */
/*
 * Storages on the reference driver's devices
 *
 * A device's bytes are written by fills on a stream, which run late, and looked at by
 * copies behind them.
 */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include "cowshed-cuda.h"
#include "tests/support/driver.h"

/* cow_cuda_start() on the reference driver. */
void gpu_start(void);

#define GPU_CACHED ((size_t)-1)

/* On device 0 and the current stream, each byte `value`. piece 0: SINGLE. */
struct cow_storage *gpu_new(size_t bytes, size_t piece, unsigned char value);

/* Fills through the storage on the current stream of its device. */
void gpu_fill(struct cow_storage *s, size_t offset, size_t bytes,
              unsigned char value);

/* Are all bytes `value`? Waits for the current stream, and for no other. */
bool gpu_is(const struct cow_storage *s, size_t offset, size_t bytes,
            unsigned char value);

cow_cuda_stream gpu_stream(void);
void gpu_stream_end(cow_cuda_stream stream);

struct ref_usage gpu_usage(void);

/* Calls that wait for a device on the host, so far. */
uint64_t gpu_waits(void);

#endif

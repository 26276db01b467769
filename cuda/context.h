/* SPDX-License-Identifier: MIT */
/*
 * Devices that were started, and how to work on one
 *
 * Every entry from outside gets its device from cow__cuda_get() and works between
 * cow__cuda_enter() and cow__cuda_leave(). So the thread's current context is the same
 * afterwards. The primary contexts are retained for ever. If the program resets a device
 * (cudaDeviceReset), every call for it fails, and no host memory is lost.
 *
 *      struct cow__cuda *d;
 *      int r = cow__cuda_get(index, &d);
 *
 *      if (r == 0)
 *              r = cow__cuda_enter(d);
 *      if (r < 0)
 *              return r;
 *      r = cow__cu_error(d->cu->set_8(...), "filling device memory");
 *      cow__cuda_leave(d);
 *
 * Between the two the thread is in the driver's "relaxed" mode. In another mode some calls
 * would break a graph that another thread records, or this one on another stream: making
 * and mapping memory, asking events. This folder makes such calls only for memory and marks
 * of its own, which belong to no graph. Some calls break a recording in any mode; before
 * those the code asks cow__cuda_capturing() or cow__cuda_recording().
 *
 * Order of locks, outermost first: giving back (low.c); the lists of data (data.c); the uses
 * of one data (data.c); a device's `memory_lock`; its maps (piece.c); `marks`. Pinned
 * memory's lock comes after the lists of data and before `marks`. The driver may be called
 * with these locks held, but never with one of the engine's. No code of the program is
 * called with any lock held.
 */
#ifndef COW_CUDA_CONTEXT_H
#define COW_CUDA_CONTEXT_H

#include "core/base/mutex.h"
#include "cowshed-cuda.h"
#include "cuda/driver.h"

#include <stddef.h>
#include <stdint.h>

struct cow__cuda_spare;  /* cuda/stream.c */
struct cow__cuda_memory; /* cuda/memory.h */
struct cow__cuda_kernels; /* cuda/kernels.h */

struct cow__cuda {
	const struct cow__cu *cu;
	int index;
	cow__cu_device handle;
	struct cow__cu_context *context;
	int major, minor, processors;
	bool virtual_memory; /* mem_create and the calls that go with it work */
	bool can_share;      /* its physical memory can become descriptors */
	size_t granule;      /* of physical memory; 0 without virtual memory */
	uint64_t total_bytes;
	uint64_t peers;      /* bit n: it can reach device n */
	uint64_t peers_on;   /* bit n: that was enabled; atomic */

	struct cow__mutex marks;
	struct cow__cuda_spare *spare; /* unused events */

	struct cow__mutex memory_lock;
	struct cow__cuda_memory *memory;
	struct cow__cuda_kernels *kernels;
};

/* What cuda/start.c has found. */
extern struct cow__cuda_started {
	int count; /* how many devices were started; set last */
	struct cow__cuda devices[COW_DEVICE_INDEXES];
} cow__cuda_started;

/* The device, if cow_cuda_start() found it and this process may use it. -ENODEV: it did not;
 * -ECHILD: this is a forked child. Costs two loads. */
int cow__cuda_get(int index, struct cow__cuda **ret);

/* Makes the device's context the thread's current one; leave makes the former one current
 * again. Calls may be nested. */
int cow__cuda_enter(struct cow__cuda *d);
void cow__cuda_leave(struct cow__cuda *d);

#endif

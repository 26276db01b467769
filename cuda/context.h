/* SPDX-License-Identifier: MIT */
/*
 * Devices that were started, and how to work on one
 *
 * Every entry from outside asks cow__cuda_get() for its device, does its work between
 * cow__cuda_enter() and cow__cuda_leave(), and so leaves the thread's current context
 * as it was. The primary contexts are retained for ever: whoever unloads them under
 * us (cudaDeviceReset) gets errors from every call, and loses nothing of the host's.
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
 * Between the two the thread may also do what would break a graph that is recorded
 * elsewhere, or by itself on another stream: making and mapping memory, asking events
 * (the driver's "relaxed" mode). All that this folder does so concerns memory and marks
 * of its own, of which no graph is to know. What breaks a recording in any mode is looked
 * for: cow__cuda_capturing(), cow__cuda_recording().
 *
 * Order of locks, outermost first: giving back (low.c), the lists of data and one's uses
 * (data.c), a device's `memory`, its maps (piece.c), then `marks`; pinned memory's comes
 * after the lists and before `marks`, too. The driver may be
 * called with them, never with an engine's lock; and nothing of the program's is called
 * with any.
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
	bool virtual_memory; /* mem_create and its like work here */
	bool can_share;      /* and give descriptors */
	size_t granule;      /* of physical memory; 0 without virtual memory */
	uint64_t total_bytes;
	uint64_t peers;      /* bit n: can reach device n */
	uint64_t peers_on;   /* and was enabled; atomic */

	struct cow__mutex marks;
	struct cow__cuda_spare *spare; /* events that nobody uses */

	struct cow__mutex memory_lock;
	struct cow__cuda_memory *memory;
	struct cow__cuda_kernels *kernels;
};

/* The device, if cow_cuda_start() found it and this process may use it. -ENODEV;
 * -ECHILD: after fork. Costs two loads. */
int cow__cuda_get(int index, struct cow__cuda **ret);

/* Makes its context the thread's current one, and the other way round. */
int cow__cuda_enter(struct cow__cuda *d);
void cow__cuda_leave(struct cow__cuda *d);

/* Lets `d` reach memory of `peer`, once for all. -EOPNOTSUPP: it can't. Entered. */
int cow__cuda_reach(struct cow__cuda *d, const struct cow__cuda *peer);

#endif

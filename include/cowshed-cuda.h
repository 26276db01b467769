/* SPDX-License-Identifier: MIT */
/*
 * cowshed: CUDA devices
 *
 * Storages and tensors on NVIDIA GPUs, with what cowshed.h, cowshed-tensor.h and
 * cowshed-share.h promise of host memory: lazy clones that are materialized by
 * range, copies by PyTorch's rules, and sending to other processes.
 *
 *      struct cow_storage *s;
 *      struct cow_tensor *t, *u;
 *
 *      if (cow_cuda_start() < 0)
 *              puts(cow_last_error());             why there is none
 *      cow_tensor_to(t, &(struct cow_to){ .size = sizeof(struct cow_to),
 *                        .dtype = -1, .set_device = true,
 *                        .device = { COW_DEVICE_CUDA, 0 } }, &u);
 *
 * The library is the same with and without a GPU. The driver is looked for by
 * cow_cuda_start() and not before; kernels are part of the library if it was built
 * where nvcc is (else strided copies are staged through the host).
 *
 * Contexts. The device's primary context is used, as by the CUDA runtime and by
 * PyTorch: their streams and pointers are valid here, and the other way round. Each
 * call leaves the thread's current context as it was.
 *
 * Order. Work is queued on the calling thread's *current stream* of a device: the
 * legacy default stream until cow_cuda_stream_set() names another one. A storage
 * belongs to the stream that was current when it was made. Whoever uses it on another
 * stream orders the two himself and says so: cow_cuda_record_stream(). No call waits
 * for a device unless it says so here.
 *
 * Clones. A lazy clone is ordered as a copy that was made on the stream that was current
 * then. Writing one first makes the writer's stream wait, on the device, for the streams
 * that used the memory before. While the current stream records a graph nothing can be
 * copied for a writer (-EBUSY: write it once before), nor ever of what was cloned while
 * one did; being the last one and writing in place is fine. Nor can it be cloned then if it
 * is of a stream that ended with work under way.
 *
 * Graphs. What the library does besides breaks nothing that a stream records, in this or
 * in another thread: it asks no event, makes no memory and leaves the default stream alone
 * where that would. What can't be had meanwhile is -EBUSY, before anything of it is
 * recorded. It must know of the recording stream: one that is current in some thread
 * (cow_cuda_stream_set()), or is ordered with the default stream.
 *
 * fork. A child may not use the devices that its parent started: each call gives
 * -ECHILD and says so, and storages that it inherited can be freed, and nothing else.
 *
 * Errors, ownership and threads are as in cowshed.h; besides, -EIO is an error of the
 * device or its driver, whose words are in cow_last_error().
 */
#ifndef COWSHED_CUDA_H
#define COWSHED_CUDA_H

#include "cowshed-tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices: cow_cuda(3) ----------------------------------------------- */

/*
 * Finds the driver and its devices, and enters them in the tables of allocators and
 * of devices (priority 0). Idempotent; thread-safe; cost: what cuInit costs, some
 * 100 ms. 0; -ENODEV: no driver, no device, or a driver older than 12.0; -ECHILD: in
 * a child of a process that had started them.
 */
int cow_cuda_start(void);

/* How many there are; 0 before cow_cuda_start(). Never fails. */
int cow_cuda_count(void);

enum cow_cuda_kernels {
	COW_CUDA_KERNELS_NONE = 0,     /* built without nvcc */
	COW_CUDA_KERNELS_EMBEDDED = 1, /* in this library */
	COW_CUDA_KERNELS_DRIVER = 2,   /* brought by a driver for tests */
};

struct cow_cuda_info {
	size_t size;        /* in: sizeof */
	char path[256];     /* where the driver was loaded from */
	int driver_version; /* 12040: the driver speaks CUDA 12.4 */
	int devices;
	int kernels;        /* enum cow_cuda_kernels */
};

/* Starts the driver, not the devices, and says what it is. Errors as of
 * cow_cuda_start(); -ENOSYS: too old a driver; -EINVAL: `size`. */
int cow_cuda_info(struct cow_cuda_info *ret);

struct cow_cuda_device_info {
	size_t size;            /* in: sizeof */
	char name[128];
	uint8_t uuid[16];       /* of the device, on any machine; 0: not told */
	uint64_t memory_bytes;
	int capability_major, capability_minor;
	int multiprocessors;
	bool virtual_memory;    /* memory can be mapped by pieces */
	bool memory_fds;        /* and travels to other processes as a descriptor */
	bool event_sharing;     /* so do events */
	bool host_register;     /* ordinary memory can be pinned */
	uint64_t peers;         /* bit n: reaches the memory of device n directly */
};

/* About device `index`. Makes no context, takes no device memory. Errors as above;
 * -ENODEV also: no such device. */
int cow_cuda_device_info(int index, struct cow_cuda_device_info *ret);

/* ---- Streams: cow_cuda_stream(3) ---------------------------------------- */

/* A `cow_cuda_stream` is a CUstream (cudaStream_t); NULL: the legacy default one.
 * New ones do not wait for the default stream. priority: 0, or negative for more
 * urgent ones, clamped to what the device has. free: any stream but the default one
 * and those that are current; does not wait, what is queued on it still runs. The
 * memory that was made on it goes to the device's other streams when it has; what it
 * uses besides stays safe. -EBUSY: it is current in this thread, or records a graph. After
 * an error it is as it was, and goes on. */
typedef void *cow_cuda_stream;
int cow_cuda_stream_new(int device, int priority, cow_cuda_stream *ret);
int cow_cuda_stream_free(int device, cow_cuda_stream stream);

/* The calling thread's current stream of the device. The stream stays the caller's
 * and must outlive its being current: other threads ask it whether it records a graph,
 * unless it went by cow_cuda_stream_free(). */
int cow_cuda_stream_set(int device, cow_cuda_stream stream);
int cow_cuda_stream_get(int device, cow_cuda_stream *ret);

/* What is queued on `later` from now on runs after what is on `first` now. No wait
 * on the host. */
int cow_cuda_stream_after(int device, cow_cuda_stream later,
                          cow_cuda_stream first);

/* Waits for all work of the stream. */
int cow_cuda_stream_wait(int device, cow_cuda_stream stream);

/* ---- Device memory: cow_cuda_memory(3) ---------------------------------- */

enum cow_cuda_backing {
	/* From the device's cache: the default. Lazy clones are copied whole when
	 * written; sent as a copy of its own the first time. */
	COW_CUDA_CACHED = 0,
	/* One piece of physical memory of its own: one descriptor when sent. Lazy
	 * clones are copied whole when written. */
	COW_CUDA_SINGLE = 1,
	/* Many pieces: writing a lazy clone copies the pieces that are written, and
	 * maps the others. As many descriptors as pieces when sent, in one queue. Its
	 * address changes when what it shares is written. */
	COW_CUDA_PIECES = 2,
};

struct cow_cuda_options {
	size_t size;
	uint32_t backing;  /* enum cow_cuda_backing */
	uint32_t flags;    /* COW_STORAGE_ZERO, or 0 */
	uint64_t piece;    /* of PIECES: bytes, a multiple of the granule; 0: it */
};

/*
 * A tracked storage on a device, of its thread's current stream. NULL options: all
 * zero, as cow_storage_new() with the device's allocator. -ENOMEM: after all that
 * could be given back was; the sentence says who has how much. -EBUSY: the stream
 * records a graph, and nothing that is cached is large enough. -ENOTSUP: SINGLE or
 * PIECES where the driver has no virtual memory. Cost: a fraction of a microsecond from
 * the cache, without a call of the driver.
 *
 * Freed memory is the next owner's on the same stream at once. A single piece goes back
 * to the driver when its streams have passed: noticed by later calls that need memory,
 * or by cow_cuda_empty_cache().
 */
int cow_cuda_storage_new(int device, size_t bytes,
                         const struct cow_cuda_options *options,
                         struct cow_storage **ret);

/* `stream` uses the storage's memory, too: it is given to nobody else before what is
 * queued there when it is freed has run. Memory of others: ignored. */
int cow_cuda_record_stream(struct cow_storage *storage, cow_cuda_stream stream);

/* Gives all that is cached and unused back to the driver. Waits for the streams that
 * still use some of it. -1: all devices, also those behind one that fails. -EBUSY: a
 * stream of the device records a graph, which that wait would break; what needs no wait
 * is given back. */
int cow_cuda_empty_cache(int device);

/* This process may have so much of the device's memory, cached or in use (0 to 1;
 * starts with 1). What it has already stays. -EINVAL: not such a number. */
int cow_cuda_set_fraction(int device, double fraction);

/* Of a number: how much now, the most so far, and what came and went in all. */
struct cow_cuda_stat {
	uint64_t current, peak, allocated, freed;
};
/* Of all, of small (up to 1 MiB) and of large requests. (PyTorch's DeviceStats.) */
enum cow_cuda_pool {
	COW_CUDA_ALL = 0,
	COW_CUDA_SMALL = 1,
	COW_CUDA_LARGE = 2,
	COW_CUDA_POOLS = 3,
};
struct cow_cuda_stats {
	size_t size; /* in: sizeof */
	/* Numbers of: requests served; stretches of mapped memory; blocks in use or
	 * waiting for a stream; unused parts of stretches that are in use. Storages of
	 * pieces, received ones and their written clones are each a large request at
	 * addresses of its own, counted as its pieces are long; */
	struct cow_cuda_stat allocation[COW_CUDA_POOLS], segment[COW_CUDA_POOLS],
	        active[COW_CUDA_POOLS], inactive_split[COW_CUDA_POOLS];
	/* Bytes of them; `reserved`: of physical memory that this process made, which
	 * clones share; `requested`: before rounding. */
	struct cow_cuda_stat allocated_bytes[COW_CUDA_POOLS],
	        reserved_bytes[COW_CUDA_POOLS], active_bytes[COW_CUDA_POOLS],
	        inactive_split_bytes[COW_CUDA_POOLS],
	        requested_bytes[COW_CUDA_POOLS];
	uint64_t retries;    /* requests that gave cached memory back first */
	uint64_t ooms;       /* and failed after that */
	uint64_t sync_all;   /* times all streams were waited for */
	uint64_t device_alloc, device_free; /* pieces from and to the driver */
	uint64_t pinned_bytes, pinned_cached_bytes; /* of host memory */
};
int cow_cuda_get_stats(int device, struct cow_cuda_stats *ret);
int cow_cuda_reset_peaks(int device);

enum cow_cuda_block_state {
	COW_CUDA_BLOCK_FREE = 0,
	COW_CUDA_BLOCK_USED = 1,
	COW_CUDA_BLOCK_WAITING = 2, /* freed, but a stream may still use it */
};
/* One block of a segment. Sorted by address. */
struct cow_cuda_block {
	uint64_t segment, segment_bytes; /* address; mapped bytes */
	uint64_t address, bytes, requested;
	cow_cuda_stream stream;
	uint32_t state;  /* enum cow_cuda_block_state */
	uint32_t pool;   /* enum cow_cuda_pool */
	uint64_t user;   /* cow_cuda_annotate() when it was made */
};
/* Up to `max` blocks; how many there are. Storages of pieces and received ones have
 * none. */
long cow_cuda_snapshot(int device, struct cow_cuda_block *blocks, size_t max);

enum cow_cuda_event_kind {
	COW_CUDA_ALLOC = 0,
	COW_CUDA_FREE_REQUESTED,
	COW_CUDA_FREE_COMPLETED,
	COW_CUDA_SEGMENT_MAP,
	COW_CUDA_SEGMENT_UNMAP,
	COW_CUDA_OOM,
	COW_CUDA_SNAPSHOT,
};
struct cow_cuda_trace_entry {
	uint32_t kind;   /* enum cow_cuda_event_kind */
	int32_t device;
	uint64_t address, bytes;
	cow_cuda_stream stream;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t user;
};
/* Keeps the last `entries` of each device (0: none, the start). read: the newest
 * `max`, oldest first; how many. */
int cow_cuda_trace_start(size_t entries);
long cow_cuda_trace_read(int device, struct cow_cuda_trace_entry *entries,
                         size_t max);
/* A number of the program's that goes with the calling thread's blocks from now on
 * (an address, a line, a step). */
void cow_cuda_annotate(uint64_t user);

/*
 * Observers, called without locks on the thread that runs out of memory. `low`:
 * before cached memory is given back; returns whether it freed something, and then
 * the request is tried again. `out`: the request fails. The struct must outlive its
 * being set; NULL ends that (calls under way in other threads may still finish).
 */
struct cow_cuda_observer {
	size_t size;
	bool (*low)(void *user, int device, size_t bytes);
	void (*out)(void *user, int device, size_t bytes, uint64_t reserved,
	            uint64_t device_free);
	void *user;
};
int cow_cuda_observe(const struct cow_cuda_observer *observer);

/* ---- Pinned host memory: cow_cuda_pinned(3) ----------------------------- */

/*
 * A storage of the CPU that devices reach directly: of exactly these bytes (rounded
 * to pages), cached when it is freed, and never in use again before the copies from and
 * to it have run. It stays where it is: its lazy clones are copies, sending it as a
 * clone copies it, a forked child has a copy, and it can't be resized. Sent as an alias
 * for the first time it moves to memory that can be shared, as other storages do, and is
 * pinned there; copies that are under way are waited for. From then on devices, this
 * process, its children and who got it have the same pages. (Who gets it has ordinary
 * memory, until he pins it for himself.) Cost: about what the driver needs to pin it, some 0.1 ms/MiB, or next to
 * nothing from the cache, which serves requests of up to an eighth less than it has.
 * -ENODEV before cow_cuda_start(); -ENOMEM: after unpinning what was cached.
 */
int cow_cuda_pinned_new(size_t bytes, struct cow_storage **ret);

/* Is it pinned, by this library or others? 1 or 0. */
int cow_cuda_is_pinned(const struct cow_storage *storage);

/* Unpins and gives back what is cached. What copies still use stays. */
int cow_cuda_pinned_empty_cache(void);

/* ---- Debugging: cow_cuda_debug(3) --------------------------------------- */

/*
 * Poison: copies with a handle (cow_tensor_copy_begin()) between pinned memory and a
 * device are watched. Host memory that one will fill reads as bytes 0xA5 until it is
 * there; and when the bytes that one reads were changed before it ended, polling or
 * waiting gives -EILSEQ. So whoever reads too early, or changes too early, notices.
 * Costs a wait for the stream and a fill, or two readings. Also option cuda-poison.
 */
int cow_cuda_set_poison(bool on);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT */
/*
 * cowshed: CUDA devices
 *
 * Library: libcowshed-cuda (pkg-config cowshed-cuda), which needs
 * libcowshed-tensor and libcowshed. A device of type COW_DEVICE_CUDA works once
 * the program calls cow_cuda_start(). (`cowshed doctor` loads the library by
 * itself.)
 *
 * Storages and tensors on NVIDIA GPUs. They have what cowshed.h,
 * cowshed-tensor.h and cowshed-share.h promise of host memory. Lazy clones are
 * materialized by range. Copies follow PyTorch's rules. Storages can be sent to
 * other processes.
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
 * The library is the same with and without a GPU. It looks for the driver when
 * the program asks for it (cow_cuda_start(), cow_cuda_info(),
 * cow_cuda_device_info()), and not before. It has kernels if it was built where
 * nvcc is; else strided copies are staged through the host.
 *
 * Contexts. The library uses the device's primary context, as the CUDA runtime
 * and PyTorch do. Their streams and pointers are valid here, and the other way
 * round. Each call leaves the thread's current context as it was.
 *
 * Order. Work is queued on the calling thread's *current stream* of a device:
 * the legacy default stream until cow_cuda_stream_set() names another one. A
 * storage belongs to the stream that was current when it was made. A program
 * that uses it on another stream orders the two itself, and says so:
 * cow_cuda_record_stream(). No call waits for a device unless it says so here.
 *
 * Clones. A lazy clone is ordered as a copy that was made on the stream that
 * was current at the call. The first write of a clone makes the writer's stream
 * wait, on the device, for the streams that used the memory before.
 *
 * While the current stream records a graph, nothing can be copied for a writer
 * of a clone: -EBUSY; write the clone once before. A storage that was cloned
 * during a recording can't be copied for a writer later either. The last clone
 * is written in place, also then. During a recording, a storage whose stream
 * ended with work under way can't be cloned.
 *
 * Graphs. All other work of the library breaks no recording, in this thread or
 * in another one. Where a recording would break, the library asks no event,
 * makes no memory and leaves the default stream alone. A call that needs one of
 * these is -EBUSY, before any part of it is recorded. The library must know of
 * the recording stream: a stream that is current in a thread
 * (cow_cuda_stream_set()), or that is ordered with the default stream.
 *
 * fork. A child may not use the devices that its parent started. Each call
 * gives -ECHILD, and says so. The child can free storages that it inherited,
 * and nothing else.
 *
 * Errors, ownership and threads are as in cowshed.h. Besides, calls give:
 *
 *   -EIO      an error of the device or its driver; cow_last_error() has
 *             the driver's words
 *   -ENODEV   no such device; or cow_cuda_start() comes first
 *   -ECHILD   after fork, see above
 */
#ifndef COWSHED_CUDA_H
#define COWSHED_CUDA_H

#include "cowshed-tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices: cow_cuda(3) ----------------------------------------------- */

/*
 * Loads the driver and finds its devices. Enters them in the tables of
 * allocators (cow_allocator_set(), priority 0) and of devices
 * (cow_device_set()). The driver is libcuda.so.1, or the environment's
 * COWSHED_CUDA_DRIVER, unless privileges are raised. Doing it again changes
 * nothing and returns 0. If the driver can't be loaded, later calls give the
 * same error. Thread-safe.
 *
 * Cost: that of cuInit, some 100 ms.
 *
 *   -ENODEV   no driver, or no device
 *   -ENOSYS   the driver is too old: it lacks a call that is needed
 *   -ECHILD   in a child of a process that had started them
 */
int cow_cuda_start(void);

/* How many devices were started; 0 before cow_cuda_start(). Never fails. */
int cow_cuda_count(void);

enum cow_cuda_kernels {
	COW_CUDA_KERNELS_NONE = 0,     /* built without nvcc */
	COW_CUDA_KERNELS_EMBEDDED = 1, /* in this library */
	COW_CUDA_KERNELS_DRIVER = 2,   /* brought by a driver for tests */
};

struct cow_cuda_info {
	size_t size;        /* in: sizeof(struct cow_cuda_info) */
	char path[256];     /* where the driver was loaded from */
	int driver_version; /* 12040: the driver speaks CUDA 12.4 */
	int devices;
	int kernels;        /* enum cow_cuda_kernels */
};

/* Describes the driver. Loads it, but starts no device. Errors as for
 * cow_cuda_start(); -EINVAL: `size`. */
int cow_cuda_info(struct cow_cuda_info *ret);

struct cow_cuda_device_info {
	size_t size;            /* in: sizeof(struct cow_cuda_device_info) */
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

/* Describes device `index`. Makes no context, takes no device memory. Errors as
 * for cow_cuda_info(); -ENODEV also: no such device. */
int cow_cuda_device_info(int index, struct cow_cuda_device_info *ret);

/* ---- Streams: cow_cuda_stream(3) ---------------------------------------- */

/*
 * A `cow_cuda_stream` is a CUstream (cudaStream_t). NULL is the legacy default
 * stream.
 *
 * new makes a stream that does not wait for the default stream. `priority` is
 * 0, or negative for a more urgent stream; it is clamped to what the device
 * has. The caller ends the stream with free.
 *
 * free takes any stream but the default one and those that are current. It does
 * not wait: queued work still runs. After that work, the memory that was made
 * on the stream goes to the device's other streams. Other memory that the
 * stream uses stays safe. After an error the stream is as it was, and goes on.
 *
 *   -EBUSY    free: it is current in this thread, or records a graph
 *   -EINVAL   free: the default stream
 */
typedef void *cow_cuda_stream;
int cow_cuda_stream_new(int device, int priority, cow_cuda_stream *ret);
int cow_cuda_stream_free(int device, cow_cuda_stream stream);

/*
 * The calling thread's current stream of the device. The stream stays the
 * caller's and must outlive its being current: other threads ask it whether it
 * records a graph. A stream that ended by cow_cuda_stream_free() is not asked.
 * -ENOMEM.
 */
int cow_cuda_stream_set(int device, cow_cuda_stream stream);
int cow_cuda_stream_get(int device, cow_cuda_stream *ret);

/* Orders two streams of a device: what is queued on `later` after this call
 * runs after what was queued on `first` before it. Does not wait on the host.
 * */
int cow_cuda_stream_after(int device, cow_cuda_stream later,
                          cow_cuda_stream first);

/* Waits, on the host, for all work of the stream. */
int cow_cuda_stream_wait(int device, cow_cuda_stream stream);

/* ---- Device memory: cow_cuda_memory(3) ---------------------------------- */

enum cow_cuda_backing {
	/* From the device's cache: the default. Lazy clones are copied whole
	 * when they are written. The first sending copies the bytes to a piece
	 * of their own. */
	COW_CUDA_CACHED = 0,
	/* One piece of physical memory of its own. Sending takes one descriptor.
	 * Lazy clones are copied whole when they are written. */
	COW_CUDA_SINGLE = 1,
	/* Many pieces. Writing a lazy clone copies the pieces that are written,
	 * and maps the others. Sending takes as many descriptors as pieces, in
	 * one queue. The address changes when shared pieces are written. */
	COW_CUDA_PIECES = 2,
};

/* NULL options mean all zero. A longer struct is -E2BIG if it has non-zero
 * bytes that this library does not know. */
struct cow_cuda_options {
	size_t size;       /* sizeof(struct cow_cuda_options) */
	uint32_t backing;  /* enum cow_cuda_backing */
	uint32_t flags;    /* COW_STORAGE_ZERO, or 0 */
	uint64_t piece;    /* of PIECES: bytes, a multiple of the granule; 0: it */
};

/*
 * Makes a tracked storage of `bytes` bytes on a device. It belongs to the
 * thread's current stream. With NULL options it is what cow_storage_new() makes
 * with the device's allocator. *ret is a reference; `ret` must not be NULL.
 *
 * When it is freed, the next owner on the same stream may get its memory at
 * once. A single piece goes back to the driver when its streams have passed.
 * Later calls that need memory notice that, and so does cow_cuda_empty_cache().
 *
 * Cost: a fraction of a microsecond from the cache, without a call of the
 * driver.
 *
 *   -ENOMEM    after all that could be given back was given back; the
 *              sentence says who has how much
 *   -EBUSY     the stream records a graph, and no cached memory is large
 *              enough
 *   -ENOTSUP   SINGLE or PIECES, and the driver has no virtual memory
 *   -EINVAL    no such backing, flags, piece or size
 *   -E2BIG     see cow_cuda_options
 */
int cow_cuda_storage_new(int device, size_t bytes,
                         const struct cow_cuda_options *options,
                         struct cow_storage **ret);

/*
 * Says that `stream` uses the storage's memory, too. When the storage is freed,
 * nobody else gets the memory before the work that is queued on `stream` has
 * run. Memory of other allocators is ignored. -ENOMEM.
 */
int cow_cuda_record_stream(struct cow_storage *storage, cow_cuda_stream stream);

/*
 * Gives all memory that is cached and unused back to the driver. Waits, on the
 * host, for the streams that still use some of it. `device` -1: all devices,
 * also those behind one that fails.
 *
 *   -EBUSY   a stream of the device records a graph, which that wait would
 *            break; memory that needs no wait was given back
 */
int cow_cuda_empty_cache(int device);

/* Sets how much of the device's memory this process may have, cached or in use:
 * a fraction from 0 to 1, which is the start. Memory that it has already stays.
 * -EINVAL: not such a number. */
int cow_cuda_set_fraction(int device, double fraction);

/* One counter: the present number, the highest so far, and all that came and
 * went. */
struct cow_cuda_stat {
	uint64_t current, peak, allocated, freed;
};

/* Requests are counted in all, and as small (up to 1 MiB) or large. (PyTorch's
 * DeviceStats.) */
enum cow_cuda_pool {
	COW_CUDA_ALL = 0,
	COW_CUDA_SMALL = 1,
	COW_CUDA_LARGE = 2,
	COW_CUDA_POOLS = 3,
};

struct cow_cuda_stats {
	size_t size; /* in: sizeof(struct cow_cuda_stats) */
	/* Numbers. allocation: requests served. segment: stretches of mapped
	 * memory. active: blocks in use or waiting for a stream. inactive_split:
	 * unused parts of stretches that are in use. A storage of pieces, a
	 * received one, or a written clone of these is one large request at
	 * addresses of its own. Its length is that of its pieces. */
	struct cow_cuda_stat allocation[COW_CUDA_POOLS], segment[COW_CUDA_POOLS],
	        active[COW_CUDA_POOLS], inactive_split[COW_CUDA_POOLS];
	/* Their bytes. reserved: of physical memory that this process made, which
	 * clones share. requested: before rounding. */
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

/* The counters of a device. A shorter struct, by its `size`, gets the members
 * that it has. -EINVAL: `size` ends before the bytes. */
int cow_cuda_get_stats(int device, struct cow_cuda_stats *ret);

/* Sets each peak to the present number. */
int cow_cuda_reset_peaks(int device);

enum cow_cuda_block_state {
	COW_CUDA_BLOCK_FREE = 0,
	COW_CUDA_BLOCK_USED = 1,
	COW_CUDA_BLOCK_WAITING = 2, /* freed, but a stream may still use it */
};

/* One block of a segment. */
struct cow_cuda_block {
	uint64_t segment, segment_bytes; /* address; mapped bytes */
	uint64_t address, bytes, requested;
	cow_cuda_stream stream;
	uint32_t state;  /* enum cow_cuda_block_state */
	uint32_t pool;   /* enum cow_cuda_pool */
	uint64_t user;   /* cow_cuda_annotate() when it was made */
};

/* Fills `blocks` with up to `max` blocks of the device, sorted by address.
 * Returns how many there are. Storages of pieces and received ones have no
 * blocks. */
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
	uint64_t user;    /* cow_cuda_annotate() */
};

/*
 * start keeps the last `entries` events of each device from now on; 0, the
 * start, keeps none. Events that were kept before are lost. read fills
 * `entries` with the newest `max` events, oldest first, and returns how many.
 *
 *   -EINVAL   more than 2^26 entries
 *   -ENOMEM
 */
int cow_cuda_trace_start(size_t entries);
long cow_cuda_trace_read(int device, struct cow_cuda_trace_entry *entries,
                         size_t max);

/* Sets a number of the program's (an address, a line, a step) that goes with
 * the blocks that the calling thread makes after this. Never fails. */
void cow_cuda_annotate(uint64_t user);

/*
 * Observers of a shortage, for the whole process. The library calls them
 * without locks held, on the thread that runs out of memory. `low`: before
 * cached memory is given back. It returns whether it freed something; then the
 * request is tried again. `out`: the request fails. `reserved` is what this
 * process has, and `device_free` what the device has left. Either may be NULL.
 *
 * cow_cuda_observe() sets them; NULL ends them. The struct stays the caller's
 * and must outlive its being set. Calls under way in other threads may still
 * finish after it was replaced. -EINVAL: `size` is not set.
 */
struct cow_cuda_observer {
	size_t size; /* sizeof(struct cow_cuda_observer) */
	bool (*low)(void *user, int device, size_t bytes);
	void (*out)(void *user, int device, size_t bytes, uint64_t reserved,
	            uint64_t device_free);
	void *user; /* the first argument of both */
};
int cow_cuda_observe(const struct cow_cuda_observer *observer);

/* ---- Pinned host memory: cow_cuda_pinned(3) ----------------------------- */

/*
 * Makes a storage of the CPU that devices reach directly, of `bytes` bytes. The
 * memory is exactly as large, rounded to pages. Freed memory is cached. It is
 * never in use again before the copies from and to it have run. *ret is a
 * reference.
 *
 * The storage stays where it is. Its lazy clones are copies, and sending it as
 * a clone copies it. A forked child has a copy. The storage can't be resized.
 *
 * The first time that it is sent as an alias it moves to memory that can be
 * shared, as other storages do. It is pinned there. The call waits for copies
 * that are under way. From then on devices, this process, its children and the
 * receivers have the same pages. (A receiver has ordinary memory, until it pins
 * it for itself.)
 *
 * Cost: about what the driver needs to pin it, some 0.1 ms/MiB; next to nothing
 * from the cache. Cached memory serves requests of its size and of up to an
 * eighth less.
 *
 *   -ENODEV   before cow_cuda_start()
 *   -ENOMEM   after unpinning cached memory
 *   -EINVAL   more than INT64_MAX bytes
 */
int cow_cuda_pinned_new(size_t bytes, struct cow_storage **ret);

/* Is it pinned host memory, by this library or by others? 1 or 0; never fails. */
int cow_cuda_is_pinned(const struct cow_storage *storage);

/* Unpins cached memory and gives it back. Memory that copies still use stays.
 * Does not wait. */
int cow_cuda_pinned_empty_cache(void);

/* ---- Debugging: cow_cuda_debug(3) --------------------------------------- */

/*
 * Poison: watches copies with a handle (cow_tensor_copy_begin()) between pinned
 * memory and a device. So a program notices if it reads host memory too early,
 * or changes it too early. Host memory that a copy will fill reads as bytes
 * 0xA5 until the copy's bytes are there. If the bytes that a copy reads are
 * changed before it ended, polling or waiting gives -EILSEQ.
 *
 * For the whole process; also the option cuda-poison. Returns 0. Cost for each
 * such copy: a wait for the stream and a fill, or two readings of the bytes.
 */
int cow_cuda_set_poison(bool on);

#ifdef __cplusplus
}
#endif

#endif

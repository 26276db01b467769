/* SPDX-License-Identifier: MIT */
/*
 * Devices: starting them, and entering them. See the header.
 *
 * All devices are started once. The lock for that is one of libc, not of the engine, because
 * the driver allocates. Later calls give the same result, except after a shortage, which
 * may be over.
 */
#include "cuda/context.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "cuda/piece.h"
#include "cuda/start.h"

#include <pthread.h>

static struct {
	pthread_mutex_t lock;
	int count; /* how many devices were started; set last */
	struct cow__cuda devices[COW_DEVICE_INDEXES];
} started = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int
attribute(const struct cow__cuda *d, unsigned which, int *ret)
{
	return cow__cu_error(d->cu->device_get_attribute(ret, which, d->handle),
	                     "asking a CUDA device what it can do");
}

/* Has the driver physical memory that we can map, and that can become descriptors? */
static int
probe_memory(struct cow__cuda *d)
{
	const struct cow__cu *cu = d->cu;
	struct cow__cu_prop prop = {
		.type = COW_CU_ALLOCATION_PINNED,
		.location = { COW_CU_LOCATION_DEVICE, d->handle },
	};
	int can = 0, fd = 0;
	int r;

	if (!cu->mem_create || !cu->mem_release || !cu->mem_address_reserve ||
	    !cu->mem_address_free || !cu->mem_map || !cu->mem_unmap ||
	    !cu->mem_set_access || !cu->mem_get_granularity)
		return 0;
	r = attribute(d, COW_CU_VIRTUAL_MEMORY, &can);
	if (r < 0 || !can)
		return r;
	r = attribute(d, COW_CU_HANDLE_POSIX_FD, &fd);
	if (r < 0)
		return r;
	d->can_share = fd && cu->mem_export && cu->mem_import;
	prop.handle_types = d->can_share ? COW_CU_HANDLE_FD : COW_CU_HANDLE_NONE;
	r = cow__cu_error(cu->mem_get_granularity(&d->granule, &prop,
	                                          COW_CU_GRANULARITY_MINIMUM),
	                  "asking for the granularity of device memory");
	d->virtual_memory = r == 0;
	return r;
}

static int
probe_peers(struct cow__cuda *d, int count)
{
	for (int i = 0; i < count; i++) {
		int can = 0, r;

		if (i == d->index)
			continue;
		r = cow__cu_error(d->cu->can_access_peer(
		                          &can, d->handle,
		                          started.devices[i].handle),
		                  "asking whether devices reach each other");
		if (r < 0)
			return r;
		if (can)
			d->peers |= (uint64_t)1 << i;
	}
	return 0;
}

static int
probe(struct cow__cuda *d)
{
	size_t total;
	int r;

	if ((r = attribute(d, COW_CU_CAPABILITY_MAJOR, &d->major)) < 0 ||
	    (r = attribute(d, COW_CU_CAPABILITY_MINOR, &d->minor)) < 0 ||
	    (r = attribute(d, COW_CU_MULTIPROCESSORS, &d->processors)) < 0)
		return r;
	r = cow__cu_error(d->cu->device_total_mem(&total, d->handle),
	                  "asking for a device's memory");
	if (r < 0)
		return r;
	d->total_bytes = total;
	return probe_memory(d);
}

static int
start(int *ret)
{
	const struct cow__cu *cu;
	int count = 0, r = cow__cu_start(&cu);

	if (r < 0)
		return r;
	r = cow__cu_error(cu->device_get_count(&count), "counting CUDA devices");
	if (r < 0)
		return r;
	if (count == 0)
		return cow__error(-ENODEV, "the CUDA driver has no device");
	if (count > COW_DEVICE_INDEXES)
		count = COW_DEVICE_INDEXES;
	for (int i = 0; i < count; i++) {
		struct cow__cuda *d = &started.devices[i];

		d->cu = cu;
		d->index = i;
		r = cow__cu_error(cu->device_get(&d->handle, i),
		                  "finding a CUDA device");
		if (r < 0)
			return r;
	}
	for (int i = 0; i < count; i++) {
		struct cow__cuda *d = &started.devices[i];

		r = probe(d);
		if (r == 0)
			r = probe_peers(d, count);
		if (r == 0 && !d->context)
			r = cow__cu_error(cu->primary_retain(&d->context,
			                                     d->handle),
			                  "making a device's context");
		if (r < 0)
			return r;
	}
	r = cow__cuda_register(started.devices, count);
	if (r == 0)
		*ret = count;
	return r;
}

COW_EXPORT int
cow_cuda_start(void)
{
	const struct cow__cu *cu;
	int count = 0, r = cow__cu_start(&cu);

	/* It fails in a forked child, also if another thread of the parent had the lock below at
	 * the fork. */
	if (r < 0)
		return r;
	/* Pairs with the store below. */
	if (__atomic_load_n(&started.count, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&started.lock);
	if (!started.count) {
		r = start(&count);
		if (r == 0)
			__atomic_store_n(&started.count, count,
			                 __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&started.lock);
	return r;
}

COW_EXPORT int
cow_cuda_count(void)
{
	return __atomic_load_n(&started.count, __ATOMIC_ACQUIRE);
}

int
cow__cuda_get(int index, struct cow__cuda **ret)
{
	int count = cow_cuda_count(), r;
	const struct cow__cu *cu;

	if (cow__unlikely(count == 0))
		return cow__error(-ENODEV, "no CUDA device was started: call "
		                           "cow_cuda_start() first");
	r = cow__cu_start(&cu);
	if (cow__unlikely(r < 0))
		return r;
	if (cow__unlikely(index < 0 || index >= count))
		return cow__error_number(-ENODEV, "no CUDA device #",
		                         (uint64_t)index);
	*ret = &started.devices[index];
	return 0;
}

/* How often the thread has entered, and the mode that it had before. These are two words: a
 * library that is loaded late gets little thread-local memory. */
static __thread struct {
	unsigned depth, mode;
} entries;

int
cow__cuda_enter(struct cow__cuda *d)
{
	int r = cow__cu_error(d->cu->ctx_push_current(d->context),
	                      "entering a device's context");

	if (r < 0)
		return r;
	if (entries.depth++ == 0) {
		entries.mode = COW_CU_CAPTURE_RELAXED;
		if (d->cu->thread_capture_mode)
			(void)d->cu->thread_capture_mode(&entries.mode);
	}
	return 0;
}

void
cow__cuda_leave(struct cow__cuda *d)
{
	struct cow__cu_context *ours;

	if (--entries.depth == 0 && entries.mode != COW_CU_CAPTURE_RELAXED)
		(void)d->cu->thread_capture_mode(&entries.mode);
	(void)d->cu->ctx_pop_current(&ours);
}

int
cow__cuda_reach(struct cow__cuda *d, const struct cow__cuda *peer)
{
	uint64_t bit = (uint64_t)1 << peer->index;
	enum cow__cu_result result;

	if (__atomic_load_n(&d->peers_on, __ATOMIC_RELAXED) & bit)
		return 0;
	if (!(d->peers & bit))
		return cow__error(-EOPNOTSUPP,
		                  "the device can't reach the other one's memory");
	result = d->cu->enable_peer(peer->context, 0);
	/* Another library of the process may have enabled it. */
	if (result != COW_CU_PEER_ACCESS_ALREADY_ENABLED) {
		int r = cow__cu_error(result, "letting a device reach another");

		if (r < 0)
			return r;
	}
	/* That call is for memory of cuMemAlloc. Ours is opened map by map. */
	if (peer->virtual_memory) {
		int r = cow__cuda_maps_open(peer, d);

		if (r < 0)
			return r;
	}
	__atomic_fetch_or(&d->peers_on, bit, __ATOMIC_RELAXED);
	return 0;
}

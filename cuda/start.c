/* SPDX-License-Identifier: MIT */
/*
 * Starting the devices: they are probed, then other parts of the library are told of them
 *
 * All devices are started once. The lock for that is one of libc, not of the engine, because
 * the driver allocates. Later calls give the same result, except after a shortage, which
 * may be over.
 */
#include "cuda/start.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "cuda/copy.h"
#include "cuda/data.h"
#include "cuda/kernels.h"
#include "cuda/parcel.h"

#include <pthread.h>

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* Registers `count` probed devices. A failure undoes all of it. */
static int
register_all(struct cow__cuda *devices, int count)
{
	int r = 0;

	/* Before any storage can be made. */
	__atomic_store_n(&cow__allocation_adopt[COW_DEVICE_CUDA],
	                 cow__cuda_data_adopt, __ATOMIC_RELEASE);
	__atomic_store_n(&cow__parcel_ops, &cow__cuda_parcel_ops,
	                 __ATOMIC_RELEASE);
	for (int i = 0; r == 0 && i < count; i++)
		r = cow__cuda_kernels_start(&devices[i]);
	if (r == 0)
		r = cow_device_set(COW_DEVICE_CUDA, &cow__cuda_ops);
	return r < 0 ? r : cow__cuda_allocators_set(devices, count);
}

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
		                          cow__cuda_started.devices[i].handle),
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
start_devices(int *ret)
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
		struct cow__cuda *d = &cow__cuda_started.devices[i];

		d->cu = cu;
		d->index = i;
		r = cow__cu_error(cu->device_get(&d->handle, i),
		                  "finding a CUDA device");
		if (r < 0)
			return r;
	}
	for (int i = 0; i < count; i++) {
		struct cow__cuda *d = &cow__cuda_started.devices[i];

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
	r = register_all(cow__cuda_started.devices, count);
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
	if (__atomic_load_n(&cow__cuda_started.count, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&starting);
	if (!cow__cuda_started.count) {
		r = start_devices(&count);
		if (r == 0)
			__atomic_store_n(&cow__cuda_started.count, count,
			                 __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&starting);
	return r;
}

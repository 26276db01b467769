/* SPDX-License-Identifier: MIT */
/*
 * Questions about CUDA: its driver, its devices, and the kind of memory at an address
 */
#include "core/base/base.h"
#include "core/base/error.h"
#include "cuda/driver.h"
#include "cuda/kernels.h"
#include "cuda/pinned.h"
#include "cowshed-cuda.h"

COW_EXPORT int
cow_cuda_info(struct cow_cuda_info *ret)
{
	struct cow_cuda_info info = { .size = sizeof(info) };
	const struct cow__cu *cu;
	int r;

	if (!ret || ret->size < sizeof(info))
		return cow__error(-EINVAL, "cow_cuda_info: NULL, or size is not set");
	info.size = ret->size;
	r = cow__cu_start(&cu);
	if (r == 0)
		r = cow__cu_error(cu->device_get_count(&info.devices), "counting devices");
	if (r < 0)
		return r;
	strcpy(info.path, cow__cu_path());
	info.driver_version = cow__cu_version();
	info.kernels = cow__cuda_kernels_kind();
	*ret = info;
	return 0;
}

/* An attribute of a device; 0 if an older driver does not know it. */
static int
attribute(const struct cow__cu *cu, unsigned which, cow__cu_device device)
{
	int value = 0;

	return cu->device_get_attribute(&value, which, device) == COW_CU_SUCCESS ? value : 0;
}

static uint64_t
peers_of(const struct cow__cu *cu, cow__cu_device device)
{
	uint64_t peers = 0;
	int n = 0, can;

	if (cu->device_get_count(&n) != COW_CU_SUCCESS)
		return 0;
	for (int i = 0; i < n && i < 64; i++) {
		cow__cu_device other;

		if (cu->device_get(&other, i) == COW_CU_SUCCESS && other != device &&
		    cu->can_access_peer(&can, device, other) == COW_CU_SUCCESS && can)
			peers |= (uint64_t)1 << i;
	}
	return peers;
}

COW_EXPORT int
cow_cuda_device_info(int index, struct cow_cuda_device_info *ret)
{
	struct cow_cuda_device_info info = { .size = sizeof(info) };
	const struct cow__cu *cu;
	struct cow__cu_uuid uuid;
	cow__cu_device d;
	size_t bytes;
	int r;

	if (!ret || ret->size < sizeof(info))
		return cow__error(-EINVAL, "cow_cuda_device_info: NULL, or size is not set");
	info.size = ret->size;
	r = cow__cu_start(&cu);
	if (r == 0)
		r = cow__cu_error(cu->device_get(&d, index), "looking for the device");
	if (r == 0)
		r = cow__cu_error(cu->device_get_name(info.name, sizeof(info.name), d),
		                  "the device's name");
	if (r == 0)
		r = cow__cu_error(cu->device_total_mem(&bytes, d), "the device's memory");
	if (r < 0)
		return r;
	info.memory_bytes = bytes;
	if (cu->device_get_uuid && cu->device_get_uuid(&uuid, d) == COW_CU_SUCCESS)
		memcpy(info.uuid, uuid.bytes, sizeof(info.uuid));
	info.capability_major = attribute(cu, COW_CU_CAPABILITY_MAJOR, d);
	info.capability_minor = attribute(cu, COW_CU_CAPABILITY_MINOR, d);
	info.multiprocessors = attribute(cu, COW_CU_MULTIPROCESSORS, d);
	info.virtual_memory = attribute(cu, COW_CU_VIRTUAL_MEMORY, d) && cu->mem_create &&
	                      cu->mem_map;
	info.memory_fds = info.virtual_memory && attribute(cu, COW_CU_HANDLE_POSIX_FD, d);
	info.event_sharing = attribute(cu, COW_CU_IPC_EVENT, d) && cu->ipc_get_event;
	info.host_register = attribute(cu, COW_CU_HOST_REGISTER, d);
	info.peers = peers_of(cu, d);
	*ret = info;
	return 0;
}

COW_EXPORT int
cow_cuda_is_pinned(const struct cow_storage *storage)
{
	const void *data = cow_storage_data(storage);
	struct cow__cuda *d;
	unsigned type = 0;

	if (!data || cow_storage_device(storage).type != COW_DEVICE_CPU ||
	    cow_cuda_count() == 0 || cow__cuda_get(0, &d) < 0)
		return 0;
	if (cow__cuda_pinned_has(data))
		return 1;
	if (cow__cuda_enter(d) < 0)
		return 0;
	/* Memory that another library pinned: the driver knows it. */
	if (d->cu->pointer_get_attribute(&type, COW_CU_POINTER_MEMORY_TYPE,
	                                 (uintptr_t)data) != COW_CU_SUCCESS)
		type = 0;
	cow__cuda_leave(d);
	return type == COW_CU_MEMORY_HOST;
}

/* SPDX-License-Identifier: MIT */
/*
 * Starting the devices. See the header.
 */
#include "cuda/start.h"
#include "core/base/base.h"
#include "cuda/copy.h"
#include "cuda/data.h"
#include "cuda/kernels.h"
#include "cuda/parcel.h"

int
cow__cuda_register(struct cow__cuda *devices, int count)
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

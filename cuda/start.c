/* SPDX-License-Identifier: MIT */
/*
 * Starting: see the header.
 */
#include "cuda/start.h"
#include "core/base.h"
#include "cuda/data.h"
#include "cuda/parcel.h"

int
cow__cuda_register(struct cow__cuda *devices, int count)
{
	/* Before anything can be made. */
	__atomic_store_n(&cow__allocation_adopt[COW_DEVICE_CUDA],
	                 cow__cuda_data_adopt, __ATOMIC_RELEASE);
	__atomic_store_n(&cow__parcel_ops, &cow__cuda_parcel_ops,
	                 __ATOMIC_RELEASE);
	return cow__cuda_allocators_set(devices, count);
}

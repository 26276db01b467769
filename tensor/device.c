/* SPDX-License-Identifier: MIT */
/*
 * The table of devices
 *
 * The CPU and the meta device have no entry: the engine copies host memory, and meta tensors
 * have no bytes.
 */
#include "tensor/device.h"
#include "core/base/base.h"
#include "core/base/error.h"

static const struct cow_device_ops *table[COW_DEVICE_TYPES];

COW_EXPORT int
cow_device_set(enum cow_device_type type, const struct cow_device_ops *ops)
{
	if ((unsigned)type >= COW_DEVICE_TYPES || type == COW_DEVICE_CPU ||
	    type == COW_DEVICE_META)
		return cow__error_number(-EINVAL,
		                         "device type # can't be registered",
		                         (uint64_t)type);
	/* In the first release the table ended before `mark`. */
	if (ops && (ops->size < offsetof(struct cow_device_ops, mark) ||
	            !ops->from_host || !ops->to_host))
		return cow__error(-EINVAL, "cow_device_ops: size, from_host or "
		                           "to_host is missing");
	/* Pairs with the load in cow__device_ops(). */
	__atomic_store_n(&table[type], ops, __ATOMIC_RELEASE);
	return 0;
}

const struct cow_device_ops *
cow__device_ops(struct cow_device device)
{
	if ((unsigned)device.type >= COW_DEVICE_TYPES)
		return NULL;
	return __atomic_load_n(&table[device.type], __ATOMIC_ACQUIRE);
}

const struct cow_device_ops *
cow__device_marks(struct cow_device device)
{
	const struct cow_device_ops *ops = cow__device_ops(device);

	if (!ops || ops->size < offsetof(struct cow_device_ops, current) || !ops->mark || !ops->passed ||
	    !ops->await || !ops->mark_free)
		return NULL;
	return ops;
}

#define HAS(ops, member)                                                       \
	((ops) &&                                                              \
	 (ops)->size >= offsetof(struct cow_device_ops, member) +              \
	                        sizeof((ops)->member) &&                       \
	 (ops)->member)

int
cow__device_said(const struct cow_device_ops *ops, int r)
{
	if (r >= 0)
		return r;
	cow__error_stands();
	return cow__error_passed(r, ops->name ? ops->name : "a device");
}

void
cow__device_resolve(struct cow_device *device)
{
	const struct cow_device_ops *ops = cow__device_ops(*device);

	if (device->index == -1)
		device->index = HAS(ops, current)
		                        ? (int16_t)ops->current(ops->user)
		                        : 0;
}

int
cow__device_host_new(struct cow_device device, size_t bytes, struct cow_storage **ret)
{
	const struct cow_device_ops *ops = cow__device_ops(device);

	return HAS(ops, host_new) ? ops->host_new(ops->user, device, bytes, ret)
	                          : -ENOTSUP;
}

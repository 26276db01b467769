/* SPDX-License-Identifier: MIT */
/*
 * Allocators: the registry, and calls that profiling sees. See cowshed.h.
 */
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/memory/state.h"
#include "cowshed.h"

static struct {
	struct cow_allocator *allocator;
	int priority;
	bool set; /* false: the default, for the CPU */
} registry[COW_DEVICE_TYPES][COW_DEVICE_INDEXES]; /* under the engine's lock */

static bool
complete(const struct cow_allocator *a)
{
	return a && a->size >= sizeof(*a) && a->allocate;
}

static bool
known(struct cow_device d)
{
	return (uint16_t)d.type < COW_DEVICE_TYPES &&
	       (uint16_t)d.index < COW_DEVICE_INDEXES;
}

COW_EXPORT int
cow_allocator_set(struct cow_device device, struct cow_allocator *allocator,
                  int priority)
{
	int r = 1;

	if (!known(device))
		return cow__error(-EINVAL, "no such device type or index");
	if (allocator && !complete(allocator))
		return cow__error(-EINVAL, "cow_allocator: size or allocate is not set");
	if (allocator && (allocator->device.type != device.type ||
	                  allocator->device.index != device.index))
		return cow__error(-EINVAL,
		                  "cow_allocator: its memory is of another device");
	cow__engine_lock();
	if (priority >= registry[device.type][device.index].priority) {
		registry[device.type][device.index].allocator = allocator;
		registry[device.type][device.index].priority = priority;
		registry[device.type][device.index].set = true;
		r = 0;
	}
	cow__engine_unlock();
	return r;
}

COW_EXPORT int
cow_allocator_get(struct cow_device device, struct cow_allocator **ret)
{
	struct cow_allocator *a;

	if (!known(device) || !ret)
		return cow__error(-EINVAL, "no such device type or index");
	cow__engine_lock();
	a = registry[device.type][device.index].allocator;
	if (!registry[device.type][device.index].set &&
	    device.type == COW_DEVICE_CPU && device.index == 0)
		a = cow_allocator_default();
	cow__engine_unlock();
	if (!a)
		return cow__error_number(
		        -ENODEV, "no allocator is set for the device, type #",
		        (uint64_t)device.type);
	*ret = a;
	return 0;
}

COW_EXPORT int
cow_allocator_allocate(struct cow_allocator *a, size_t bytes,
                       struct cow_data_ptr *ret)
{
	struct cow_data_ptr p;
	int r;

	if (!complete(a) || !ret)
		return cow__error(-EINVAL, "cow_allocator_allocate: NULL");
	if (bytes > (size_t)INT64_MAX)
		return cow__error_number(
		        -EINVAL, "# bytes: a size beyond INT64_MAX is a mistake "
		                 "(negative?)", bytes);
	if (bytes == 0) {
		*ret = (struct cow_data_ptr){ .device = a->device };
		return 0;
	}
	cow__error_begin();
	r = a->allocate(a, bytes, &p);
	if (r < 0) {
		cow__error_stands(); /* the allocator may set a sentence */
		cow__profile_failure_device(bytes, a->device);
		return cow__error_passed(r, a->name ? a->name : "allocator");
	}
	/* The default allocator reports by itself, since it sees its frees. */
	if (a != cow_allocator_default())
		cow__profile_device(p.data, (int64_t)bytes, a->device);
	*ret = p;
	return 0;
}

COW_EXPORT int
cow_allocator_clone(struct cow_allocator *a, const void *src, size_t bytes,
                    struct cow_data_ptr *ret)
{
	struct cow_data_ptr p;
	int r;

	if (bytes && !src)
		return cow__error(-EINVAL, "cow_allocator_clone: NULL");
	r = cow_allocator_allocate(a, bytes, &p);
	if (r < 0)
		return r;
	cow__error_begin();
	if (bytes && a->copy_data)
		r = a->copy_data(a, p.data, src, bytes);
	else if (bytes)
		memcpy(p.data, src, bytes);
	if (r < 0) {
		cow__error_stands();
		cow_data_ptr_clear(&p);
		return cow__error_passed(r, "copy_data");
	}
	*ret = p;
	return 0;
}

COW_EXPORT int
cow_allocator_raw_allocate(struct cow_allocator *a, size_t bytes, void **ret)
{
	struct cow_data_ptr p;
	int r;

	if (!complete(a) || !ret)
		return cow__error(-EINVAL, "cow_allocator_raw_allocate: NULL");
	if (!a->raw_deleter)
		return cow__error(-ENOTSUP, "the allocator has no raw form");
	r = cow_allocator_allocate(a, bytes, &p);
	if (r < 0)
		return r;
	if (bytes && (p.data != p.context || p.deleter != a->raw_deleter)) {
		cow_data_ptr_clear(&p);
		return cow__error(-EINVAL, "the allocator has a raw_deleter, but "
		                           "its memory has another deleter or context");
	}
	*ret = p.data;
	return 0;
}

COW_EXPORT int
cow_allocator_raw_deallocate(struct cow_allocator *a, void *data)
{
	if (!complete(a))
		return cow__error(-EINVAL,
		                  "cow_allocator_raw_deallocate: NULL");
	if (!a->raw_deleter)
		return cow__error(-ENOTSUP, "the allocator has no raw form");
	if (data)
		a->raw_deleter(data);
	return 0;
}

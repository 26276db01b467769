/* SPDX-License-Identifier: MIT */
/*
 * Observers of memory: see the header.
 */
#include "core/base/profile.h"
#include "core/base/base.h"
#include "core/base/error.h"

static const struct cow_profiler *profiler;
static uint64_t total_bytes;

COW_EXPORT int
cow_profiler_set(const struct cow_profiler *p)
{
	if (p && p->size < sizeof(*p))
		return cow__error(-EINVAL, "cow_profiler: size is not set");
	__atomic_store_n(&profiler, p, __ATOMIC_RELEASE);
	return 0;
}

COW_EXPORT void
cow__profile_device(const void *data, int64_t delta, struct cow_device device)
{
	uint64_t total = __atomic_add_fetch(&total_bytes, (uint64_t)delta,
	                                    __ATOMIC_RELAXED);
	const struct cow_profiler *p =
	        __atomic_load_n(&profiler, __ATOMIC_ACQUIRE);

	if (cow__unlikely(p != NULL) && p->on_memory)
		p->on_memory(p->user, data, delta, total, device);
}

void
cow__profile_failure_device(size_t bytes, struct cow_device device)
{
	const struct cow_profiler *p =
	        __atomic_load_n(&profiler, __ATOMIC_ACQUIRE);

	if (p && p->on_out_of_memory)
		p->on_out_of_memory(
		        p->user, bytes,
		        __atomic_load_n(&total_bytes, __ATOMIC_RELAXED),
		        device);
}

void
cow__profile(const void *data, int64_t delta)
{
	cow__profile_device(data, delta,
	                    (struct cow_device){ COW_DEVICE_CPU, 0 });
}

void
cow__profile_failure(size_t bytes)
{
	cow__profile_failure_device(bytes,
	                            (struct cow_device){ COW_DEVICE_CPU, 0 });
}

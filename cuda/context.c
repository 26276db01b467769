/* SPDX-License-Identifier: MIT */
/*
 * Devices that were started: entering them. See the header.
 */
#include "cuda/context.h"
#include "core/base/base.h"
#include "core/base/error.h"

struct cow__cuda_started cow__cuda_started;

COW_EXPORT int
cow_cuda_count(void)
{
	return __atomic_load_n(&cow__cuda_started.count, __ATOMIC_ACQUIRE);
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
	*ret = &cow__cuda_started.devices[index];
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

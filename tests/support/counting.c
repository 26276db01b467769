/* SPDX-License-Identifier: MIT */
/*
 * Test support: an allocator that counts
 *
 * The raw form promises that data and context are the same, so the deleter
 * gets no more than the bytes: what is alive is counted for all such
 * allocators together.
 */
#include "tests/support/counting.h"

#include <stdlib.h>
#include <string.h>

static int live;

static void counting_delete(void *context)
{
	__atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
	free(context);
}

static int counting_allocate(struct cow_allocator *self, size_t bytes,
                             struct cow_data_ptr *ret)
{
	struct counting *counting = (struct counting *)self;
	void *bare;

	if (counting->fail != 0)
		return counting->fail;
	bare = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (bare == NULL)
		abort();
	counting->allocations++;
	__atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
	*ret = cow_data_ptr_make(bare, bare, counting_delete, self->device);
	return 0;
}

static int counting_copy(struct cow_allocator *self, void *dst, const void *src,
                         size_t bytes)
{
	struct counting *counting = (struct counting *)self;

	if (counting->fail_copy != 0)
		return counting->fail_copy;
	counting->copies++;
	memcpy(dst, src, bytes);
	return 0;
}

void counting_make(struct counting *counting)
{
	memset(counting, 0, sizeof(*counting));
	counting->base.size = sizeof(counting->base);
	counting->base.name = "counting";
	counting->base.device.type = COW_DEVICE_PRIVATE;
	counting->base.device.index = 2;
	counting->base.allocate = counting_allocate;
	counting->base.copy_data = counting_copy;
	counting->base.raw_deleter = counting_delete;
}

int counting_live(const struct counting *counting)
{
	(void)counting;
	return __atomic_load_n(&live, __ATOMIC_SEQ_CST);
}

/* SPDX-License-Identifier: MIT */
/*
 * Blocks: raw transparent memory, for allocators on top of the engine
 *
 * A block has an address and no handle. cow_block_new() and its kin are the
 * malloc family of the engine.
 */
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/base/stats.h"
#include "core/cow/sparse.h"
#include "core/memory/apart.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/overcommit.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/storage/allocation.h"
#include "core/storage/block.h"
#include "core/storage/small.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"

/* The tile of a live block that starts at `ptr`. Any other pointer is a double
 * free or not ours: the process ends. Engine locked. */
static struct cow__tile *
block_at(const void *ptr)
{
	struct cow__tile *t = cow__tile_find((uintptr_t)ptr);

	cow__require(t && t->kind == COW__LIVE && cow__tile_is_block(t) &&
	             cow__tile_start(t) == (uintptr_t)ptr);
	return t;
}

static int
block_new(size_t bytes, size_t alignment, unsigned flags, struct cow__tile **ret,
          size_t *ret_dirty)
{
	return bytes > (size_t)INT64_MAX
	               ? -ENOMEM
	               : cow__extent_make(bytes, alignment, flags, COW__USE_BLOCK, NULL, ret,
	                                  ret_dirty);
}

COW_EXPORT int
cow_block_new(size_t bytes, size_t alignment, uint32_t flags, void **ret)
{
	struct cow__tile *t;
	size_t dirty;
	int r;

	if (!ret || (alignment & (alignment - 1)) || (flags & ~COW_BLOCK_ZERO))
		return cow__error(-EINVAL, "cow_block_new: alignment is not a "
		                           "power of two, or unknown flags");
	if (alignment > GIB * 1024)
		return cow__error(-EINVAL, "cow_block_new: alignment is more than 1 TiB");
	if (cow__retired()) /* the next allocator serves */
		return cow__error(-EPERM, "cow_block_new: the process filters its calls");
	r = cow__overcommit_ask(bytes);
	if (r == 0)
		r = block_new(bytes, alignment, 0, &t, &dirty);
	if (r < 0)
		return cow__error_from(r, "cow_block_new");
	if (flags & COW_BLOCK_ZERO)
		cow__sparse_clear(t, 0, dirty);
	*ret = (void *)cow__tile_start(t);
	return 0;
}

COW_EXPORT int
cow__block_zeroed(size_t bytes, void **ret)
{
	struct cow__tile *t;
	size_t dirty;
	int r = cow__overcommit_ask(bytes);

	if (r == 0)
		r = block_new(bytes, 0, COW__EXTENT_ZEROED, &t, &dirty);
	if (r < 0)
		return r;
	/* Without PAGEMAP_SCAN nothing tells which pages were only read. */
	if (t->map.backing != COW__ANON || cow__pagemap_has_scan() || dirty % cow__page != 0 ||
	    cow__map_zap(cow__tile_start(t), dirty) < 0)
		cow__sparse_clear(t, 0, dirty);
	*ret = (void *)cow__tile_start(t);
	return 0;
}

static void
block_free_locked(struct cow__tile *t)
{
	t->map.use = t->map.allocation ? COW__USE_EXPOSED : COW__USE_STORAGE;
	if (t->map.allocation) /* a storage holds on to it */
		return;
	if (!cow__engine.retired)
		cow__apart_free(t);
	else if (t->bytes >= COW__BLOCK_KEPT_MOST)
		cow__extent_free(t);
	else /* the filter may not let libc unmap anything */
		cow__stat_add(bytes_limbo, t->bytes);
}

COW_EXPORT void
cow_block_free(void *ptr)
{
	if (!ptr)
		return;
	cow__engine_lock();
	block_free_locked(block_at(ptr));
	cow__engine_tick();
	cow__engine_unlock();
}

COW_EXPORT size_t
cow_block_bytes(const void *ptr)
{
	size_t bytes;

	cow__engine_lock();
	bytes = cow__extent_usable(block_at(ptr));
	cow__engine_unlock();
	return bytes;
}

COW_EXPORT int
cow_block_resize(void *ptr, size_t bytes, void **ret)
{
	struct cow__tile *t, *fresh;
	size_t old, dirty;
	bool done;
	int r;

	if (!ptr || !ret)
		return cow__error(-EINVAL, "cow_block_resize: NULL");
	if (bytes > (size_t)INT64_MAX)
		return cow__error(-ENOMEM, "cow_block_resize: the size is beyond INT64_MAX");
	old = cow_block_bytes(ptr);
	if (cow__retired() && (bytes > old || bytes < old / 2))
		return cow__error(-EPERM, "cow_block_resize: the process filters its calls");
	if (cow__retired()) {
		*ret = ptr;
		return 0;
	}
	r = bytes > old ? cow__overcommit_ask(bytes - old) : 0; /* it may lock */
	cow__engine_lock();
	t = block_at(ptr);
	if (bytes < old)
		(void)cow__commit_wait(&t, (uintptr_t)ptr);
	done = r == 0 && !t->map.allocation && cow__extent_resize(t, bytes ? bytes : 1);
	cow__engine_unlock();
	if (done) {
		*ret = ptr;
		return 0;
	}
	/* It grows now, so it may grow again: give it room for that. */
	if (r == 0)
		r = block_new(bytes, 0,
		              bytes > old && bytes >= COW__HUGE ? COW__EXTENT_ROOM : 0, &fresh,
		              &dirty);
	if (r < 0)
		return cow__error_from(r, "cow_block_resize");
	cow__sparse_copy(fresh, t, cow__min(old, bytes), dirty);
	cow_block_free(ptr);
	*ret = (void *)cow__tile_start(fresh);
	return 0;
}

COW_EXPORT void
cow_window(uintptr_t *ret_start, uintptr_t *ret_end)
{
	if (ret_start)
		*ret_start = __atomic_load_n(&cow__engine.start, __ATOMIC_ACQUIRE);
	if (ret_end)
		*ret_end = __atomic_load_n(&cow__engine.end, __ATOMIC_ACQUIRE);
}

/* The functions of the default allocator: small data goes to slabs. */

static void
raw_free(void *data)
{
	struct cow__tile *t;
	bool small;
	size_t bytes;

	if (!data)
		return;
	cow__engine_lock();
	t = cow__tile_find((uintptr_t)data);
	small = t && t->map.slab;
	bytes = small ? cow__small_bytes(t->map.slab) : t ? cow__extent_usable(t) : 0;
	cow__engine_unlock();
	cow__profile(data, -(int64_t)bytes);
	if (small)
		cow__small_free(data);
	else
		cow_block_free(data);
}

static int
raw_allocate(struct cow_allocator *self, size_t bytes, struct cow_data_ptr *ret)
{
	struct cow__tile *t;
	size_t dirty;
	void *data;
	int r;

	if (bytes <= COW__SMALL_MAX) {
		r = cow__small_new(&bytes, false, &data);
	} else {
		r = block_new(bytes, 0, 0, &t, &dirty);
		data = r == 0 ? (void *)cow__tile_start(t) : NULL;
		bytes = cow__round_up(bytes, cow__page);
	}
	if (r == 0)
		cow__profile(data, (int64_t)bytes);
	if (r == 0)
		*ret = cow_data_ptr_make(data, data, raw_free, self->device);
	return r;
}

COW_EXPORT struct cow_allocator *
cow_allocator_default(void)
{
	static struct cow_allocator allocator = {
		.size = sizeof(allocator),
		.name = "cowshed",
		.device = { COW_DEVICE_CPU, 0 },
		.allocate = raw_allocate,
		.raw_deleter = raw_free,
	};

	return &allocator;
}

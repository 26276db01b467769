/* SPDX-License-Identifier: MIT */
/*
 * Pinned extents: see the header.
 */
#include "core/cow/pin.h"
#include "core/base/base.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"

COW_EXPORT int
cow__pinned_extent_new(size_t bytes, void **ret)
{
	struct cow__tile *t;
	size_t dirty;
	int r = cow__engine_enter();

	if (r < 0)
		return r;
	/* It is written in place beside children, so in no file that they map. */
	r = cow__extent_new(bytes, 0,
	                    COW__EXTENT_MEMFD | COW__EXTENT_WHOLE | COW__EXTENT_APART, &t,
	                    &dirty);
	if (r == 0) {
		/* The driver makes the pages that are missing. */
		cow__commit_forget(t);
		t->own.outside = COW__OUTSIDE_DEVICE;
		*ret = (void *)cow__tile_start(t);
	}
	cow__engine_tick();
	cow__engine_unlock();
	return r;
}

/* Locked. */
static struct cow__tile *
tile_at(const void *data)
{
	struct cow__tile *t = cow__tile_find((uintptr_t)data);

	cow__require(t && t->kind == COW__LIVE &&
	             cow__tile_start(t) == (uintptr_t)data);
	return t;
}

COW_EXPORT void
cow__pinned_extent_free(void *data)
{
	struct cow__tile *t;

	cow__engine_lock();
	t = tile_at(data);
	t->own.outside = COW__OUTSIDE_NONE;
	cow__extent_free(t);
	cow__engine_tick();
	cow__engine_unlock();
}

COW_EXPORT void
cow__pinned_extent_set_idle(void *data, bool idle)
{
	cow__engine_lock();
	tile_at(data)->own.outside = idle ? COW__OUTSIDE_IDLE : COW__OUTSIDE_DEVICE;
	cow__engine_unlock();
}

/* SPDX-License-Identifier: MIT */
/*
 * The window: see the header.
 */
#include "core/memory/window.h"
#include "core/base/base.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/process.h"

#define WINDOW_LEAST (4 * GIB)
/* qemu-user had a table of all mapped pages up to version 8: 25 GB for 8 TiB. */
#define WINDOW_EMULATED (8 * GIB)
#define YIELD_LEAST MIB /* smaller gaps are not worth a hole */

int
cow__window_reserve(void)
{
	size_t bytes = cow__engine.window_bytes;
	uintptr_t start;
	int r;

	/* A program with a limit on address space needs all that the limit
	 * allows. */
	if (cow__map_address_limit() != UINT64_MAX)
		return -ENOMEM;
	if (bytes > WINDOW_EMULATED && cow__map_is_emulated())
		bytes = WINDOW_EMULATED;
	do
		r = cow__map_reserve(bytes, GIB, &start);
	while (r < 0 && (bytes /= 2) >= WINDOW_LEAST);
	if (r < 0)
		return r;
	r = cow__tiles_init(start, bytes);
	if (r < 0)
		return r;
	__atomic_store_n(&cow__engine.start, start, __ATOMIC_RELEASE);
	__atomic_store_n(&cow__engine.end, start + bytes, __ATOMIC_RELEASE);
	return 0;
}

/* A child of vfork() uses this memory, but its limits are not this process's. */
static bool
is_lent(void)
{
	return cow__engine.process &&
	       cow__engine.process != cow__process_id();
}

COW_EXPORT bool
cow__window_yield(void)
{
	struct cow__tile *t;

	if (is_lent())
		return false;
	cow__engine_lock();
	if (!cow__engine.ready && !cow__engine.failed)
		cow__engine.failed = -ENOMEM;
	for (t = cow__tile_first(); t; t = t->next) {
		if (t->kind != COW__FREE || t->backing != COW__NONE ||
		    t->bytes < YIELD_LEAST)
			continue;
		cow__tile_unlist(t);
		t->kind = COW__LOST;
		(void)cow__map_release(cow__tile_start(t), t->bytes);
	}
	cow__engine_unlock();
	return true;
}

COW_EXPORT void
cow__window_counts(void)
{
	if (is_lent())
		return;
	cow__engine_lock();
	__atomic_store_n(&cow__engine.counted, true, __ATOMIC_RELAXED);
	cow__engine_unlock();
}

COW_EXPORT bool
cow__window_owns(uintptr_t addr)
{
	struct cow__tile *t;
	bool ours;

	cow__engine_lock();
	t = cow__tile_find(addr);
	ours = t && t->kind != COW__LOST;
	cow__engine_unlock();
	return ours;
}

/* SPDX-License-Identifier: MIT */
/*
 * The window: see the header.
 */
#include "core/memory/window.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "cowshed.h"

COW_EXPORT bool cow__window_holed;
static bool all_given; /* under the engine's lock */

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
	if (bytes > COW__WINDOW_EMULATED && cow__map_is_emulated())
		bytes = COW__WINDOW_EMULATED;
	do
		r = cow__map_reserve(bytes, GIB, &start);
	while (r < 0 && (bytes /= 2) >= COW__WINDOW_LEAST);
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
is_memory_lent(void)
{
	return cow__engine.process &&
	       cow__engine.process != cow__process_id();
}

/* Gives a bare tile back, but for its first `keep` bytes. Returns what of it was kept. */
static size_t
yield_tile(struct cow__tile *t, size_t keep)
{
	uintptr_t at;

	if (keep >= t->bytes)
		return t->bytes;
	at = cow__round_up(cow__tile_start(t) + keep, COW__HUGE);
	if (keep && at >= cow__tile_end(t))
		return t->bytes;
	if (keep)
		t = cow__tile_carve(t, at, cow__tile_end(t) - at);
	else
		cow__tile_unlist(t);
	if (!t) /* no memory for metadata: it is kept whole */
		return keep;
	t->kind = COW__LOST;
	(void)cow__map_release(cow__tile_start(t), t->bytes);
	return keep;
}

/* Gives bare addresses back, but for about `keep` bytes. */
static void
yield_bare(size_t keep)
{
	__atomic_store_n(&cow__window_holed, true, __ATOMIC_SEQ_CST);
	all_given |= keep == 0;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		if (t->kind == COW__FREE && t->map.backing == COW__NONE &&
		    t->bytes >= COW__YIELD_LEAST)
			keep -= cow__min(keep, yield_tile(t, keep));
}

COW_EXPORT bool
cow__window_yield(void)
{
	if (is_memory_lent())
		return false;
	cow__engine_lock();
	if (!cow__engine.ready && !cow__engine.failed)
		cow__engine.failed = -ENOMEM;
	if (!all_given)
		yield_bare(0);
	cow__engine_unlock();
	return true;
}

bool
cow__window_fit(void)
{
	uint64_t limit;

	if (all_given || !cow__engine.ready || is_memory_lent())
		return false;
	limit = cow__map_address_limit();
	if (limit == UINT64_MAX || cow__map_ask(cow__page) == 0)
		return false;
	yield_bare(limit / COW__WINDOW_KEPT_SHARE);
	if (cow__map_ask(cow__page) < 0)
		yield_bare(0);
	return true;
}

COW_EXPORT int
cow_window_shrink(size_t keep_bytes)
{
	int r;

	if (is_memory_lent())
		return cow__error(-EPERM, "cow_window_shrink: this is a child of vfork(), "
		                          "which uses its parent's memory");
	r = cow__engine_enter();
	if (r < 0)
		return cow__error_from(r, "cow_window_shrink");
	yield_bare(keep_bytes);
	cow__engine_unlock();
	return 0;
}

COW_EXPORT void
cow__window_counts(void)
{
	if (is_memory_lent())
		return;
	cow__engine_lock();
	__atomic_store_n(&cow__engine.counted, true, __ATOMIC_RELAXED);
	cow__engine_unlock();
}

COW_EXPORT void
cow__window_merged(bool merged)
{
	cow__engine_lock();
	cow__engine.merged = merged;
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

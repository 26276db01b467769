/* SPDX-License-Identifier: MIT */
/*
 * Long calls without the lock: see the header.
 */
#include "core/memory/apart.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/can.h"
#include "core/memory/ends.h"
#include "core/memory/helper.h"
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/signals.h"
#include "quiet/park.h"

int
cow__apart_collapse(const struct cow__tile *t, uintptr_t at, size_t bytes,
                    size_t *ret_done)
{
	struct cow__park_thread *parked = cow__park_here();
	uintptr_t end = at + bytes;
	int r = 0;

	*ret_done = 0;
	for (; r == 0 && at < end && cow__tile_is_shared(t); at += COW__APART_MOST) {
		size_t n = cow__min(COW__APART_MOST, end - at), done = 0;

		r = cow__map_collapse(at, n, &done);
		/* So that the first touch shows. */
		(void)cow__map_zap(at, n);
		*ret_done += done;
	}
	if (parked)
		cow__park_leave(parked, true);
	return r;
}

static struct cow__tile *bench COW_FORK_DATA; /* addresses of the engine */

static int
collapse_elsewhere(struct cow__segment *s, uint64_t offset, size_t bytes, size_t *ret_done)
{
	uintptr_t at = cow__tile_start(bench);
	int r = cow__map_shared(at, bytes, &s->file, offset, false);

	if (r == 0)
		r = cow__map_collapse(at, bytes, ret_done);
	(void)cow__map_none(at, bytes);
	return r;
}

int
cow__apart_remake(struct cow__tile *t, uintptr_t at, size_t bytes, size_t *ret_done)
{
	struct cow__segment *s = t->own.segment;
	int r;

	*ret_done = 0;
	if (!bench)
		bench = cow__tile_inner(COW__APART_MOST, 0, COW__HUGE);
	if (!bench)
		return -ENOMEM;
	t->work = COW__WORK_PAGES;
	cow__engine_unlock();
	r = collapse_elsewhere(s, cow__segment_offset(at), bytes, ret_done);
	cow__helper_lock();
	cow__tile_work_ends(t);
	cow__stat_add(bytes_collapsed, *ret_done);
	return r;
}

COW_FORK_CODE void
cow__apart_child(void)
{
	bench = NULL;
}

/* A handler of this thread may fork. The child ends the tile at once, and its memory may
 * serve again. */
static bool
is_same_process(uint32_t generation)
{
	return __atomic_load_n(&cow__engine.generation, __ATOMIC_RELAXED) == generation;
}

/* Of [at, end), which the program has freed. */
static void
zap_freed(uintptr_t at, uintptr_t end, uint32_t generation)
{
	struct cow__park_thread *parked = cow__park_here();
	struct cow__signals signals;

	for (; at < end; at += COW__APART_MOST) {
		if (!cow__signals_block(&signals))
			break;
		if (is_same_process(generation))
			(void)cow__map_zap(at, cow__min(COW__APART_MOST, end - at));
		cow__signals_restore(&signals);
	}
	if (parked)
		cow__park_leave(parked, true);
}

void
cow__apart_free(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	uint32_t generation = cow__engine.generation;

	/* What the program mapped over a block is not ours to empty. */
	if (t->bytes < COW__FREE_APART_LEAST || !cow__can(t, COW__TO_EMPTY)) {
		cow__extent_free(t);
		return;
	}
	t->work = COW__WORK_PAGES;
	cow__extent_free(t); /* it is doomed */
	cow__engine_unlock();
	zap_freed(at, end, generation);
	cow__engine_lock();
	if (!is_same_process(generation))
		return;
	cow__tile_work_ends(t);
	cow__extent_free(t);
}

void
cow__commit_at(uintptr_t start, uintptr_t end)
{
	uintptr_t from = cow__round_up(start, COW__HUGE);
	uintptr_t to = cow__round_down(end, COW__HUGE);
	size_t done;

	if (!cow__commits() || from >= to)
		return;
	if (cow__map_collapse(from, to - from, &done) < 0)
		cow__fallback(COW_FALLBACK_COLLAPSE);
	cow__stat_add(bytes_collapsed, done);
}

void
cow__commit_range(const struct cow__tile *t, size_t offset, size_t bytes)
{
	uintptr_t start = cow__tile_start(t) + offset;

	if (cow__tile_is_shared(t))
		cow__commit_at(start, start + bytes);
}

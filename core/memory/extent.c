/* SPDX-License-Identifier: MIT */
/*
 * Extents: live tiles, how they are allocated, resized and cut
 */
#include "core/memory/extent.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/attribute.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/copy_history.h"
#include "core/memory/decay.h"
#include "core/memory/own_segment.h"
#include "core/memory/place.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "core/memory/window.h"
#include "core/policy/constants.h"
#include "memfd/map.h"
#include "memfd/wait.h"

static bool
wants_anon(size_t bytes, unsigned flags)
{
	if (cow__engine.no_memfd || cow__engine.no_locks || cow__engine.retired)
		return true;
	if (flags & COW__EXTENT_MEMFD)
		return false;
	if (cow__engine.policy == COW__POLICY_ANON)
		return true;
	/* Where the kernel counts memory, blocks have to count, too. A shortage
	 * is an error then, and not a SIGBUS at a later touch. KSM merges no pages of files. */
	return cow__engine.policy == COW__POLICY_AUTO &&
	       (cow__engine.counted || cow__engine.merged ||
	        (cow__engine.prefer_anon && bytes >= COW__HUGE &&
	         !cow__own_segment_asked(bytes)));
}

/* A memfd has no page of zeros for all: reading a hole makes a page. Anonymous memory has one.
 * Warm memory has its pages already, and is faster than both. */
static bool
wants_zeros(size_t bytes, size_t align, unsigned flags)
{
	return (flags & COW__EXTENT_ZEROED) && bytes >= COW__ZEROED_LEAST &&
	       cow__engine.policy == COW__POLICY_AUTO &&
	       cow__engine.copies == COW__COPIES_OFF && !cow__own_segment_wants(bytes) &&
	       COW__ZEROED_MAPPINGS * cow__stat_get(blocks_live) < cow__engine.mappings_max &&
	       !cow__place_has_warm(bytes, align, flags);
}

void
cow__extent_counts(size_t bytes)
{
	uint64_t live = cow__stat_add(bytes_live, bytes) + bytes;

	cow__engine.live_bytes += bytes;
	if (cow__engine.live_bytes > cow__engine.live_peak)
		cow__engine.live_peak = cow__engine.live_bytes;
	if (live > cow__stat_get(bytes_peak))
		cow__stat_set(bytes_peak, live);
	cow__stat_add(bytes_served, bytes);
}

void
cow__extent_live(struct cow__tile *t, size_t used)
{
	struct cow__node node = t->node;
	struct cow__tile *prev = t->prev, *next = t->next;
	struct cow__segment *segment = t->own.segment;
	uint8_t backing = t->map.backing;
	size_t bytes = t->bytes;

	*t = (struct cow__tile){
		.node = node,
		.prev = prev,
		.next = next,
		.bytes = bytes,
		.kind = COW__LIVE,
		.map.backing = backing,
		.own.segment = segment,
		.own.refs = 1,
		.map.used = used,
	};
	cow__extent_counts(bytes);
}

/* cow__place_take(). *ret is anonymous, and *anon true, where no segment can be had. */
static int
take_place(size_t bytes, size_t align, bool *anon, unsigned flags,
           struct cow__tile **ret, size_t *ret_dirty)
{
	int r = cow__place_take(bytes, align, *anon, flags, ret, ret_dirty);

	if (r < 0 && !*anon && r != -ENOMEM) {
		/* There is no memfd here (or its size is forbidden): do
		 * without. */
		cow__fallback(COW_FALLBACK_MEMFD);
		*anon = true;
		r = cow__place_take(bytes, align, true, flags, ret, ret_dirty);
	}
	/* What is warm counts against limits on anonymous memory. */
	if (r == -ENOMEM && *anon && cow__decay_all())
		r = cow__place_take(bytes, align, true, flags, ret, ret_dirty);
	if (r == -ENOMEM && cow__window_fit())
		r = cow__place_take(bytes, align, *anon, flags, ret, ret_dirty);
	return r;
}

/* Huge pages for a new extent of a segment. `small`: it had small ones. */
static void
commit_extent(struct cow__tile *t, size_t dirty, unsigned flags, bool small)
{
	if (t->bytes < COW__HUGE)
		return;
	/* Who writes all of it commits it with cow__commit_range(). */
	if (t->bytes - dirty >= COW__HUGE && !(flags & COW__EXTENT_WHOLE))
		cow__commit_fresh(t, dirty);
	else if (dirty && small && t->own.segment)
		cow__commit_recycled(t);
}

int
cow__extent_new(size_t bytes, size_t align, unsigned flags,
                struct cow__tile **ret, size_t *ret_dirty)
{
	size_t len = cow__round_up(bytes ? bytes : 1, cow__page);
	bool anon = wants_anon(len, flags), zeros = false, small;
	size_t dirty;
	struct cow__tile *t;
	int r;

	if (len < bytes || len > cow__engine.end - cow__engine.start)
		return -ENOMEM;
	align = cow__max(align, cow__page);
	if (!anon)
		anon = zeros = wants_zeros(len, align, flags);
	if (!zeros)
		flags &= ~(unsigned)COW__EXTENT_ZEROED;
	r = take_place(len, align, &anon, flags, &t, &dirty);
	if (r < 0)
		return r;
	if ((flags & COW__EXTENT_STRICT) || cow__engine.strict) {
		r = cow__map_populate(cow__tile_start(t), len);
		if (r < 0) {
			t->own.freed_at = cow__now();
			(void)cow__tile_put(t);
			return r;
		}
	}
	/* It may be sent, but not with the bytes that its last owner left behind
	 * it. */
	if (t->own.segment && t->own.segment->single && dirty > bytes)
		memset((char *)cow__tile_start(t) + bytes, 0, len - bytes);
	small = t->own.small_pages;
	cow__extent_live(t, bytes);
	cow__stat_add(blocks_served, 1);
	cow__stat_add(blocks_live, 1);
	t->map.zeroed = zeros && t->map.backing == COW__ANON;
	cow__engine.zeroed |= t->map.zeroed != 0;
	if (anon && !zeros)
		cow__fallback(COW_FALLBACK_BACKING);
	cow__stat_add(bytes_recycled, dirty);
	/* Warm memory that does not serve goes before more is committed. */
	if (dirty == 0 && cow__engine.warm_first)
		(void)cow__decay(cow__now(), len, false);
	if (!anon || zeros)
		commit_extent(t, dirty, flags, small);
	*ret = t;
	*ret_dirty = dirty;
	return 0;
}

int
cow__extent_make(size_t bytes, size_t align, unsigned flags, enum cow__use use,
                 struct cow__allocation *a, struct cow__tile **ret, size_t *ret_dirty)
{
	int r = cow__engine_enter();
	bool owed = false;

	if (r < 0)
		return r;
	r = cow__extent_new(bytes, align, flags, ret, ret_dirty);
	if (r == 0) {
		(*ret)->map.use = use;
		(*ret)->map.allocation = a;
		owed = (*ret)->work == COW__WORK_OWED;
	}
	cow__engine_tick();
	cow__engine_unlock();
	if (owed)
		cow__commit_owed(*ret);
	return r;
}

/* Ends the live tiles of [at, end). */
static void
end_tiles(uintptr_t at, uintptr_t end)
{
	uintptr_t next;

	for (; at < end; at = next) {
		struct cow__tile *t = cow__tile_find(at);

		next = cow__tile_end(t);
		cow__extent_free(t);
	}
}

int
cow__extent_new_at(uintptr_t at, size_t bytes, size_t *ret_dirty)
{
	uintptr_t here = at, end = at + bytes;
	bool anon = wants_anon(bytes, 0);
	size_t dirty, reached = 0;
	struct cow__tile *t;
	int r = 0;

	for (; here < end; here = cow__tile_end(t)) {
		r = cow__place_at(here, end - here, anon, &t, &dirty);
		if (r < 0)
			break;
		cow__extent_live(t, t->bytes);
		cow__stat_add(blocks_served, 1);
		cow__stat_add(blocks_live, 1);
		if (dirty)
			reached = here - at + dirty;
	}
	if (r < 0)
		end_tiles(at, here);
	else
		*ret_dirty = reached;
	return r;
}

/* Ends a part that was cut out of a live tile; behind `reached` (an address)
 * it has no pages. */
static void
end_part(struct cow__tile *part, uintptr_t reached)
{
	uintptr_t end = cow__tile_end(part);

	part->own.hollow = end > reached ? cow__min(end - reached, part->bytes) : 0;
	cow__engine.live_bytes -= part->bytes;
	cow__stat_sub(bytes_live, part->bytes);
	part->kind = COW__LIMBO;
	part->own.refs = part->own.word = 0;
	part->map.use = COW__USE_STORAGE;
	part->filling.touched = 0;
	part->map.allocation = NULL;
	cow__recycle(part, true);
}

static bool
shrink_tile(struct cow__tile *t, size_t len, size_t reached)
{
	struct cow__tile *tail;

	cow__spares_drop(t);
	tail = cow__tile_cut(t, t->bytes - len);
	if (!tail)
		return false;
	end_part(tail, cow__tile_start(t) + reached);
	return true;
}

bool
cow__extent_cut(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t from = cow__tile_start(t), to = cow__tile_end(t), reached;
	struct cow__tile *part = t, *rest = NULL;

	if (!cow__can(t, COW__TO_CUT) || t->work)
		return false;
	cow__copy_history_end(t);
	cow__spares_drop(t);
	reached = from + cow__commit_reached(t);
	cow__commit_forget(t);
	if (end < to) {
		rest = cow__tile_cut(t, to - end);
		if (!rest)
			return false;
		rest->map.used = rest->bytes;
		rest->own.word = 0;
		cow__stat_add(blocks_live, 1);
	}
	if (start > from) {
		part = cow__tile_cut(t, end - start);
		if (!part)
			return false;
		t->map.used = t->bytes;
	} else {
		cow__stat_sub(blocks_live, 1);
		if (rest)
			rest->own.word = t->own.word;
	}
	end_part(part, reached);
	return true;
}

static bool
grow_tile(struct cow__tile *t, size_t more)
{
	size_t old = t->bytes;
	bool fresh;

	if (!cow__place_behind(t, more))
		return false;
	fresh = cow__tile_heat(t->next) != COW__WARM;
	if (cow__tile_grow(t, more) < 0)
		return false;
	t->own.hollow = 0;
	cow__extent_counts(more);
	if (fresh && t->own.segment && more >= COW__HUGE &&
	    cow__tile_start(t) % COW__HUGE == 0)
		cow__commit_from(t, old);
	return true;
}

bool
cow__extent_resize(struct cow__tile *t, size_t bytes)
{
	size_t len = cow__round_up(bytes, cow__page);

	if (!cow__can(t, COW__TO_CUT))
		return false;
	/* The helper works on pages that are there: it may only grow. */
	if (t->work && len < t->bytes)
		return false;
	if (len != t->bytes) {
		size_t reached = cow__commit_reached(t);

		cow__commit_forget(t);
		if (len < t->bytes ? !shrink_tile(t, len, reached)
		                   : !grow_tile(t, len - t->bytes))
			return false;
	}
	t->map.used = bytes;
	return true;
}

/* SPDX-License-Identifier: MIT */
/*
 * Warm memory: freed memory with pages, and how it cools. See the header.
 */
#include "core/memory/decay.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/bare.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/policy/warm.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/wait.h"

/* The tile that the helper is cooling, unlocked. */
static struct cow__tile *cooling;

static int
free_tile_pages(const struct cow__tile *t)
{
	int r;

	if (t->map.backing == COW__ANON)
		return cow__map_none(cow__tile_start(t), t->bytes);
	/* The pages of a marked file may have to stay, but nobody uses them here again. */
	if (t->own.segment && t->own.segment->marked) {
		(void)cow__map_punch(cow__tile_start(t), t->bytes);
		return cow__map_none(cow__tile_start(t), t->bytes);
	}
	r = cow__map_punch(cow__tile_start(t), t->bytes);
	/* mlockall() locked it. Free memory need not be locked. */
	if (r == -EINVAL && cow__map_lock(cow__tile_start(t), t->bytes, -1) == 0)
		r = cow__map_punch(cow__tile_start(t), t->bytes);
	return r;
}

/* A block may leave a rest of its last 2 MiB. The last huge page of the block may
 * lie under that rest, too. The rest is cold, so the page would stay. */
void
cow__decay_rest(const struct cow__tile *t)
{
	const struct cow__tile *rest = t->next;
	size_t bytes = -cow__tile_end(t) & (COW__HUGE - 1);

	if (bytes && rest && rest->kind == COW__FREE && rest->map.backing == COW__SHARED &&
	    rest->own.segment == t->own.segment && cow__tile_heat(rest) == COW__COLD)
		(void)cow__map_punch(cow__tile_start(rest), cow__min(bytes, rest->bytes));
}

/* Frees the pages of a warm tile that was taken off the lists, and puts it back.
 * Anonymous memory loses its mapping, too. */
static bool
cool_tile(struct cow__tile *t, bool unlocked)
{
	size_t bytes = t->bytes;
	int r;

	if (unlocked) {
		t->kind = COW__INNER;
		cooling = t;
		cow__engine_unlock();
		r = free_tile_pages(t);
		cow__helper_lock();
		cooling = NULL;
	} else {
		r = free_tile_pages(t);
	}
	if (r == 0 && t->map.backing == COW__SHARED && !t->own.segment->marked)
		cow__decay_rest(t);
	cow__tile_change_begin(t);
	if (r == 0 && (t->map.backing == COW__ANON || t->own.segment->marked)) {
		if (t->own.segment)
			cow__segment_unref(t->own.segment);
		t->own.segment = NULL;
		t->map.backing = COW__NONE;
	}
	t->own.freed_at = r == 0 ? 0 : cow__now(); /* later, then */
	t->own.small_pages &= r < 0;
	cow__tile_change_end(t);
	if (t->map.backing == COW__NONE)
		cow__bare_put(t);
	else
		(void)cow__tile_put(t);
	if (r == 0)
		cow__stat_add(bytes_returned, bytes);
	return r == 0;
}

COW_FORK_CODE void
cow__decay_child(void)
{
	if (!cooling)
		return;
	cow__segment_note_left(cooling->own.segment, cow__tile_start(cooling), cooling->bytes);
	(void)cow__tile_put(cooling);
	cooling = NULL;
}

static struct cow__warm warm;

/* `ask`: may read the cgroup's files. The helper opens no files, since the
 * program may be about to get their numbers. The program's threads ask in their
 * calls (cow__engine_tick()). */
static size_t
warm_limit(uint64_t now, bool ask)
{
	static size_t headroom = SIZE_MAX;
	static uint64_t asked_at;
	size_t most = cow__min(cow__warm_limit(&warm, cow__engine.live_bytes,
	                                       &cow__engine.live_peak, now),
	                       cow__engine.warm_max);

	if (ask && cow__engine.warm_bytes > COW__WARM_BEYOND_MOST &&
	    cow__elapsed(asked_at, now) > COW__WARM_HEADROOM_NS) {
		asked_at = now;
		headroom = cow__process_headroom();
	}
	/* What is warm is not part of the headroom: count it back in. */
	if (headroom < SIZE_MAX - cow__engine.warm_bytes)
		most = cow__min(most,
		                (headroom + cow__engine.warm_bytes) / COW__WARM_HEADROOM_SHARE);
	return most;
}

static bool
is_cooling_due(uint64_t now, size_t most)
{
	const struct cow__tile *oldest = cow__engine.warm_first;

	return oldest && (cow__elapsed(oldest->own.freed_at, now) >=
	                          cow__engine.decay_ns ||
	                  cow__engine.warm_bytes > most);
}

bool
cow__decay_due(uint64_t now)
{
	return cow__engine.warm_first && is_cooling_due(now, warm_limit(now, true));
}

/* Where the part of the oldest tile begins that is due: not more than a slice, and
 * only what is too much if the tile is young. What stays warm serves. */
static uintptr_t
cool_from(const struct cow__tile *t, uint64_t now, size_t most, size_t bytes)
{
	size_t slice = cow__min(COW__WARM_SLICE, cow__round_up(bytes, COW__HUGE));

	if (cow__elapsed(t->own.freed_at, now) < cow__engine.decay_ns)
		slice = cow__min(slice, cow__engine.warm_bytes - most);
	return slice < t->bytes ? cow__round_down(cow__tile_end(t) - slice, COW__HUGE) : 0;
}

size_t
cow__decay(uint64_t now, size_t bytes, bool unlocked)
{
	size_t most = warm_limit(now, !unlocked), done = 0;

	while (done < bytes && is_cooling_due(now, most)) {
		struct cow__tile *t = cow__engine.warm_first;
		uintptr_t from = cool_from(t, now, most, bytes);
		size_t cooled;

		if (from > cow__tile_start(t))
			t = cow__tile_carve(t, from, cow__tile_end(t) - from);
		else
			cow__tile_unlist(t);
		if (!t)
			break;
		cooled = t->bytes;
		if (!cool_tile(t, unlocked))
			break;
		done += cooled;
	}
	return done;
}

size_t
cow__decay_all(void)
{
	size_t done = 0;

	while (cow__engine.warm_first) {
		struct cow__tile *t = cow__engine.warm_first;
		size_t bytes = t->bytes;

		cow__tile_unlist(t);
		if (!cool_tile(t, false))
			break;
		done += bytes;
	}
	return done;
}

uint64_t
cow__decay_next(void)
{
	return cow__engine.warm_first
	               ? cow__engine.warm_first->own.freed_at + cow__engine.decay_ns
	               : 0;
}

uint64_t
cow__decay_job(uint64_t now)
{
	uint64_t due;

	if (cow__decay(now, COW__WARM_SLICE, true))
		return 0;
	due = cow__decay_next();
	if (!due)
		return UINT64_MAX;
	return due > now ? due - now + 1000u : 1000u;
}

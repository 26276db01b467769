/* SPDX-License-Identifier: MIT */
/*
 * Warm memory: freed, still populated, and how it cools. See the header.
 */
#include "core/decay.h"
#include "core/base.h"
#include "core/engine.h"
#include "core/stats.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/wait.h"

#define WARM_LIVELESS (64 * MIB) /* kept of what a program held */
#define WARM_LEAST (16 * MIB)    /* kept whatever the peak was */
#define PEAK_NS 3000000000u      /* a peak counts so long */
#define HEADROOM_NS 100000000u /* the cgroup is asked this often at most */

void
cow__warm_add(struct cow__tile *t)
{
	struct cow__tile *after = cow__engine.warm_last;

	while (after && after->freed_at > t->freed_at)
		after = after->list_prev;
	t->list_prev = after;
	t->list_next = after ? after->list_next : cow__engine.warm_first;
	if (t->list_next)
		t->list_next->list_prev = t;
	else
		cow__engine.warm_last = t;
	if (after)
		after->list_next = t;
	else
		cow__engine.warm_first = t;
	cow__engine.warm_bytes += t->bytes;
	cow__stat_set(bytes_warm, cow__engine.warm_bytes);
}

void
cow__warm_remove(struct cow__tile *t)
{
	if (t->list_prev)
		t->list_prev->list_next = t->list_next;
	else
		cow__engine.warm_first = t->list_next;
	if (t->list_next)
		t->list_next->list_prev = t->list_prev;
	else
		cow__engine.warm_last = t->list_prev;
	t->list_prev = t->list_next = NULL;
	cow__engine.warm_bytes -= t->bytes;
	cow__stat_set(bytes_warm, cow__engine.warm_bytes);
}

/* Frees the pages of a warm tile that was taken off the lists, and puts it
 * back; anonymous ones lose their mapping too. */
static bool
cool(struct cow__tile *t)
{
	size_t bytes = t->bytes;
	int r;

	cow__tile_change_begin(t);
	if (t->backing == COW__ANON) {
		r = cow__map_none(cow__tile_start(t), bytes);
		if (r == 0)
			t->backing = COW__NONE;
	} else {
		r = cow__map_punch(cow__tile_start(t), bytes);
	}
	if (r == 0)
		t->freed_at = 0;
	else
		t->freed_at = cow__now(); /* later, then */
	cow__tile_change_end(t);
	(void)cow__tile_put(t);
	if (r == 0)
		cow__stat_add(bytes_returned, bytes);
	return r == 0;
}

/* The most that was live in the last seconds, above what is now. */
static size_t
below_peak(uint64_t now)
{
	static size_t peak;
	static uint64_t since;

	if (cow__engine.live_peak >= peak || now - since > PEAK_NS) {
		peak = cow__engine.live_peak;
		since = now;
		cow__engine.live_peak = cow__engine.live_bytes;
	}
	return peak > cow__engine.live_bytes ? peak - cow__engine.live_bytes
	                                     : 0;
}

static size_t
limit(uint64_t now)
{
	static size_t headroom = SIZE_MAX;
	static uint64_t asked_at;
	size_t most = cow__max(WARM_LIVELESS, cow__engine.live_bytes);

	most = cow__min(most, cow__max(WARM_LEAST, below_peak(now)));
	most = cow__min(most, cow__engine.warm_max);
	if (cow__engine.warm_bytes > WARM_LEAST &&
	    now - asked_at > HEADROOM_NS) {
		asked_at = now;
		headroom = cow__process_headroom();
	}
	/* What is warm is not part of the headroom: count it back in. */
	if (headroom < SIZE_MAX - cow__engine.warm_bytes)
		most = cow__min(most,
		                (headroom + cow__engine.warm_bytes) / 4);
	return most;
}

size_t
cow__decay(uint64_t now, bool all, size_t slice)
{
	size_t done = 0, most;
	struct cow__tile *t;

	if (!cow__engine.warm_first)
		return 0;
	most = all ? 0 : limit(now);
	while ((t = cow__engine.warm_first) != NULL) {
		bool old = now - t->freed_at >= cow__engine.decay_ns;

		if (!all && !old && cow__engine.warm_bytes <= most)
			break;
		if (slice && t->bytes > slice) {
			t = cow__tile_carve(t, cow__tile_end(t) - slice,
			                    slice);
			if (!t)
				break;
		} else {
			cow__tile_unlist(t);
		}
		done += t->bytes;
		if (!cool(t) || (slice && done >= slice))
			break;
	}
	return done;
}

uint64_t
cow__decay_next(void)
{
	return cow__engine.warm_first
	               ? cow__engine.warm_first->freed_at + cow__engine.decay_ns
	               : 0;
}

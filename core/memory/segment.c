/* SPDX-License-Identifier: MIT */
/*
 * Segments: the memfds under the window. See the header.
 */
#include "core/memory/segment.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/memory/control.h"
#include "core/memory/engine.h"
#include "core/memory/holders.h"
#include "core/memory/own_segment.h"
#include "core/memory/tile.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/memfd.h"

#include <string.h>

static struct cow__pool segments = {
	.object_bytes = sizeof(struct cow__segment)
};
static unsigned count, singles;

static int
segment_new(struct cow__segment **ret)
{
	size_t window = cow__engine.end - cow__engine.start;
	struct cow__segment *s = cow__pool_take(&segments);
	int r;

	if (!s)
		return -ENOMEM;
	*s = (struct cow__segment){ .owner = true };
	r = cow__memfd_new("cowshed", window + COW__CONTROL_BYTES, &s->file);
	if (r < 0) {
		cow__pool_give(&segments, s);
		return r;
	}
	/* Where it can't be had, only the seal of a stranger helps (core/memory/stranger.c). */
	(void)cow__memfd_close_to_others(&s->file);
	s->next = cow__engine.segments;
	cow__engine.segments = s;
	cow__stat_set(segments, ++count);
	*ret = s;
	return 0;
}

/* Frees a segment and its control part. */
static void
segment_free(struct cow__segment *s)
{
	/* Nothing of the file is mapped here any more. */
	if (s->words)
		__atomic_fetch_and(&s->words[0], ~cow__slot_mine() | COW__SHARED_BIT,
		                   __ATOMIC_RELEASE);
	if (cow__segment_control_end(s) < 0)
		return; /* tried again at the next sweep */
	cow__segment_unlock(s);
	cow__segment_control_free(s);
	cow__array_free(s->left, s->left_cap, sizeof(*s->left));
	for (struct cow__segment **p = &cow__engine.segments; *p;
	     p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	if (cow__engine.current == s)
		cow__engine.current = NULL;
	cow__descriptor_close(&s->file);
	singles -= s->single;
	cow__pool_give(&segments, s);
	cow__stat_set(segments, --count);
}

static bool
is_bare(const struct cow__tile *t)
{
	return t && t->kind == COW__FREE && t->map.backing == COW__NONE;
}

/* Is the piece worth unmapping? Small pieces stay: a hole is one more mapping.
 * They go if they are alone in their file, or at the edge of what is mapped. */
static bool
unmapping_pays(const struct cow__tile *t, bool all)
{
	return t->bytes >= COW__HUGE || t->own.segment->single ||
	       (all && (is_bare(t->prev) || is_bare(t->next)));
}

static void
unmap_cold(bool all)
{
	struct cow__tile *t, *next;

	for (t = cow__tile_first(); t; t = next) {
		next = t->next;
		if (t->kind != COW__FREE || !t->own.segment ||
		    cow__tile_heat(t) != COW__COLD ||
		    !unmapping_pays(t, all) ||
		    (!all && t->own.segment == cow__engine.current))
			continue;
		if (cow__map_none(cow__tile_start(t), t->bytes) < 0)
			continue;
		cow__tile_unlist(t);
		cow__tile_change_begin(t);
		t->map.backing = COW__NONE;
		cow__segment_unref(t->own.segment);
		t->own.segment = NULL;
		cow__tile_change_end(t);
		next = cow__tile_put(t)->next;
	}
}

void
cow__segments_end(void)
{
	struct cow__segment *s, *next;

	cow__engine.single_ended = false;
	for (s = cow__engine.segments; s; s = next) {
		next = s->next;
		if (s->tiles == 0)
			segment_free(s);
	}
}

COW_FORK_CODE void
cow__segments_sweep(bool all)
{
	if (all || (cow__engine.segments && cow__engine.segments->next))
		unmap_cold(all);
	cow__segments_end();
}

bool
cow__segments_ended(void)
{
	return cow__engine.single_ended;
}

/* Clears the pages through a mapping, for the moment, where the descriptor does
 * not serve. */
static bool
clear_mapped(const struct cow__segment *s, uint64_t offset, size_t bytes)
{
	uintptr_t at;
	bool clear;

	if (cow__map_reserve(bytes, COW__HUGE, &at) < 0)
		return false;
	clear = cow__map_shared(at, bytes, &s->file, offset, false) == 0;
	if (clear && cow__map_punch(at, bytes) < 0)
		memset((void *)at, 0, bytes);
	(void)cow__map_release(at, bytes);
	return clear;
}

void
cow__segment_leave(struct cow__segment *s, uintptr_t at, size_t bytes)
{
	uint64_t offset = cow__segment_offset(at);

	if (s->single || cow__memfd_punch(&s->file, offset, bytes) == 0 ||
	    clear_mapped(s, offset, bytes))
		return;
	s->stale = true;
	if (cow__engine.current == s)
		cow__engine.current = NULL;
}

static bool
is_allocatable(const struct cow__segment *s)
{
	return s->owner && !s->forked && !s->single && !s->stale &&
	       cow__descriptor_ok(&s->file);
}

int
cow__segment_current(struct cow__segment **ret)
{
	struct cow__segment *s = cow__engine.current;
	int r;

	if (s && is_allocatable(s)) {
		*ret = s;
		return 0;
	}
	if (cow__engine.segments)
		cow__holders_refresh();
	for (s = cow__engine.segments; s; s = s->next)
		if (is_allocatable(s))
			break;
	if (!s && count - singles >= COW__SEGMENTS_MOST) {
		cow__fallback(COW_FALLBACK_SEGMENTS);
		return -EMFILE;
	}
	if (!s) {
		r = segment_new(&s);
		if (r < 0)
			return r;
	}
	cow__engine.current = s;
	*ret = s;
	return 0;
}

bool
cow__segment_single_left(bool apart)
{
	return singles < (apart ? cow__own_segments_most_asked() : cow__own_segments_most());
}

int
cow__segment_single(unsigned most, struct cow__segment **ret)
{
	int r = singles < most ? segment_new(ret) : -EMFILE;

	if (r == 0) {
		(*ret)->single = true;
		singles++;
	}
	return r;
}

COW_FORK_CODE void
cow__segments_child(void)
{
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		s->owner = false;
	cow__engine.current = NULL;
}

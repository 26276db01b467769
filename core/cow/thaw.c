/* SPDX-License-Identifier: MIT */
/*
 * Thawing: see the header. write_back() copies written pages back into the
 * file.
 */
#include "core/cow/thaw.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/ahead.h"
#include "core/cow/old_tables.h"
#include "core/cow/part.h"
#include "core/memory/apart.h"
#include "core/memory/attribute.h"
#include "core/memory/can.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/resident.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/pins.h"
#include "memfd/wait.h"
#include "quiet/quiet.h"

#define RUNS_IN_CHUNK 257  /* every other of 512 pages, and one more */

/* Frees the file pages under the parts that the program emptied. The pages that it
 * wrote there since count as copied. */
static int
punch_emptied(const struct cow__tile *t, uintptr_t start, uintptr_t end,
              uintptr_t delta)
{
	uintptr_t to;
	int r = 0;

	for (; r == 0 && start < end; start = to) {
		to = end;
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS,
		                      start, &to) == COW__PLACE_ANON)
			r = cow__map_punch(start + delta, to - start);
	}
	return r;
}

/* Copies the private pages of a part back into the file. Below, the file has what
 * the program reads there. On an error nothing was written. */
static int
write_back(struct cow__tile *t, uintptr_t start, uintptr_t end,
                 const struct cow__run *runs, int n)
{
	struct cow__tile *alias = cow__part_alias(t, start, end);
	uintptr_t delta;
	int r = 0;

	if (!alias)
		return -ENOMEM;
	delta = cow__tile_start(alias) - start;
	if (t->map.overlay)
		r = punch_emptied(t, start, end, delta);
	if (r == 0 && t->map.zeroed && n == 1) /* the file has no page there */
		cow__commit_at(runs[0].start + delta, runs[0].end + delta);
	for (int i = 0; r == 0 && i < n; i++)
		cow__part_write(runs[i].start + delta, (const void *)runs[i].start,
		                runs[i].end - runs[i].start);
	cow__tile_inner_free(alias);
	if (r == 0)
		cow__stat_add(pages_written_back, cow__runs_bytes(runs, n) / cow__page);
	return r;
}

int
cow__thaw_part_room(struct cow__tile *t)
{
	return cow__array_reserve((void **)&t->map.kept, &t->map.kept_cap, sizeof(*t->map.kept),
	                          t->map.nkept + 2);
}

void
cow__thaw_part_note(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	struct cow__span *k = t->map.kept;
	uint32_t i = 0;

	if (start >= end)
		return;
	cow__tile_change_begin(t);
	if (!t->map.nkept && (start > cow__tile_start(t) || end < cow__tile_end(t)))
		k[t->map.nkept++] = (struct cow__span){ cow__tile_start(t),
			                            cow__tile_end(t) };
	while (i < t->map.nkept && k[i].end <= start)
		i++;
	if (i < t->map.nkept && k[i].start < start && end < k[i].end) {
		memmove(k + i + 1, k + i, (t->map.nkept++ - i) * sizeof(*k));
		k[i].end = start;
		k[i + 1].start = end;
	} else if (i < t->map.nkept && k[i].start < start) {
		k[i].end = start;
	} else if (i < t->map.nkept && end < k[i].end) {
		k[i].start = end;
	} else if (i < t->map.nkept) {
		memmove(k + i, k + i + 1, (--t->map.nkept - i) * sizeof(*k));
	}
	if (!t->map.nkept) {
		cow__array_free(t->map.kept, t->map.kept_cap, sizeof(*t->map.kept));
		t->map.kept = NULL;
		t->map.kept_cap = 0;
		t->own.shadow = 0;
		t->map.overlay = COW__OVERLAY_NONE;
		t->map.zeroed = 0;
		cow__tile_set_backing(t, COW__SHARED);
		cow__stat_add(thaws, 1);
	}
	cow__tile_change_end(t);
	cow__resident_later(t, end - start);
	cow__stat_add(bytes_thawed, end - start);
}

/* Maps [start, end) shared: the file is right there. What fails stays private. */
static int
map_part_shared(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t done;
	int r;

	if (!cow__mappings_left(2 + t->map.npieces))
		return -ENOMEM;
	r = cow__thaw_part_room(t);
	if (r < 0)
		return r;
	if (!t->map.npieces && !t->map.attributes) {
		r = cow__old_tables_share(start, end, t->own.segment);
		done = r < 0 ? start : end;
	} else {
		r = cow__part_map(t, start, end, true, &done);
	}
	cow__thaw_part_note(t, start, done);
	return r;
}

/* Some of [start, end) was copied, or emptied. */
static int
thaw_chunk(struct cow__tile *t, uintptr_t start, uintptr_t end,
           const struct cow__run *runs, int n)
{
	size_t copied = cow__runs_bytes(runs, n);
	int r;

	if (t->map.attributes)
		cow__attributes_reveal(t, start, end);
	r = write_back(t, start, end, runs, n);
	/* Without the note the part is as any private one, for its copied pages and
	 * the file are what the program reads. */
	if (r == 0 && t->map.overlay)
		r = cow__attribute_cut(t, start, end, COW__ATTRIBUTE_PLACE);
	if (r == 0)
		r = map_part_shared(t, start, end);
	if (r == 0)
		t->map.written_back += copied;
	if (t->map.attributes)
		cow__attributes_apply(t, start, end);
	/* Shadows were given back somewhere. How many of them here is not known. */
	if (t->own.shadow) {
		t->own.shadow -= cow__min(t->own.shadow, copied);
		t->own.shadow_less = true;
	}
	return r;
}

/* Leaves out what the kernel may write for a thread that waits. False: *at is
 * there; it was moved behind. */
static bool
leave_out_parked(uintptr_t *at, uintptr_t *end)
{
	struct cow__park_range w;
	uintptr_t from;

	if (!cow__quiet_written(*at, *end, &w))
		return true;
	from = cow__round_down(w.from, COW__HUGE);
	if (from > *at) {
		*end = from;
		return true;
	}
	*at = cow__min(*end, cow__round_up(w.to, COW__HUGE));
	return false;
}

static bool
is_nearly_empty(uintptr_t start, uintptr_t end)
{
	return cow__pagemap_has(start, end, COW__THAW_CLEAN_STEP / cow__page) == 0;
}

/*
 * The end of what one call maps from `at` on, if it is clean. The call takes down
 * the page tables, and no more entries of them than COW__THAW_CLEAN_STEP can have. A freeze
 * leaves none, so few are there, if the program did not touch the memory since.
 */
static uintptr_t
clean_end(const struct cow__tile *t, uintptr_t at, uintptr_t end)
{
	static const size_t steps[] = { COW__THAW_ABSENT_MOST, COW__THAW_ABSENT_STEP };
	uintptr_t far;

	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		far = cow__min(end, cow__round_down(at, steps[i]) + steps[i]);
		/* One look for each step, however it ends. */
		if ((at == cow__tile_start(t) || at % steps[i] == 0) &&
		    far - at > COW__THAW_CLEAN_STEP && is_nearly_empty(at, far))
			return far;
	}
	return cow__min(far, at + COW__THAW_CLEAN_STEP);
}

int
cow__thaw_tile_discard(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	int r = map_part_shared(t, start, end);

	t->own.shadow_less |= t->own.shadow != 0;
	return r;
}

/* The copied pages of [at, end). A zeroed block was anonymous memory, where the program may have
 * read pages of zeros. These need no memory: its file has holes there. */
static int
look_for_copied(const struct cow__tile *t, uintptr_t at, uintptr_t end, struct cow__run *runs,
                int max, uintptr_t *ret_next)
{
	return t->map.zeroed ? cow__pagemap_made(at, end, runs, max, ret_next)
	                 : cow__pagemap_copied(at, end, runs, max, ret_next);
}

int
cow__thaw_tile_step(struct cow__tile *t, uintptr_t *at, uintptr_t end, size_t most,
                    size_t *ret_copied)
{
	struct cow__run runs[RUNS_IN_CHUNK];
	struct cow__span part;
	uintptr_t chunk_end, next;
	/* One run tells that something is copied. */
	int max = most || t->map.attributes ? RUNS_IN_CHUNK : 1;
	int n, r;

	*ret_copied = 0;
	if (!cow__private_part(t, *at, &part) || part.start >= end) {
		*at = end;
		return 0;
	}
	*at = part.start;
	part.end = cow__min(part.end, end);
	if (!leave_out_parked(at, &part.end))
		return 0;
	chunk_end = cow__min(cow__round_down(*at, COW__HUGE) + COW__HUGE, part.end);
	chunk_end = cow__ahead_end(*at, chunk_end);
	n = cow__ahead_rest(t, *at, chunk_end, runs, RUNS_IN_CHUNK);
	if (n < 0) {
		n = look_for_copied(t, *at, chunk_end, runs, max, &next);
	} else {
		most = SIZE_MAX;
		t->map.written_back += cow__ahead_copied();
	}
	if (n > 0 && !t->map.attributes && cow__runs_bytes(runs, n) > most) {
		*at = chunk_end;
		return 1;
	}
	if (n > 0) {
		r = thaw_chunk(t, *at, chunk_end, runs, n);
		*ret_copied = cow__runs_bytes(runs, n);
		*at = chunk_end;
		return r;
	}
	/* All clean: how far? */
	next = clean_end(t, *at, part.end);
	if (n == 0 && next > chunk_end)
		n = look_for_copied(t, chunk_end, next, runs, 1, &part.start);
	if (n > 0)
		next = cow__max(chunk_end, cow__round_down(runs[0].start, COW__HUGE));
	if (n < 0)
		return n;
	r = t->map.overlay ? thaw_chunk(t, *at, next, NULL, 0) : map_part_shared(t, *at, next);
	*at = next;
	return r;
}

int
cow__thaw_tile(struct cow__tile *t, size_t most)
{
	uintptr_t at = cow__tile_start(t);
	size_t left = most < t->bytes / 2 ? COW__THAW_STEP : SIZE_MAX, copied;
	struct cow__span part;
	uintptr_t stop;
	int r = 0;

	if (!cow__private_part(t, at, &part))
		return 0;
	/* A device may use a copied page: it has to stay in place. */
	if (cow__pins_memory()) {
		cow__fallback(COW_FALLBACK_PINNED);
		return -EBUSY;
	}
	at = part.start;
	stop = left == SIZE_MAX || most >= cow__tile_end(t) - at
	               ? cow__tile_end(t)
	               : at + most;
	while (r == 0 && at < stop) {
		r = cow__thaw_tile_step(t, &at, cow__tile_end(t), SIZE_MAX, &copied);
		if (copied >= left)
			break;
		left -= copied;
	}
	return r;
}

/* The last of the plain neighbours from `t` on, in up to `most` bytes. */
static struct cow__tile *
neighbours_end(struct cow__tile *t, size_t most, struct cow__census *c)
{
	struct cow__tile *last = t;

	for (unsigned n = 1; n < COW__THAW_NEIGHBOURS && last->next &&
	       cow__can(last->next, COW__TO_THAW_MANY) &&
	       cow__tile_end(last) - cow__tile_start(t) < most &&
	       last->next->own.segment == t->own.segment &&
	       cow__exclusive(last->next, c);
	     n++)
		last = last->next;
	return last;
}

struct cow__tile *
cow__thaw_clean_tiles(struct cow__tile *t, struct cow__census *c)
{
	uintptr_t start = cow__tile_start(t), end, next;
	struct cow__park_range w;
	struct cow__tile *last;
	struct cow__run run;

	if (!cow__can(t, COW__TO_THAW_MANY))
		return NULL;
	last = neighbours_end(t, COW__THAW_ABSENT_MOST, c);
	if (cow__tile_end(last) - start > COW__THAW_CLEAN_STEP &&
	    !is_nearly_empty(start, cow__tile_end(last)))
		last = neighbours_end(t, COW__THAW_CLEAN_STEP, c);
	end = cow__tile_end(last);
	if (last == t || cow__quiet_written(start, end, &w) ||
	    cow__pagemap_copied(start, end, &run, 1, &next) != 0 ||
	    cow__old_tables_share(start, end, t->own.segment) < 0)
		return NULL;
	for (;; t = t->next) {
		cow__thaw_part_note(t, cow__tile_start(t), cow__tile_end(t));
		if (t == last)
			return last;
	}
}

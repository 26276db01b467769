/* SPDX-License-Identifier: MIT */
/*
 * Committing units: see the header.
 */
#include "core/memory/commit_unit.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/state.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"

#define PROBES 16 /* pages that are looked at */
#define DEBT 16   /* filled units for each that was committed in vain */
#define UNITS 8   /* the latest are remembered */
#define PROOFS 4  /* of zeros, before any unit is committed on trust */
#define TRUST_MOST 256

static uintptr_t ahead COW_FORK_DATA; /* the last unit committed, not known to be filled; 0: none */
static unsigned debt;
static uintptr_t units[UNITS]; /* committed, the latest ones */
static unsigned nunits;

/*
 * Pages of zeros in a committed unit: the program may have written them, or not. Where the
 * program is known to fill memory with zeros, some units are committed on trust. When these
 * are used up, one unit gets small pages. They tell, and twice as many units follow.
 */
static struct {
	unsigned proofs; /* in a row */
	unsigned left, last;
} trust;

/* Of [0, n). */
static size_t
any_below(size_t n)
{
	static uint64_t state = 1;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)(state % n);
}

/* Has this page of the file a byte that is not zero? */
static bool
is_written(const struct cow__segment *s, uintptr_t page)
{
	uint64_t at = cow__segment_offset(page);

	return cow__memfd_zeros(&s->file, at, at + cow__page) == 0;
}

static bool
is_in_unit(uintptr_t page)
{
	for (unsigned i = 0; i < UNITS; i++)
		if (units[i] == cow__round_down(page, COW__HUGE))
			return true;
	return false;
}

enum answer { NO, UNCLEAR, ZEROS, WRITTEN };

/*
 * Has the program filled [start, end)? Pages at random places are looked at, one in each of
 * PROBES parts. The page table says of small pages whether they were touched. A huge page is
 * there as a whole after one touch. So the bytes in the file tell.
 */
static enum answer
is_filled(const struct cow__segment *s, uintptr_t start, uintptr_t end)
{
	size_t pages = (end - start) / cow__page / PROBES; /* of each part */
	unsigned zeros = 0, unclear = 0;

	if (!pages || !cow__descriptor_ok(&s->file))
		return NO;
	for (unsigned i = 0; i < PROBES; i++) {
		uintptr_t page = start + (i * pages + any_below(pages)) * cow__page;

		if (is_written(s, page))
			continue;
		if (cow__pagemap_touched_page(page) <= 0)
			return NO;
		zeros++;
		unclear += is_in_unit(page);
	}
	if (!zeros)
		return WRITTEN;
	return zeros - unclear >= PROBES / 2 ? ZEROS : UNCLEAR;
}

/* An extent will begin at `start`. If the unit that is ahead is used up by then, was it
 * filled? Where its extents ended meanwhile, or have few pages of it, nothing tells. */
static void
judge(const struct cow__segment *s, uintptr_t start)
{
	uintptr_t end = ahead + COW__HUGE;
	const struct cow__tile *t = ahead ? cow__tile_find(ahead) : NULL;

	if (start > ahead && start < end)
		end = start;
	if (t && t->kind == COW__LIVE && t->segment == s && !trust.last &&
	    end - ahead >= PROBES * cow__page && is_filled(s, ahead, end) != WRITTEN)
		debt = DEBT;
	ahead = 0;
}

/* The unit in which the extent before `t` begins, or the last whole one before `t`, if that is
 * farther away. */
static uintptr_t
first_unit_before(const struct cow__tile *t)
{
	uintptr_t at = cow__round_down(cow__tile_start(t), COW__HUGE) - COW__HUGE;

	if (t->prev && t->prev->kind == COW__LIVE)
		at = cow__min(at, cow__round_down(cow__tile_start(t->prev), COW__HUGE));
	return at;
}

static enum answer
is_filled_before(const struct cow__tile *t)
{
	uintptr_t start = first_unit_before(t), end = cow__tile_start(t);

	return start >= cow__engine.start && start < end ? is_filled(t->segment, start, end) : NO;
}

static int
commit(uintptr_t unit)
{
	size_t done = 0;
	int r = cow__map_collapse(unit, COW__HUGE, &done);

	cow__stat_add(bytes_collapsed, done);
	if (r == 0)
		units[nunits++ % UNITS] = unit;
	return r;
}

/* That unit is filled. If it was left to small pages, they become a huge one. What lies in one
 * extent alone is not ours (core/memory/commit.c). */
static void
make_up(const struct cow__tile *t)
{
	uintptr_t unit = first_unit_before(t);
	const struct cow__tile *p = is_in_unit(unit) ? NULL : cow__tile_find(unit);

	if (!p || cow__tile_end(p) >= unit + COW__HUGE)
		return;
	for (; p && cow__tile_start(p) < unit + COW__HUGE; p = p->next)
		if (p->kind != COW__LIVE || !cow__tile_is_shared(p) || p->segment != t->segment ||
		    p->slow || p->attributes || p->busy)
			return;
	if (p)
		(void)commit(unit);
}

static bool
is_due(const struct cow__tile *t)
{
	enum answer answer = is_filled_before(t);

	if (answer == NO) {
		trust.proofs = trust.left = trust.last = 0;
		return false;
	}
	make_up(t);
	if (answer == ZEROS) {
		if (trust.proofs < PROOFS && ++trust.proofs < PROOFS)
			return false;
		if (!trust.left)
			trust.left = trust.last = cow__max(PROOFS, cow__min(2 * trust.last, TRUST_MOST));
	} else if (answer == UNCLEAR) {
		if (!trust.left)
			return false;
		trust.left--;
	}
	if (!debt)
		return true;
	debt--;
	return false;
}

void
cow__commit_unit(const struct cow__tile *t, size_t bytes)
{
	uintptr_t start = cow__tile_start(t), end = start + bytes;
	uintptr_t unit = cow__round_down(end, COW__HUGE);

	/* What lies behind this free tile is another's. */
	if (!cow__commits() || cow__engine.placed || unit < start || unit == end ||
	    unit + COW__HUGE > cow__tile_end(t))
		return;
	judge(t->segment, start);
	if (!is_due(t))
		return;
	if (commit(unit) < 0) {
		cow__fallback(COW_FALLBACK_COLLAPSE);
		return;
	}
	(void)cow__map_zap(unit, COW__HUGE);
	ahead = unit;
}

COW_FORK_CODE void
cow__commit_unit_child(void)
{
	ahead = 0;
}

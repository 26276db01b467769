/* SPDX-License-Identifier: MIT */
/*
 * Committing units: see the header.
 */
#include "core/memory/commit_unit.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/policy/units.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"

/* Committed, and not known to be filled: the unit in which the last extent ends, and the one
 * in which it begins. 0: none. A forked child has none. */
static uintptr_t ahead[2];
static uint32_t generation; /* the process that has them */
static struct cow__units judged;
static uintptr_t units[COW__UNITS_REMEMBERED]; /* committed, the latest ones */
static unsigned nunits;

/* Of [0, n). */
static size_t
random_below(size_t n)
{
	static uint64_t state = 1;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (size_t)(state % n);
}

/* Has this page of the file a byte that is not zero? */
static bool
is_page_written(const struct cow__segment *s, uintptr_t page)
{
	uint64_t at = cow__segment_offset(page);

	return cow__memfd_zeros(&s->file, at, at + cow__page) == 0;
}

static bool
is_in_unit(uintptr_t page)
{
	for (unsigned i = 0; i < COW__UNITS_REMEMBERED; i++)
		if (units[i] == cow__round_down(page, COW__HUGE))
			return true;
	return false;
}

/*
 * Has the program filled [start, end)? Pages at random places are looked at; seven eighths
 * of them are enough. The page table says of small pages whether they were touched. A huge page
 * is there as a whole after one touch. So the bytes in the file tell.
 */
static enum cow__filled
range_filled(const struct cow__segment *s, uintptr_t start, uintptr_t end)
{
	size_t pages = (end - start) / cow__page;
	unsigned zeros = 0, unclear = 0, missing = 0;

	if (!pages || !cow__descriptor_ok(&s->file))
		return COW__FILLED_NO;
	for (unsigned i = 0; i < COW__UNIT_PROBES; i++) {
		uintptr_t page = start + random_below(pages) * cow__page;

		if (is_page_written(s, page))
			continue;
		if (cow__pagemap_touched_page(page) <= 0) {
			if (++missing > COW__UNIT_EMPTY_MOST)
				return COW__FILLED_NO;
		} else if (is_in_unit(page)) {
			unclear++;
		} else {
			zeros++;
		}
	}
	if (zeros >= COW__UNIT_PROBES / 2)
		return COW__FILLED_ZEROS;
	return unclear + missing > COW__UNIT_EMPTY_MOST ? COW__FILLED_UNCLEAR : COW__FILLED_YES;
}

static bool
is_range_live(const struct cow__segment *s, uintptr_t start, uintptr_t end)
{
	const struct cow__tile *t = cow__tile_find(start);

	for (; t && cow__tile_start(t) < end; t = t->next)
		if (t->kind != COW__LIVE || t->own.segment != s)
			return false;
	return t != NULL;
}

/* An extent will begin at `start`. What lies before it in the units that are ahead should be
 * filled by then. What was freed meanwhile tells nothing. */
static void
judge_units_before(const struct cow__segment *s, uintptr_t start)
{
	if (generation != cow__engine.generation)
		ahead[0] = ahead[1] = 0;
	generation = cow__engine.generation;
	for (unsigned i = 0; i < 2; i++) {
		uintptr_t unit = ahead[i], end = unit + COW__HUGE;
		bool rest = start > unit && start < end;

		if (unit && is_range_live(s, unit, rest ? start : end) && !judged.last &&
		    range_filled(s, unit, rest ? start : end) != COW__FILLED_YES) {
			cow__units_in_vain(&judged);
			rest = false;
		}
		if (!rest)
			ahead[i] = 0;
	}
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

static enum cow__filled
filled_before(const struct cow__tile *t)
{
	uintptr_t start = first_unit_before(t), end = cow__tile_start(t);

	return start >= cow__engine.start && start < end ? range_filled(t->own.segment, start, end)
	                                                 : COW__FILLED_NO;
}

void
cow__commit_unit(const struct cow__tile *t, size_t bytes)
{
	uintptr_t start = cow__tile_start(t), end = start + bytes;
	uintptr_t unit = cow__round_down(end, COW__HUGE);
	size_t done = 0;
	int r;

	/* What lies behind this free tile is another's. */
	if (cow__without(UNITS) || !cow__commits() || cow__engine.placed || unit < start || unit == end ||
	    unit + COW__HUGE > cow__tile_end(t))
		return;
	judge_units_before(t->own.segment, start);
	if (!cow__units_due(&judged, filled_before(t)))
		return;
	r = cow__map_collapse(unit, COW__HUGE, &done);
	cow__stat_add(bytes_collapsed, done);
	if (r < 0) {
		cow__fallback(COW_FALLBACK_COLLAPSE);
		return;
	}
	(void)cow__map_zap(unit, COW__HUGE);
	units[nunits++ % COW__UNITS_REMEMBERED] = unit;
	ahead[ahead[0] != 0] = unit;
}

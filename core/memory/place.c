/* SPDX-License-Identifier: MIT */
/*
 * Where a new extent is found. See the header.
 */
#include "core/memory/place.h"
#include "core/base/base.h"
#include "core/memory/bare.h"
#include "core/memory/commit_unit.h"
#include "core/memory/holders.h"
#include "core/memory/own_segment.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"

static uintptr_t rest_at; /* what the last extent without pages left behind it; 0: nothing */

/* Turns bare space into mapped cold space; `t` is off the lists. `huge`: with advice for huge
 * pages, if it is anonymous. */
static int
map_bare(struct cow__tile *t, bool anon, bool huge, bool single)
{
	struct cow__segment *s = NULL;
	int r;

	/* What takes the place of a mapping is not held against a limit. */
	if (!anon)
		r = single && cow__segment_single(cow__own_segments_most_asked(), &s) == 0
		            ? 0
		            : cow__segment_current(&s);
	else
		r = cow__engine.counted ? cow__map_ask(t->bytes) : 0;
	if (r < 0)
		return r;
	cow__tile_change_begin(t);
	r = anon ? cow__map_anon(cow__tile_start(t), t->bytes,
	                         huge && t->bytes >= COW__HUGE)
	         : cow__map_shared(cow__tile_start(t), t->bytes, &s->file,
	                           cow__segment_offset(cow__tile_start(t)),
	                           false);
	if (r == 0) {
		t->map.backing = anon ? COW__ANON : COW__SHARED;
		t->own.segment = s;
		t->own.freed_at = 0;
		if (s)
			cow__segment_ref(s);
	}
	cow__tile_change_end(t);
	return r;
}

static int
take_bare(size_t bytes, size_t align, unsigned want, unsigned flags, bool single,
          struct cow__tile **ret)
{
	bool anon = want & COW__WANT_ANON, room = flags & COW__EXTENT_ROOM;
	size_t unit = cow__round_up(bytes, COW__HUGE), space;
	struct cow__tile *t;
	uintptr_t at;
	int r;

	align = cow__max(align, COW__HUGE);
	space = room ? cow__max(unit * COW__ROOM_TIMES, COW__ROOM_LEAST) : unit;
	/* Where whole page tables of 1 GiB can be moved (core/cow/old_tables.h). */
	if (bytes >= GIB && align < GIB &&
	    cow__engine.end - cow__engine.start > COW__GIB_ALIGNED_SHARE * space)
		align = GIB;
	t = cow__tile_search(COW__BARE, want & COW__WANT_MAPPING, space, align);
	if (!t && space > unit)
		t = cow__tile_search(COW__BARE, want & COW__WANT_MAPPING, unit,
		                     align);
	if (!t)
		return -ENOMEM;
	at = cow__round_up(cow__tile_start(t), align);
	if (room && t->bytes > COW__ROOM_MIDDLE_TIMES * space) {
		/* Far from the dense end, in the middle of what is free. */
		at = cow__round_up(cow__tile_start(t) + t->bytes / 2, align);
	}
	/* A segment of its own has nothing else. */
	if (single)
		unit = bytes;
	t = cow__tile_carve(t, at, unit);
	if (!t)
		return -ENOMEM;
	r = map_bare(t, anon, !(flags & COW__EXTENT_ZEROED), single);
	if (r < 0) {
		(void)cow__tile_put(t);
		return r;
	}
	if (!anon && !room && !single && bytes < COW__UNALIGNED_MOST)
		cow__commit_unit(t, bytes);
	if (unit > bytes) {
		t = cow__tile_put(t);
		t = cow__tile_carve(t, at, bytes);
		if (!t)
			return -ENOMEM;
	}
	rest_at = anon || room || single ? 0 : at + bytes;
	*ret = t;
	return 0;
}

/* Maps bare space behind a tile as cold space of its kind, if possible. */
static bool
map_behind(const struct cow__tile *t, size_t more)
{
	struct cow__tile *b = t->next;

	if (!b || b->kind != COW__FREE || b->map.backing != COW__NONE ||
	    cow__tile_end(t) % COW__HUGE != 0 ||
	    (t->own.segment && t->own.segment != cow__engine.current))
		return false;
	b = cow__tile_carve(b, cow__tile_start(b),
	                    cow__min(cow__round_up(more, COW__HUGE), b->bytes));
	if (!b)
		return false;
	if (map_bare(b, t->map.backing == COW__ANON, true, false) < 0) {
		(void)cow__tile_put(b);
		return false;
	}
	(void)cow__tile_put(b);
	return true;
}

bool
cow__place_behind(struct cow__tile *t, size_t bytes)
{
	struct cow__tile *b = t->next;

	/* Behind the tile lies mapped space, or bare space. Or the rest of the last
	 * 2 MiB, which is mapped, and bare space behind that. */
	if (!cow__tile_same_mapping(t, b)) {
		if (!map_behind(t, bytes))
			return false;
	} else if (b->bytes < bytes && !map_behind(b, bytes - b->bytes)) {
		return false;
	}
	b = t->next;
	return cow__tile_same_mapping(t, b) && b->bytes >= bytes;
}

/* May cow__place_behind() find so much? */
static bool
has_behind(const struct cow__tile *t, size_t bytes)
{
	const struct cow__tile *b = t->next;

	if (cow__tile_same_mapping(t, b)) {
		if (b->bytes >= bytes)
			return true;
		bytes -= b->bytes;
		b = b->next;
	}
	return b && b->kind == COW__FREE && b->map.backing == COW__NONE && b->bytes >= bytes;
}

/* Takes a warm tile off the lists, with as much of what lies behind it as `bytes`
 * needs. */
static struct cow__tile *
take_with_more(struct cow__tile *t, size_t bytes)
{
	size_t more = bytes - t->bytes;

	if (!cow__place_behind(t, more))
		return NULL;
	cow__tile_unlist(t);
	if (cow__tile_grow(t, more) < 0) {
		(void)cow__tile_put(t);
		return NULL;
	}
	t->own.hollow = more;
	return t;
}

/* Takes cold memory right behind what was taken before. So huge pages can lie under
 * all of such extents, and forks handle them as one. At a boundary the last part of each would
 * have small pages, and there would be a gap behind it. */
static struct cow__tile *
take_behind_last(size_t bytes, size_t align, unsigned want)
{
	struct cow__tile *t = rest_at ? cow__tile_find(rest_at) : NULL;

	if (!t || cow__tile_start(t) != rest_at || rest_at % align != 0 || t->kind != COW__FREE ||
	    cow__tile_heat(t) != COW__COLD || !t->own.segment || t->own.segment->single ||
	    !cow__tile_serves(t, want) || !cow__segment_usable(t->own.segment))
		return NULL;
	/* What is mapped there becomes one tile with it. */
	if (t->bytes < bytes && !map_behind(t, bytes - t->bytes))
		return NULL;
	t = cow__tile_find(rest_at);
	if (!t || t->bytes < bytes)
		return NULL;
	cow__commit_unit(t, bytes);
	return cow__tile_carve(t, rest_at, bytes);
}

/* Takes the neighbour of the extent before. Extents that are allocated together
 * are often freed together, and then they are one tile again. Otherwise a program
 * that makes halves of a size out of wholes would have two halves in two places
 * for every whole. */
static struct cow__tile *
take_neighbour(size_t bytes, size_t align, unsigned want)
{
	struct cow__tile *t = cow__tile_rest(want, bytes);

	if (!t || cow__tile_start(t) % align != 0)
		return NULL;
	if (t->bytes >= bytes)
		return cow__tile_carve(t, cow__tile_start(t), bytes);
	return take_with_more(t, bytes);
}

/* Of the warm tiles that are too small, but have cold memory behind them that may be
 * used: the largest one. Blocks of many sizes leave such pieces. Without this a program
 * that makes and frees them would get fresh memory, and its pieces would cool. */
static struct cow__tile *
find_part(size_t bytes, size_t align, unsigned want)
{
	struct cow__tile *t = cow__engine.warm_first, *best = NULL;
	size_t least = bytes / COW__WARM_PART_SHARE;

	for (int looks = 0; t && looks < COW__WARM_PARTS_SEEN; t = t->list_next, looks++) {
		if (t->bytes < least || t->bytes >= bytes || t->own.hollow ||
		    cow__tile_start(t) % align != 0 || !cow__tile_serves(t, want) ||
		    !cow__segment_usable(t->own.segment) ||
		    !has_behind(t, bytes - t->bytes))
			continue;
		best = t;
		least = t->bytes;
	}
	return best;
}

/* Warm memory for an extent, and where in it. Huge pages that are there need no
 * boundary: warm memory at any page is better than fresh memory at a 2 MiB
 * boundary. What has no pages yet needs the boundary. So does an extent so large
 * that its page tables may be moved (core/cow/old_tables.h). */
static struct cow__tile *
find_warm(size_t bytes, size_t align, size_t huge, unsigned want, uintptr_t *ret_at)
{
	struct cow__tile *t = cow__tile_search(COW__WARM, want, bytes, align);

	if (t && cow__round_up(cow__tile_start(t), align) % huge != 0 &&
	    (t->own.hollow || bytes >= COW__UNALIGNED_MOST)) {
		align = huge;
		t = cow__tile_search(COW__WARM, want, bytes, align);
	}
	*ret_at = t ? cow__round_up(cow__tile_start(t), align) : 0;
	return t;
}

bool
cow__place_has_warm(size_t bytes, size_t align, unsigned flags)
{
	size_t huge = bytes >= COW__HUGE ? cow__max(align, COW__HUGE) : align;
	uintptr_t at;
	const struct cow__tile *t =
	        find_warm(bytes, align, huge, flags & COW__EXTENT_MAPPING ? COW__WANT_MAPPING : 0,
	                  &at);

	return t && !t->own.hollow;
}

/* Can this free tile be a block that is alone in its file? */
static bool
serves_alone(const struct cow__tile *t, uintptr_t at, size_t bytes)
{
	return t->own.segment->single && at == cow__tile_start(t) &&
	       t->bytes / 2 <= bytes;
}

/* Takes mapped memory. *ret is NULL if there is none. */
static int
take_mapped(size_t bytes, size_t align, unsigned want, unsigned flags, bool single,
            struct cow__tile **ret)
{
	size_t huge = bytes >= COW__HUGE ? cow__max(align, COW__HUGE) : align;
	uintptr_t at;
	struct cow__tile *t = find_warm(bytes, align, huge, want, &at);

	/* Who writes all of it at once wants huge pages, and those at a boundary. */
	if (!t && !single && bytes >= COW__HUGE && !(flags & COW__EXTENT_WHOLE)) {
		t = find_part(bytes, bytes < COW__UNALIGNED_MOST ? align : huge, want);
		*ret = t ? take_with_more(t, bytes) : NULL;
		if (*ret)
			return 0;
		t = NULL;
	}
	if (!t && !single && !(want & COW__WANT_ANON) && bytes < COW__UNALIGNED_MOST) {
		*ret = take_behind_last(bytes, align, want);
		if (*ret)
			return 0;
	}
	if (!t) {
		t = cow__tile_search(COW__COLD, want, bytes, huge);
		at = t ? cow__round_up(cow__tile_start(t), huge) : 0;
	}
	*ret = NULL;
	if (!t || (single && !serves_alone(t, at, bytes)))
		return 0;
	*ret = cow__tile_carve(t, at, bytes);
	return *ret ? 0 : -ENOMEM;
}

int
cow__place_at(uintptr_t at, size_t bytes, bool anon, struct cow__tile **ret, size_t *ret_dirty)
{
	struct cow__tile *t = cow__tile_find(at);
	int r = 0;

	if (!t || t->kind != COW__FREE)
		return -ENOMEM;
	/* Relatives have this file, or the program wants the other kind of memory. */
	if (t->map.backing != COW__NONE &&
	    (!cow__segment_usable(t->own.segment) || (t->map.backing == COW__ANON) != anon ||
	     (t->own.segment && t->own.segment->single))) {
		cow__bare_make(t, t->own.segment);
		t = cow__tile_find(at);
	}
	t = t ? cow__tile_carve(t, at, cow__min(bytes, cow__tile_end(t) - at)) : NULL;
	if (!t)
		return -ENOMEM;
	if (t->map.backing == COW__NONE)
		r = map_bare(t, anon, true, false);
	else if (!cow__segment_usable(t->own.segment) || (t->map.backing == COW__ANON) != anon)
		r = -ENOMEM;
	if (r < 0) {
		(void)cow__tile_put(t);
		return r;
	}
	*ret_dirty = cow__tile_heat(t) == COW__WARM ? t->bytes - t->own.hollow : 0;
	*ret = t;
	return 0;
}

int
cow__place_take(size_t bytes, size_t align, bool anon, unsigned flags,
                struct cow__tile **ret, size_t *ret_dirty)
{
	unsigned want = (anon ? COW__WANT_ANON : 0) |
	                (flags & COW__EXTENT_MAPPING ? COW__WANT_MAPPING : 0);
	bool room = flags & COW__EXTENT_ROOM, apart = flags & COW__EXTENT_APART;
	/* A block that may be sent (core/memory/own_segment.h). */
	bool single = !anon && !room &&
	              !(flags & (COW__EXTENT_MAPPING | COW__EXTENT_PAGES)) &&
	              (apart || cow__own_segment_wants(bytes));
	struct cow__tile *t = NULL;
	int r = 0;

	cow__holders_refresh_due();
	*ret_dirty = 0;
	single = single && cow__segment_single_left(apart);
	if (!room && !single && bytes < COW__UNALIGNED_MOST)
		t = take_neighbour(bytes, align, want);
	if (!t && !room)
		r = take_mapped(bytes, align, want, flags, single, &t);
	if (r < 0)
		return r;
	if (!t)
		return take_bare(bytes, align, want, flags, single, ret);
	if (cow__tile_heat(t) == COW__COLD && !anon && !single)
		rest_at = cow__tile_end(t);
	if (single)
		/* The process that receives the file must not get this, too. */
		cow__bare_make(t->next, t->own.segment);
	/* All of it will be written at once, so all of it shall be huge. */
	if (t->own.hollow && (flags & COW__EXTENT_WHOLE) &&
	    cow__map_punch(cow__tile_start(t), bytes) == 0)
		t->own.hollow = bytes;
	if (cow__tile_heat(t) == COW__WARM)
		*ret_dirty = bytes - t->own.hollow;
	*ret = t;
	return 0;
}

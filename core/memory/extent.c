/* SPDX-License-Identifier: MIT */
/*
 * Extents: live tiles, how they are allocated, resized and cut
 *
 * Memory is found warm if possible, else cold (mapped, no pages), else bare
 * (address space alone). Tiles of 2 MiB and more start at a 2 MiB boundary of
 * address and file, so that huge pages fit. Bare space is mapped in multiples of
 * 2 MiB. What an extent leaves of the last one is cold and serves small extents.
 */
#include "core/memory/extent.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/attribute.h"
#include "core/memory/commit.h"
#include "core/memory/copy_history.h"
#include "core/memory/decay.h"
#include "core/memory/own_segment.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/wait.h"

#define UNALIGNED_MOST (64 * MIB)

static bool
wants_anon(size_t bytes, unsigned flags)
{
	if (cow__engine.no_memfd || cow__engine.no_locks)
		return true;
	if (flags & COW__EXTENT_MEMFD)
		return false;
	if (cow__engine.policy == COW__POLICY_ANON)
		return true;
	/* Where the kernel counts memory, blocks have to count, too. A shortage
	 * is an error then, and not a SIGBUS at a later touch. */
	return cow__engine.policy == COW__POLICY_AUTO &&
	       (cow__engine.counted ||
	        (cow__engine.prefer_anon && bytes >= COW__HUGE &&
	         !cow__own_segment_asked(bytes)));
}

/* Turns bare space into mapped cold space; `t` is off the lists. */
static int
map_bare(struct cow__tile *t, bool anon, bool single)
{
	struct cow__segment *s = NULL;
	int r;

	/* What takes the place of a mapping is not held against a limit. */
	if (!anon)
		r = single && cow__segment_single(cow__own_segments_most(), &s) == 0
		            ? 0
		            : cow__segment_current(&s);
	else
		r = cow__engine.counted ? cow__map_ask(t->bytes) : 0;
	if (r < 0)
		return r;
	cow__tile_change_begin(t);
	r = anon ? cow__map_anon(cow__tile_start(t), t->bytes,
	                         t->bytes >= COW__HUGE)
	         : cow__map_shared(cow__tile_start(t), t->bytes, &s->file,
	                           cow__segment_offset(cow__tile_start(t)),
	                           false);
	if (r == 0) {
		t->backing = anon ? COW__ANON : COW__SHARED;
		t->segment = s;
		t->freed_at = 0;
		if (s)
			cow__segment_ref(s);
	}
	cow__tile_change_end(t);
	return r;
}

static int
take_bare(size_t bytes, size_t align, unsigned want, bool room, bool single,
          struct cow__tile **ret)
{
	bool anon = want & COW__WANT_ANON;
	size_t unit = cow__round_up(bytes, COW__HUGE), space;
	struct cow__tile *t;
	uintptr_t at;
	int r;

	align = cow__max(align, COW__HUGE);
	/* Room to grow is only addresses. Stay clear of what grows behind this
	 * extent. */
	space = room ? cow__max(unit * 16, 256 * MIB) : unit;
	/* Where whole page tables of 1 GiB can be moved (core/cow/old_tables.h). */
	if (bytes >= GIB && align < GIB &&
	    cow__engine.end - cow__engine.start > 64 * space)
		align = GIB;
	t = cow__tile_search(COW__BARE, want & COW__WANT_MAPPING, space, align);
	if (!t && space > unit)
		t = cow__tile_search(COW__BARE, want & COW__WANT_MAPPING, unit,
		                     align);
	if (!t)
		return -ENOMEM;
	at = cow__round_up(cow__tile_start(t), align);
	if (room && t->bytes > 4 * space) {
		/* Far from the dense end, in the middle of what is free. */
		at = cow__round_up(cow__tile_start(t) + t->bytes / 2, align);
	}
	/* A segment of its own has nothing else. */
	if (single)
		unit = bytes;
	t = cow__tile_carve(t, at, unit);
	if (!t)
		return -ENOMEM;
	r = map_bare(t, anon, single);
	if (r < 0) {
		(void)cow__tile_put(t);
		return r;
	}
	if (!anon && bytes < COW__HUGE)
		cow__commit_unit(at, bytes);
	if (unit > bytes) {
		t = cow__tile_put(t);
		t = cow__tile_carve(t, at, bytes);
		if (!t)
			return -ENOMEM;
	}
	*ret = t;
	return 0;
}

/* Takes the neighbour of the extent before. Extents that are allocated together
 * are often freed together, and then they are one tile again. Otherwise a program
 * that makes halves of a size out of wholes would have two halves in two places
 * for every whole. */
static struct cow__tile *
take_neighbour(size_t bytes, size_t align, unsigned want)
{
	struct cow__tile *t = cow__tile_rest(want, bytes);
	size_t more;

	if (!t || cow__tile_start(t) % align != 0)
		return NULL;
	if (t->bytes >= bytes)
		return cow__tile_carve(t, cow__tile_start(t), bytes);
	more = bytes - t->bytes;
	cow__tile_unlist(t);
	if (cow__tile_grow(t, more) < 0) {
		(void)cow__tile_put(t);
		return NULL;
	}
	t->hollow = more;
	return t;
}

/* Finds mapped memory for an extent, and where in it. Huge pages that are there
 * need no boundary: warm memory at any page is better than fresh memory at a
 * 2 MiB boundary. What has no pages yet needs the boundary. So does an extent so
 * large that its page tables may be moved (core/cow/old_tables.h). */
static struct cow__tile *
find(size_t bytes, size_t align, unsigned want, uintptr_t *ret_at)
{
	size_t huge = bytes >= COW__HUGE ? cow__max(align, COW__HUGE) : align;
	struct cow__tile *t = cow__tile_search(COW__WARM, want, bytes, align);
	uintptr_t at = t ? cow__round_up(cow__tile_start(t), align) : 0;

	if (t && at % huge != 0 && (t->hollow || bytes >= UNALIGNED_MOST)) {
		t = cow__tile_search(COW__WARM, want, bytes, huge);
		at = t ? cow__round_up(cow__tile_start(t), huge) : 0;
	}
	if (!t) {
		t = cow__tile_search(COW__COLD, want, bytes, huge);
		at = t ? cow__round_up(cow__tile_start(t), huge) : 0;
	}
	*ret_at = at;
	return t;
}

/* Can this free tile be a block that is alone in its file? */
static bool
serves_alone(const struct cow__tile *t, uintptr_t at, size_t bytes)
{
	return t->segment->single && at == cow__tile_start(t) &&
	       t->bytes / 2 <= bytes;
}

static int
take(size_t bytes, size_t align, bool anon, unsigned flags,
     struct cow__tile **ret, size_t *ret_dirty)
{
	unsigned want = (anon ? COW__WANT_ANON : 0) |
	                (flags & COW__EXTENT_MAPPING ? COW__WANT_MAPPING : 0);
	bool room = flags & COW__EXTENT_ROOM, warm = true;
	/* A block that may be sent (core/memory/own_segment.h). */
	bool single = !anon && !room &&
	              !(flags & (COW__EXTENT_MAPPING | COW__EXTENT_PAGES)) &&
	              cow__own_segment_wants(bytes);
	struct cow__tile *t = NULL;
	uintptr_t at;

	*ret_dirty = 0;
	single = single && cow__segment_single_left();
	if (!room && !single && bytes < UNALIGNED_MOST)
		t = take_neighbour(bytes, align, want);
	if (!t) {
		t = room ? NULL : find(bytes, align, want, &at);
		if (t && single && !serves_alone(t, at, bytes))
			t = NULL;
		if (!t)
			return take_bare(bytes, align, want, room, single, ret);
		warm = cow__tile_heat(t) == COW__WARM;
		t = cow__tile_carve(t, at, bytes);
		if (!t)
			return -ENOMEM;
		if (single)
			/* The process that receives the file must not get this,
			 * too. */
			cow__extent_leave_file(t->next, t->segment);
	}
	/* All of it will be written at once, so all of it shall be huge. */
	if (t->hollow && (flags & COW__EXTENT_WHOLE) &&
	    cow__map_punch(cow__tile_start(t), bytes) == 0)
		t->hollow = bytes;
	if (warm)
		*ret_dirty = bytes - t->hollow;
	*ret = t;
	return 0;
}

/* Counts what is handed out: tiles with pages of their own, not views. */
static void
live_grows(size_t bytes)
{
	uint64_t live = cow__stat_add(bytes_live, bytes) + bytes;

	cow__engine.live_bytes += bytes;
	if (cow__engine.live_bytes > cow__engine.live_peak)
		cow__engine.live_peak = cow__engine.live_bytes;
	cow__stat_add(bytes_served, bytes);
	if (live > cow__stat_get(bytes_peak))
		cow__stat_set(bytes_peak, live);
}

void
cow__extent_live(struct cow__tile *t, size_t used)
{
	struct cow__node node = t->node;
	struct cow__tile *prev = t->prev, *next = t->next;
	struct cow__segment *segment = t->segment;
	uint8_t backing = t->backing;
	size_t bytes = t->bytes;

	*t = (struct cow__tile){
		.node = node,
		.prev = prev,
		.next = next,
		.bytes = bytes,
		.kind = COW__LIVE,
		.backing = backing,
		.segment = segment,
		.refs = 1,
		.used = used,
	};
	live_grows(bytes);
}

/* take(). *ret is anonymous, and *anon true, where no segment can be had. */
static int
take_either(size_t bytes, size_t align, bool *anon, unsigned flags,
            struct cow__tile **ret, size_t *ret_dirty)
{
	int r = take(bytes, align, *anon, flags, ret, ret_dirty);

	if (r < 0 && !*anon && r != -ENOMEM) {
		/* There is no memfd here (or its size is forbidden): do
		 * without. */
		cow__fallback(COW_FALLBACK_MEMFD);
		*anon = true;
		r = take(bytes, align, true, flags, ret, ret_dirty);
	}
	/* What is warm counts against limits on anonymous memory. */
	if (r == -ENOMEM && *anon && cow__decay_all())
		r = take(bytes, align, true, flags, ret, ret_dirty);
	return r;
}

/* Huge pages for a new extent of a segment. `small`: it had small ones. */
static void
commit(struct cow__tile *t, size_t dirty, unsigned flags, bool small)
{
	if (t->bytes < COW__HUGE || cow__tile_start(t) % COW__HUGE != 0)
		return;
	if (dirty == 0)
		cow__commit_fresh(t, flags & COW__EXTENT_WHOLE);
	else if (t->bytes - dirty >= COW__HUGE)
		cow__commit_from(t, dirty);
	else if (small)
		cow__commit_recycled(t);
}

int
cow__extent_new(size_t bytes, size_t align, unsigned flags,
                struct cow__tile **ret, size_t *ret_dirty)
{
	size_t len = cow__round_up(bytes ? bytes : 1, cow__page);
	bool anon = wants_anon(len, flags), small;
	size_t dirty;
	struct cow__tile *t;
	int r;

	if (len < bytes || len > cow__engine.end - cow__engine.start)
		return -ENOMEM;
	align = cow__max(align, cow__page);
	r = take_either(len, align, &anon, flags, &t, &dirty);
	if (r < 0)
		return r;
	if ((flags & COW__EXTENT_STRICT) || cow__engine.strict) {
		r = cow__map_populate(cow__tile_start(t), len);
		if (r < 0) {
			t->freed_at = cow__now();
			(void)cow__tile_put(t);
			return r;
		}
	}
	/* It may be sent, but not with the bytes that its last owner left behind
	 * it. */
	if (t->segment && t->segment->single && dirty > bytes)
		memset((char *)cow__tile_start(t) + bytes, 0, len - bytes);
	small = t->small;
	cow__extent_live(t, bytes);
	cow__stat_add(blocks_served, 1);
	cow__stat_add(blocks_live, 1);
	if (anon)
		cow__fallback(COW_FALLBACK_BACKING);
	cow__stat_add(bytes_recycled, dirty);
	/* Warm memory that does not serve goes before more is committed. */
	if (dirty == 0 && cow__engine.warm_first)
		(void)cow__decay(cow__now(), len, false);
	if (!anon)
		commit(t, dirty, flags, small);
	*ret = t;
	*ret_dirty = dirty;
	return 0;
}

/* Has the tile only its own, plainly mapped pages? Then parts of it may go and
 * come. */
static bool
plain(const struct cow__tile *t)
{
	return !t->pieces && !t->kept && !t->slow && !t->pinned && t->refs <= 1 &&
	       t->backing != COW__PRIVATE && (!t->segment || t->segment->owner);
}

/* Ends a part that was cut out of a live tile; behind `reached` (an address)
 * it has no pages. */
static void
end_part(struct cow__tile *part, uintptr_t reached)
{
	uintptr_t end = cow__tile_end(part);

	part->hollow = end > reached ? cow__min(end - reached, part->bytes) : 0;
	cow__engine.live_bytes -= part->bytes;
	cow__stat_sub(bytes_live, part->bytes);
	part->kind = COW__LIMBO;
	part->refs = part->word = 0;
	part->block = part->mapping = part->exposed = false;
	part->touched = 0;
	part->allocation = NULL;
	cow__recycle(part, true);
}

static bool
shrink(struct cow__tile *t, size_t len, size_t reached)
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

	if (!plain(t) || t->busy)
		return false;
	if (t->watched)
		cow__copy_history_end(t);
	cow__spares_drop(t);
	reached = from + cow__commit_reached(t);
	cow__commit_forget(t);
	if (end < to) {
		rest = cow__tile_cut(t, to - end);
		if (!rest)
			return false;
		rest->used = rest->bytes;
		rest->word = 0;
		cow__stat_add(blocks_live, 1);
	}
	if (start > from) {
		part = cow__tile_cut(t, end - start);
		if (!part)
			return false;
		t->used = t->bytes;
	} else {
		cow__stat_sub(blocks_live, 1);
		if (rest)
			rest->word = t->word;
	}
	end_part(part, reached);
	return true;
}

/* Maps bare space behind a tile as cold space of its kind, if possible. */
static bool
map_behind(const struct cow__tile *t, size_t more)
{
	struct cow__tile *b = t->next;

	if (!b || b->kind != COW__FREE || b->backing != COW__NONE ||
	    cow__tile_end(t) % COW__HUGE != 0 ||
	    (t->segment && t->segment != cow__engine.current))
		return false;
	b = cow__tile_carve(b, cow__tile_start(b),
	                    cow__min(cow__round_up(more, COW__HUGE), b->bytes));
	if (!b)
		return false;
	if (map_bare(b, t->backing == COW__ANON, false) < 0) {
		(void)cow__tile_put(b);
		return false;
	}
	(void)cow__tile_put(b);
	return true;
}

static bool
same_mapping(const struct cow__tile *t, const struct cow__tile *b)
{
	return b && b->kind == COW__FREE && b->backing == t->backing &&
	       b->segment == t->segment;
}

static bool
grow(struct cow__tile *t, size_t more)
{
	struct cow__tile *b = t->next;
	size_t old = t->bytes;
	bool fresh;

	/* Behind the tile lies mapped space, or bare space. Or the rest of the
	 * last 2 MiB, which is mapped, and bare space behind that. */
	if (!same_mapping(t, b) ? !map_behind(t, more)
	                        : b->bytes < more &&
	                                  !map_behind(b, more - b->bytes))
		return false;
	b = t->next;
	if (!same_mapping(t, b) || b->bytes < more)
		return false;
	fresh = cow__tile_heat(b) != COW__WARM;
	if (cow__tile_grow(t, more) < 0)
		return false;
	t->hollow = 0;
	live_grows(more);
	if (fresh && t->segment && more >= COW__HUGE &&
	    cow__tile_start(t) % COW__HUGE == 0)
		cow__commit_from(t, old);
	return true;
}

bool
cow__extent_resize(struct cow__tile *t, size_t bytes)
{
	size_t len = cow__round_up(bytes, cow__page);

	if (!plain(t))
		return false;
	/* The helper works on pages that are there: it may only grow. */
	if (t->busy && len < t->bytes)
		return false;
	if (len != t->bytes) {
		size_t reached = cow__commit_reached(t);

		cow__commit_forget(t);
		if (len < t->bytes ? !shrink(t, len, reached)
		                   : !grow(t, len - t->bytes))
			return false;
	}
	t->used = bytes;
	return true;
}

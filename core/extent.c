/* SPDX-License-Identifier: MIT */
/*
 * Extents: live tiles, from allocation to recycling
 *
 * Memory is found warm if possible, else cold (mapped, no pages), else bare
 * (address space alone). Tiles of 2 MiB and more start at a 2 MiB boundary of
 * address and file, so that huge pages fit. Bare space is mapped in multiples
 * of 2 MiB: what an extent leaves of the last one is cold and serves small
 * ones.
 */
#include "core/extent.h"
#include "core/array.h"
#include "core/attribute.h"
#include "core/base.h"
#include "core/commit.h"
#include "core/decay.h"
#include "core/engine.h"
#include "core/stats.h"
#include "memfd/map.h"
#include "memfd/wait.h"

/* Pages here that nobody reads any more but another process may: polled. */
static struct cow__tile *limbo;
static unsigned limbo_count;

static bool
wants_anon(size_t bytes, unsigned flags)
{
	if (cow__engine.no_memfd || cow__engine.no_locks)
		return true;
	if (flags & COW__EXTENT_MEMFD)
		return false;
	if (cow__engine.policy == COW__POLICY_ANON)
		return true;
	return cow__engine.policy == COW__POLICY_AUTO &&
	       cow__engine.prefer_anon && bytes >= COW__HUGE;
}

/* Turns bare space into mapped cold space; `t` is off the lists. */
static int
map_bare(struct cow__tile *t, bool anon)
{
	struct cow__segment *s = NULL;
	int r;

	if (!anon) {
		r = cow__segment_current(&s);
		if (r < 0)
			return r;
	}
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
take_bare(size_t bytes, size_t align, bool anon, bool room,
          struct cow__tile **ret)
{
	size_t unit = cow__round_up(bytes, COW__HUGE), space;
	struct cow__tile *t;
	uintptr_t at;
	int r;

	align = cow__max(align, COW__HUGE);
	/* Room: only addresses. Stay clear of what grows behind us. */
	space = room ? cow__max(unit * 16, 256 * MIB) : unit;
	t = cow__tile_search(COW__BARE, false, space, align);
	if (!t && space > unit)
		t = cow__tile_search(COW__BARE, false, unit, align);
	if (!t)
		return -ENOMEM;
	at = cow__round_up(cow__tile_start(t), align);
	if (room && t->bytes > 4 * space) {
		/* Far from the dense end, in the middle of what is free. */
		at = cow__round_up(cow__tile_start(t) + t->bytes / 2, align);
	}
	t = cow__tile_carve(t, at, unit);
	if (!t)
		return -ENOMEM;
	r = map_bare(t, anon);
	if (r < 0) {
		(void)cow__tile_put(t);
		return r;
	}
	if (unit > bytes) {
		t = cow__tile_put(t);
		t = cow__tile_carve(t, at, bytes);
		if (!t)
			return -ENOMEM;
	}
	*ret = t;
	return 0;
}

static int
take(size_t bytes, size_t align, bool anon, bool room, struct cow__tile **ret,
     bool *ret_zero)
{
	static const enum cow__heat heats[] = { COW__WARM, COW__COLD };

	for (unsigned i = 0; i < 2 && !room; i++) {
		struct cow__tile *t;

		t = cow__tile_search(heats[i], anon, bytes, align);
		if (!t)
			continue;
		t = cow__tile_carve(t, cow__round_up(cow__tile_start(t), align),
		                    bytes);
		if (!t)
			return -ENOMEM;
		*ret_zero = heats[i] == COW__COLD;
		*ret = t;
		return 0;
	}
	*ret_zero = true;
	return take_bare(bytes, align, anon, room, ret);
}

/* What is handed out: tiles with pages of their own, not views. */
static void
live_grows(size_t bytes)
{
	uint64_t live = cow__stat_add(bytes_live, bytes) + bytes;

	cow__engine.live_bytes += bytes;
	cow__stat_add(bytes_served, bytes);
	if (live > cow__stat_get(bytes_peak))
		cow__stat_set(bytes_peak, live);
}

static void
become_live(struct cow__tile *t, size_t used)
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

int
cow__extent_new(size_t bytes, size_t align, unsigned flags,
                struct cow__tile **ret, bool *ret_zero)
{
	size_t len = cow__round_up(bytes ? bytes : 1, cow__page);
	bool anon = wants_anon(len, flags), zero;
	struct cow__tile *t;
	int r;

	if (len < bytes || len > cow__engine.end - cow__engine.start)
		return -ENOMEM;
	align = cow__max(align, len >= COW__HUGE ? COW__HUGE : cow__page);
	r = take(len, align, anon, flags & COW__EXTENT_ROOM, &t, &zero);
	if (r < 0 && !anon && r != -ENOMEM) {
		/* No memfd here (or its size is forbidden): do without. */
		cow__fallback(COW_FALLBACK_MEMFD);
		anon = true;
		r = take(len, align, true, flags & COW__EXTENT_ROOM, &t,
		         &zero);
	}
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
	become_live(t, bytes);
	cow__stat_add(blocks_served, 1);
	cow__stat_add(blocks_live, 1);
	if (anon)
		cow__fallback(COW_FALLBACK_BACKING);
	if (!zero)
		cow__stat_add(bytes_recycled, len);
	else if (!anon && len >= COW__HUGE)
		cow__commit_fresh(t, flags & COW__EXTENT_WHOLE);
	*ret = t;
	*ret_zero = zero;
	return 0;
}

/* Nobody maps the pages here. Back to the free lists, warm if they are ours to
 * recycle. `alone`: no other process has them. */
static void
recycle(struct cow__tile *t, bool alone)
{
	struct cow__segment *s = t->segment;
	int r = 0;

	cow__tile_change_begin(t);
	if (s && !(alone && s->owner)) {
		r = cow__map_none(cow__tile_start(t), t->bytes);
		if (r == 0) {
			cow__segment_unref(s);
			t->segment = NULL;
			t->backing = COW__NONE;
		}
	} else if (s && (t->backing != COW__SHARED || t->slow)) {
		r = cow__map_shared(cow__tile_start(t), t->bytes, &s->file,
		                    cow__segment_offset(cow__tile_start(t)),
		                    false);
		if (r == 0)
			t->backing = COW__SHARED;
		else if (cow__map_none(cow__tile_start(t), t->bytes) == 0) {
			cow__segment_unref(s);
			t->segment = NULL;
			t->backing = COW__NONE;
			r = 0;
		}
	} else if (!s && (t->backing != COW__ANON || t->slow)) {
		r = cow__map_none(cow__tile_start(t), t->bytes);
		if (r == 0)
			t->backing = COW__NONE;
	}
	cow__attributes_free(t);
	t->slow = t->overlaid = false;
	cow__tile_change_end(t);
	if (r < 0) {
		/* No mapping left to take it apart with: its addresses are
		 * lost until somebody frees one. Tried again from limbo. */
		t->kind = COW__LIMBO;
		t->list_next = limbo;
		limbo = t;
		limbo_count++;
		return;
	}
	t->freed_at = t->backing == COW__NONE ? 0 : cow__now();
	(void)cow__tile_put(t);
}

/* Gives the pages of a relative's segment back to the kernel. */
static int
punch_foreign(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	int r;

	r = cow__map_shared(at, t->bytes, &t->segment->file,
	                    cow__segment_offset(at), false);
	if (r < 0)
		return r;
	cow__tile_change_begin(t);
	t->backing = COW__SHARED;
	cow__tile_change_end(t);
	return cow__map_punch(at, t->bytes);
}

/* No mapping of this process reads them any more. */
static void
release_pages(struct cow__tile *t)
{
	struct cow__census c = { 0, 0 };
	bool alone;

	if (!t->segment) {
		recycle(t, true);
		return;
	}
	alone = cow__holders_drop(t, &c,
	                          t->segment->owner ? NULL : punch_foreign);
	if (alone || !t->segment->owner) {
		recycle(t, alone);
		return;
	}
	/* Others read them on. The mapping is of no use here: its copied
	 * pages go now, the file pages when the others are done. */
	cow__tile_change_begin(t);
	if (cow__map_none(cow__tile_start(t), t->bytes) == 0)
		t->backing = COW__NONE;
	cow__tile_change_end(t);
	t->kind = COW__LIMBO;
	t->list_next = limbo;
	limbo = t;
	limbo_count++;
	cow__stat_add(bytes_limbo, t->bytes);
}

void
cow__extent_unref_pages(struct cow__tile *t)
{
	cow__require(t->refs > 0);
	if (--t->refs == 0 && t->kind == COW__LIMBO)
		release_pages(t);
}

static void
drop_pieces(struct cow__tile *t)
{
	struct cow__piece *pieces = t->pieces;
	uint32_t n = t->npieces, cap = t->pieces_cap;

	if (!n) {
		t->refs--;
		return;
	}
	cow__tile_change_begin(t);
	t->pieces = NULL;
	t->npieces = t->pieces_cap = 0;
	cow__tile_change_end(t);
	for (uint32_t i = 0; i < n; i++) {
		if (pieces[i].pages == t)
			t->refs--;
		else
			cow__extent_unref_pages(pieces[i].pages);
	}
	cow__array_free(pieces, cap, sizeof(*pieces));
}

static void
live_ends(const struct cow__tile *t)
{
	cow__engine.live_bytes -= t->bytes;
	if (!t->segment && t->backing != COW__ANON)
		return; /* a view: counted where its pages are */
	cow__stat_sub(bytes_live, t->bytes);
	cow__stat_sub(blocks_live, 1);
}

void
cow__extent_detach(struct cow__tile *t)
{
	cow__commit_forget(t);
	live_ends(t);
	t->kind = COW__LIMBO;
}

void
cow__extent_free(struct cow__tile *t)
{
	cow__require(t->kind == COW__LIVE);
	cow__commit_forget(t);
	t->block = t->exposed = false;
	t->allocation = NULL;
	if (!t->doomed)
		live_ends(t);
	t->doomed = t->busy;
	if (t->busy)
		return; /* the helper calls again */
	cow__tile_change_begin(t);
	t->kind = COW__LIMBO;
	cow__array_free(t->kept, t->kept_cap, sizeof(*t->kept));
	t->kept = NULL;
	t->nkept = t->kept_cap = 0;
	cow__tile_change_end(t);
	drop_pieces(t);
	if (t->refs == 0) {
		release_pages(t);
		return;
	}
	/* Views read the file pages on; pages copied here are nobody's. */
	if (t->backing == COW__PRIVATE) {
		cow__tile_change_begin(t);
		if (cow__map_none(cow__tile_start(t), t->bytes) == 0)
			t->backing = COW__NONE;
		cow__tile_change_end(t);
	}
}

unsigned
cow__extent_poll_limbo(void)
{
	struct cow__census c = { 0, 0 };
	struct cow__tile *t = limbo, *next;

	limbo = NULL;
	limbo_count = 0;
	for (; t; t = next) {
		next = t->list_next;
		t->list_next = NULL;
		if (t->segment && !cow__holders_alone(t, &c)) {
			t->list_next = limbo;
			limbo = t;
			limbo_count++;
			continue;
		}
		if (t->segment) {
			cow__stat_sub(bytes_limbo, t->bytes);
			(void)cow__holders_drop(t, &c, NULL);
		}
		recycle(t, true);
	}
	return limbo_count;
}

bool
cow__extent_resize(struct cow__tile *t, size_t bytes)
{
	size_t len = cow__round_up(bytes, cow__page), more;
	struct cow__tile *tail;

	if (t->pieces || t->kept || t->slow || t->busy || t->refs > 1 ||
	    t->backing == COW__PRIVATE)
		return false;
	if (len == t->bytes) {
		t->used = bytes;
		return true;
	}
	if (len < t->bytes) {
		/* Below two megabytes alignment rules differ; keep it. */
		tail = cow__tile_cut(t, t->bytes - len);
		if (!tail)
			return false;
		cow__commit_forget(t);
		cow__engine.live_bytes -= tail->bytes;
		cow__stat_sub(bytes_live, tail->bytes);
		tail->kind = COW__LIMBO;
		tail->refs = 0;
		tail->word = 0;
		tail->young = tail->block = tail->exposed = false;
		tail->allocation = NULL;
		recycle(tail, true);
		t->used = bytes;
		return true;
	}
	more = len - t->bytes;
	tail = t->next;
	if (!tail || tail->kind != COW__FREE ||
	    tail->backing != t->backing || tail->segment != t->segment ||
	    tail->bytes < more) {
		if (!tail || tail->kind != COW__FREE ||
		    tail->backing != COW__NONE || tail->bytes < more ||
		    t->bytes % COW__HUGE != 0 ||
		    (t->segment && t->segment != cow__engine.current))
			return false;
		/* Bare space behind: map it first. */
		tail = cow__tile_carve(
		        tail, cow__tile_start(tail),
		        cow__min(cow__round_up(more, COW__HUGE), tail->bytes));
		if (!tail)
			return false;
		if (map_bare(tail, t->backing == COW__ANON) < 0) {
			(void)cow__tile_put(tail);
			return false;
		}
		if (tail->segment != t->segment) {
			(void)cow__tile_put(tail);
			return false;
		}
		tail = cow__tile_put(tail);
	}
	if (cow__tile_grow(t, more) < 0)
		return false;
	live_grows(more);
	t->used = bytes;
	return true;
}

void
cow__extent_replace(struct cow__tile *t, void *copy)
{
	struct cow__segment *s = t->segment;

	(void)cow__map_move((uintptr_t)copy, t->bytes, cow__tile_start(t));
	drop_pieces(t);
	cow__tile_change_begin(t);
	cow__array_free(t->kept, t->kept_cap, sizeof(*t->kept));
	t->kept = NULL;
	t->nkept = t->kept_cap = 0;
	if (s && t->refs == 0) {
		struct cow__census c = { 0, 0 };

		(void)cow__holders_drop(t, &c, NULL);
		cow__segment_unref(s);
		t->segment = NULL;
	}
	t->backing = COW__ANON;
	t->refs++;
	cow__tile_change_end(t);
	if (t->attributes)
		cow__attributes_apply(t, cow__tile_start(t), cow__tile_end(t));
}

void
cow__extents_child(void)
{
	struct cow__tile *t, *next;

	limbo = NULL;
	limbo_count = 0;
	for (t = cow__tile_first(); t; t = next) {
		bool inherited = t->backing == COW__PRIVATE ||
		                 t->backing == COW__ANON;

		next = t->next;
		t->busy = false;
		if (t->doomed) {
			cow__extent_free(t);
			return cow__extents_child();
		}
		if (t->kind == COW__INNER || t->kind == COW__LOST || (t->kind == COW__LIVE && inherited))
			continue;
		if (t->kind == COW__LIVE) /* kept by the helper at the fork */
			continue;
		if (t->backing != COW__NONE) {
			if (t->kind == COW__FREE)
				cow__tile_unlist(t);
			(void)cow__map_none(cow__tile_start(t), t->bytes);
			cow__tile_change_begin(t);
			t->backing = COW__NONE;
			cow__tile_change_end(t);
			t->freed_at = 0;
			if (t->kind == COW__FREE) {
				if (t->segment)
					cow__segment_unref(t->segment);
				t->segment = NULL;
				next = cow__tile_put(t)->next;
				continue;
			}
		}
		/* Limbo: wait for views, or drop what nobody here reads. */
		if (t->kind == COW__LIMBO && t->refs == 0) {
			if (t->segment) {
				struct cow__census c = { 0, 0 };

				(void)cow__holders_drop(t, &c, NULL);
				cow__segment_unref(t->segment);
				t->segment = NULL;
			}
			next = cow__tile_put(t)->next;
		}
	}
}

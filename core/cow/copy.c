/* SPDX-License-Identifier: MIT */
/*
 * The program's own copies, done lazily: see the header.
 */
#include "core/cow/copy.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/cow/old_tables.h"
#include "core/cow/part.h"
#include "core/cow/view.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/copy_history.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/resident.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"
#include "memfd/pins.h"
#include "memfd/process.h"
#include "memfd/wait.h"

struct copy {
	struct cow__tile *to, *from;
	size_t at;     /* in `to` */
	size_t offset; /* in `from` */
	size_t bytes;  /* whole pages */
	bool part;     /* what is around them in `to` stays mapped as it is */
	bool punch;    /* nobody needs the pages of `to` under them afterwards */
};

static bool
is_block(const struct cow__tile *t)
{
	return t && cow__can(t, COW__TO_COPY_OVER);
}

/* Memory whose pages no other mapping reads, or whose pages an earlier lazy copy
 * gave back. */
static bool
is_replaceable(const struct cow__tile *t)
{
	struct cow__census c = { .asked = 0 };

	if (t->map.nkept || cow__tile_is_punched(t) || !t->own.segment || !t->own.segment->owner)
		return false;
	if (t->map.lazy)
		return true;
	return t->map.backing == COW__SHARED && !t->map.pieces && !t->map.slow &&
	       t->own.refs == 1 && cow__holders_alone(t, &c);
}

/* The two tiles, if this is a copy that could be lazy. */
static bool
find_tiles(struct copy *c, uintptr_t to, uintptr_t from, size_t bytes)
{
	*c = (struct copy){ .punch = false };
	c->to = cow__tile_find(to);
	c->from = cow__tile_find(from);
	if (!is_block(c->to) || !is_block(c->from) || c->to == c->from)
		return false;
	c->offset = from - cow__tile_start(c->from);
	c->bytes = cow__round_down(bytes, cow__page);
	return cow__tile_start(c->to) == to && bytes <= c->to->bytes &&
	       cow__extent_usable(c->to) <= c->bytes + cow__page &&
	       c->offset % cow__page == 0 &&
	       bytes <= c->from->bytes - c->offset &&
	       bytes >= c->from->bytes / COW__COPY_SOURCE_SHARE;
}

/* The part of the source's pieces that is copied, and what the destination
 * keeps. */
static uint32_t
choose_pieces(const struct copy *c, const struct cow__piece *pieces, uint32_t n,
              struct cow__piece *list)
{
	size_t at = 0, end = c->offset + c->bytes;
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; at += pieces[i++].bytes) {
		size_t from = cow__max(at, c->offset);
		size_t to = cow__min(at + pieces[i].bytes, end);

		if (from < to)
			list[k++] = (struct cow__piece){
				pieces[i].pages, pieces[i].offset + from - at,
				to - from
			};
	}
	return k;
}

/* Appends what maps [at, end) of the destination. */
static uint32_t
append_own_pieces(struct cow__tile *t, size_t at, size_t end,
                  struct cow__piece *list, uint32_t n)
{
	while (at < end) {
		struct cow__piece *p = &list[n++];

		p->pages = cow__part_source(t, cow__tile_start(t) + at,
		                            &p->offset, &p->bytes);
		p->bytes = cow__min(p->bytes, end - at);
		at += p->bytes;
	}
	return n;
}

/* Maps the pieces over the destination from `at` on, as far as possible: *ret_n of
 * them, *ret_bytes in all. */
static int
map_pieces(const struct cow__tile *t, size_t at, const struct cow__piece *list,
           uint32_t n, uint32_t *ret_n, size_t *ret_bytes)
{
	size_t done = 0;
	uint32_t i;
	int r = 0;

	for (i = 0; i < n; i++) {
		struct cow__tile *p = list[i].pages;

		r = cow__map_private(cow__tile_start(t) + at + done,
		                     list[i].bytes, &p->own.segment->file,
		                     cow__segment_offset(cow__tile_start(p)) +
		                             list[i].offset,
		                     false);
		if (r < 0)
			break;
		done += list[i].bytes;
	}
	*ret_n = i;
	*ret_bytes = done;
	return r;
}

/* What place_view() fills in, allocated before anything changes. */
struct plan {
	struct cow__piece *list;
	struct cow__span *kept;
	uint32_t cap, kept_cap;
};

static void
plan_free(struct plan *p)
{
	cow__array_free(p->list, p->cap, sizeof(*p->list));
	cow__array_free(p->kept, p->kept_cap, sizeof(*p->kept));
}

static int
plan_new(uint32_t n, uint32_t kept, struct plan *ret)
{
	struct plan p = { NULL, NULL, 0, 0 };
	int r = cow__array_reserve((void **)&p.list, &p.cap, sizeof(*p.list),
	                           n);

	if (r == 0)
		r = cow__array_reserve((void **)&p.kept, &p.kept_cap,
		                       sizeof(*p.kept), kept);
	if (r < 0)
		plan_free(&p);
	else
		*ret = p;
	return r;
}

/* The private parts of a tile, and [start, end). */
static uint32_t
kept_parts_with(const struct cow__tile *t, uintptr_t start, uintptr_t end,
                struct cow__span *list)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->map.nkept; i++) {
		const struct cow__span *k = &t->map.kept[i];

		if (k->end < start) {
			list[n++] = *k;
		} else if (k->start <= end) {
			start = cow__min(start, k->start);
			end = cow__max(end, k->end);
		} else {
			break;
		}
	}
	list[n++] = (struct cow__span){ start, end };
	for (uint32_t i = 0; i < t->map.nkept; i++)
		if (t->map.kept[i].start > end)
			list[n++] = t->map.kept[i];
	return n;
}

/* The destination is a view in [first, last). What is around that stays as it
 * was. If that is mapped shared, the view counts as a part that a thaw left
 * private. */
static void
note_placed(struct cow__tile *t, struct plan *p, uint32_t n, size_t first,
            size_t last)
{
	bool shared = t->map.backing == COW__SHARED || t->map.nkept;
	uintptr_t start = cow__tile_start(t);
	struct plan old = { NULL, t->map.kept, 0, t->map.kept_cap };
	uint32_t k;

	n = append_own_pieces(t, last, t->bytes, p->list, n);
	cow__view_change(t, p->list, n, p->cap);
	p->list = NULL;
	p->cap = 0;
	cow__tile_change_begin(t);
	if (shared) {
		k = kept_parts_with(t, start + first, start + last, p->kept);
		/* All of it is private: the tile is frozen. */
		if (p->kept[0].start == start &&
		    p->kept[0].end == cow__tile_end(t)) {
			t->map.nkept = t->map.kept_cap = 0;
			t->map.kept = NULL;
		} else {
			t->map.nkept = k;
			t->map.kept = p->kept;
			t->map.kept_cap = p->kept_cap;
			p->kept = NULL;
			p->kept_cap = 0;
		}
		plan_free(&old);
	}
	cow__tile_set_backing(t, COW__PRIVATE);
	cow__tile_change_end(t);
}

/* Makes the destination a view. Its own pages go first. If the mapping fails
 * half-way, the rest is its own, with any content. */
static int
place_view(struct cow__tile *source, const struct cow__piece *pieces, uint32_t n,
           void *arg)
{
	const struct copy *c = arg;
	struct cow__tile *t = c->to;
	uint32_t before, k;
	struct plan p;
	size_t done;
	int r;

	(void)source;
	if (!cow__mappings_left(n + t->map.npieces + 4))
		return -ENOMEM;
	r = plan_new(n + 2 * t->map.npieces + 4, t->map.nkept + 1, &p);
	if (r < 0)
		return r;
	if (c->punch) {
		r = cow__map_punch(cow__tile_start(t) + c->at, c->bytes);
		if (r == 0 && c->part)
			t->own.shadow += c->bytes;
	}
	if (r == 0) {
		before = append_own_pieces(t, 0, c->at, p.list, 0);
		k = choose_pieces(c, pieces, n, p.list + before);
		/* The rest, if private, may have been written: it stays. */
		if (!c->part && t->map.backing == COW__SHARED)
			k = append_own_pieces(t, c->bytes, t->bytes, p.list, k);
		r = map_pieces(t, c->at, p.list + before, k, &k, &done);
		if (done)
			note_placed(t, &p, before + k, c->at, c->at + done);
	}
	plan_free(&p);
	return r;
}

static int
share_pages(struct copy *c)
{
	enum cow__rebase rebase = COW__REBASE_IF_QUIET;
	int r = 0;

	cow__commit_forget(c->to); /* no commits ahead into pages that go */
	if (c->from->map.backing == COW__SHARED)
		rebase = COW__REBASE_NOTHING; /* as for a clone */
	if (!cow__is_frozen(c->from)) {
		cow__resident_before_freeze();
		r = cow__freeze(c->from);
		if (cow__old_tables_pending())
			cow__helper_want(false);
	}
	cow__engine.forked_once = true;
	if (r == 0)
		r = cow__view_make(c->from, rebase, place_view, c);
	if (r < 0)
		return r;
	c->to->map.lazy |= !c->part;
	cow__stat_add(bytes_not_copied, c->bytes);
	return 0;
}

/* The helper may be committing ahead in the destination. The thread waits for
 * it, without the lock, and the helper does not begin anew. Waiting for the
 * lock is safe here: the thread held it before, so no code that it interrupted
 * holds it. */
static bool
wait_for_helper(struct copy *c, uintptr_t to, uintptr_t from, size_t bytes)
{
	uint64_t until = cow__now() + bytes / MIB * COW__COPY_BUSY_NS_MIB;
	uint32_t nothing = 0;

	while (c->to->work) {
		if (cow__now() > until)
			return false;
		cow__commit_forget(c->to);
		cow__engine_unlock();
		cow__wait(&nothing, 0, COW__COPY_BUSY_NS);
		cow__engine_lock();
		if (!find_tiles(c, to, from, bytes) || !is_replaceable(c->to))
			return false;
	}
	return true;
}

/* Tries to lock the engine, if this copy may be lazy at all. */
static bool
lock_if_lazy(const void *to, const void *from)
{
	uintptr_t start = __atomic_load_n(&cow__engine.start, __ATOMIC_ACQUIRE);
	size_t window = __atomic_load_n(&cow__engine.end, __ATOMIC_ACQUIRE) -
	                start;

	return (uintptr_t)to - start < window &&
	       (uintptr_t)from - start < window && !cow__retired() &&
	       __atomic_load_n(&cow__engine.copies, __ATOMIC_RELAXED) !=
	               COW__COPIES_OFF &&
	       cow__mutex_try_lock(&cow__engine.lock);
}

static bool
copy_lazily(uintptr_t to, uintptr_t from, size_t bytes, uintptr_t site,
            bool *ret_watch)
{
	bool learning = cow__engine.copies == COW__COPIES_AUTO;
	enum cow__verdict verdict = COW__LAZY;
	struct copy c;

	if (!find_tiles(&c, to, from, bytes) || cow__engine.strict)
		return false;
	if (learning) {
		cow__copy_history_end(c.to); /* its content is overwritten */
		verdict = cow__copy_history_ask(site, bytes);
		*ret_watch = verdict == COW__WATCH;
	}
	if (verdict != COW__LAZY || !is_replaceable(c.to) ||
	    cow__engine.process != cow__process_id())
		return false;
	if (cow__pins_memory()) {
		cow__fallback_copied(COW_FALLBACK_PINNED, bytes);
		return false;
	}
	if (!wait_for_helper(&c, to, from, bytes))
		return false;
	c.punch = !c.to->map.lazy;
	if (share_pages(&c) < 0)
		return false;
	if (learning)
		cow__copy_history_add(c.to, c.from, c.offset, c.bytes, site, true);
	return true;
}

COW_EXPORT bool
cow__copy_lazily(void *to, const void *from, size_t bytes, uintptr_t site,
                 bool *ret_watch)
{
	size_t rest = bytes & (cow__page - 1);
	bool done;

	*ret_watch = false;
	if (bytes < COW__COPY_LEAST || !lock_if_lazy(to, from))
		return false;
	done = copy_lazily((uintptr_t)to, (uintptr_t)from, bytes, site, ret_watch);
	cow__engine_unlock();
	if (done)
		memcpy((char *)to + bytes - rest,
		       (const char *)from + bytes - rest, rest);
	return done;
}

COW_EXPORT void
cow__copy_done(void *to, const void *from, size_t bytes, uintptr_t site)
{
	struct copy c;

	if (!lock_if_lazy(to, from))
		return;
	if (find_tiles(&c, (uintptr_t)to, (uintptr_t)from, bytes) &&
	    !cow__copy_history_watches(c.to))
		cow__copy_history_add(c.to, c.from, c.offset, c.bytes, site, false);
	cow__engine_unlock();
}

/* ---- Parts of storages ------------------------------------------------------- */

/* Its own pages are punched only if the destination is mapped shared. The new
 * mapping drops what a private one copied. */
static bool
is_part_replaceable(struct copy *c)
{
	struct cow__tile *t = c->to;
	struct cow__census census = { .asked = 0 };

	if (cow__tile_is_punched(t) || !t->own.segment || !t->own.segment->owner ||
	    t->map.npieces > COW__COPY_PIECES_MOST)
		return false;
	c->punch = t->map.backing == COW__SHARED && !t->map.npieces && t->own.refs == 1 &&
	           cow__holders_alone(t, &census);
	return true;
}

/* A freeze makes writes to all of the source slower, so a small part is not worth
 * one. */
static bool
is_worth_freezing(const struct copy *c)
{
	return cow__is_frozen(c->from) ||
	       c->bytes >= c->from->bytes / COW__COPY_SOURCE_SHARE;
}

int
cow__copy_part(struct cow__tile *to, size_t at, struct cow__tile *from,
               size_t offset, size_t bytes)
{
	struct copy c = { .to = to, .at = at, .from = from, .offset = offset,
		          .bytes = bytes, .part = true };
	int r = -ENOTSUP;

	cow__engine_lock();
	if (cow__can(to, COW__TO_COPY_PART) && cow__can(from, COW__TO_COPY_PART) &&
	    !cow__engine.strict &&
	    to != from && is_part_replaceable(&c) && is_worth_freezing(&c) &&
	    cow__engine.process == cow__process_id())
		r = share_pages(&c);
	cow__engine_unlock();
	return r;
}

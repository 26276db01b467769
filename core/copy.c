/* SPDX-License-Identifier: MIT */
/*
 * The program's own copies, done lazily. See the header.
 */
#include "core/copy.h"
#include "core/array.h"
#include "core/base.h"
#include "core/commit.h"
#include "core/engine.h"
#include "core/evidence.h"
#include "core/extent.h"
#include "core/helper.h"
#include "core/spare.h"
#include "core/stats.h"
#include "core/view.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/wait.h"

/* What is frozen is the whole source: not for a small part of it. */
#define PART_OF_SOURCE 4
/* How long the helper, which has the destination in hand, is waited for: less
 * than the copy would take. */
#define BUSY_NS 20000u
#define BUSY_NS_A_MIB 200000u

struct copy {
	struct cow__tile *to, *from;
	size_t offset; /* in `from` */
	size_t bytes;  /* whole pages */
};

static bool
block(const struct cow__tile *t)
{
	return t && t->kind == COW__LIVE && t->block && !t->allocation &&
	       t->backing != COW__ANON && !t->attributes && !t->overlaid;
}

/* Memory whose pages are its own and nobody else's, or were given back by an
 * earlier lazy copy. */
static bool
replaceable(const struct cow__tile *t)
{
	struct cow__census c = { 0, 0 };

	if (t->kept || t->punching || !t->segment || !t->segment->owner)
		return false;
	if (t->lazy)
		return true;
	return t->backing == COW__SHARED && !t->pieces && !t->slow &&
	       t->refs == 1 && cow__holders_alone(t, &c);
}

/* The two tiles, if this is a copy that could be lazy. */
static bool
find(struct copy *c, uintptr_t to, uintptr_t from, size_t bytes)
{
	c->to = cow__tile_find(to);
	c->from = cow__tile_find(from);
	if (!block(c->to) || !block(c->from) || c->to == c->from)
		return false;
	c->offset = from - cow__tile_start(c->from);
	c->bytes = cow__round_down(bytes, cow__page);
	return cow__tile_start(c->to) == to && bytes <= c->to->bytes &&
	       c->to->bytes - c->bytes <= cow__page &&
	       c->offset % cow__page == 0 &&
	       bytes <= c->from->bytes - c->offset &&
	       bytes >= c->from->bytes / PART_OF_SOURCE;
}

/* The part of the source's pieces that is copied, and what the destination
 * keeps. */
static uint32_t
choose(const struct copy *c, const struct cow__piece *pieces, uint32_t n,
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

/* Appends what maps the destination from `at` on. */
static uint32_t
append_own(struct cow__tile *t, size_t at, struct cow__piece *list, uint32_t n)
{
	while (at < t->bytes) {
		struct cow__piece *p = &list[n++];

		p->pages = cow__view_source(t, cow__tile_start(t) + at,
		                            &p->offset, &p->bytes);
		p->bytes = cow__min(p->bytes, t->bytes - at);
		at += p->bytes;
	}
	return n;
}

/* Maps the pieces over the destination, as far as possible: *ret_n of them. */
static int
map_pieces(const struct cow__tile *t, const struct cow__piece *list,
           uint32_t n, uint32_t *ret_n, size_t *ret_bytes)
{
	size_t at = 0;
	uint32_t i;
	int r = 0;

	for (i = 0; i < n && r == 0; i++) {
		struct cow__tile *p = list[i].pages;

		r = cow__map_private(cow__tile_start(t) + at, list[i].bytes,
		                     &p->segment->file,
		                     cow__segment_offset(cow__tile_start(p)) +
		                             list[i].offset);
		if (r < 0)
			break;
		at += list[i].bytes;
	}
	*ret_n = i;
	*ret_bytes = at;
	return r;
}

/* What place() makes, allocated before anything changes. */
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
plan_new(uint32_t n, struct plan *ret)
{
	struct plan p = { NULL, NULL, 0, 0 };
	int r = cow__array_reserve((void **)&p.list, &p.cap, sizeof(*p.list),
	                           n);

	if (r == 0)
		r = cow__array_reserve((void **)&p.kept, &p.kept_cap,
		                       sizeof(*p.kept), 1);
	if (r < 0)
		plan_free(&p);
	else
		*ret = p;
	return r;
}

/* The destination is a view up to `done` now. What is behind is as it was: if
 * that is shared, the view is what a thaw would have left private. */
static void
placed(struct cow__tile *t, struct plan *p, uint32_t n, size_t done)
{
	uintptr_t start = cow__tile_start(t);

	n = append_own(t, done, p->list, n);
	cow__view_change(t, p->list, n, p->cap);
	p->list = NULL;
	p->cap = 0;
	cow__tile_change_begin(t);
	if (done < t->bytes && t->backing == COW__SHARED) {
		p->kept[0] = (struct cow__span){ start, start + done };
		t->kept = p->kept;
		t->kept_cap = p->kept_cap;
		t->nkept = 1;
		p->kept = NULL;
		p->kept_cap = 0;
	}
	cow__tile_set_backing(t, COW__PRIVATE);
	cow__tile_change_end(t);
}

/* Makes the destination a view. Its own pages go first: should the mapping fail
 * half-way, the rest is its own, with any content. */
static int
place(struct cow__tile *source, const struct cow__piece *pieces, uint32_t n,
      void *arg)
{
	const struct copy *c = arg;
	struct cow__tile *t = c->to;
	struct plan p;
	size_t done;
	int r;

	(void)source;
	if (!cow__mappings_left(n + t->npieces + 4))
		return -ENOMEM;
	r = plan_new(n + t->npieces + 2, &p);
	if (r < 0)
		return r;
	if (!t->lazy)
		r = cow__map_punch(cow__tile_start(t), c->bytes);
	if (r == 0) {
		n = choose(c, pieces, n, p.list);
		/* The rest, if private, may have been written: it stays. */
		if (t->backing == COW__SHARED)
			n = append_own(t, c->bytes, p.list, n);
		r = map_pieces(t, p.list, n, &n, &done);
		if (done)
			placed(t, &p, n, done);
	}
	plan_free(&p);
	return r;
}

static int
share(struct copy *c)
{
	enum cow__rebase rebase = COW__REBASE_IF_QUIET;
	int r = 0;

	cow__commit_forget(c->to); /* nothing ahead of what is not there */
	if (c->from->backing == COW__SHARED)
		rebase = COW__REBASE_NOTHING; /* as for a clone */
	if (!cow__is_frozen(c->from)) {
		r = cow__freeze(c->from);
		if (cow__spares_pending())
			cow__helper_want(false);
	}
	cow__engine.forked_once = true;
	if (r == 0)
		r = cow__view_make(c->from, rebase, place, c);
	if (r < 0)
		return r;
	c->to->lazy = true;
	cow__stat_add(bytes_not_copied, c->bytes);
	return 0;
}

/* The helper may be committing ahead of who fills the destination. It is waited
 * for, without the lock, and does not begin anew. To wait for the lock is safe
 * now: whom we interrupted, if anybody, does not have it. */
static bool
wait_for_helper(struct copy *c, uintptr_t to, uintptr_t from, size_t bytes)
{
	uint64_t until = cow__now() + bytes / MIB * BUSY_NS_A_MIB;
	uint32_t nothing = 0;

	while (c->to->busy) {
		if (cow__now() > until)
			return false;
		cow__commit_forget(c->to);
		cow__engine_unlock();
		cow__wait(&nothing, 0, BUSY_NS);
		cow__engine_lock();
		if (!find(c, to, from, bytes) || !replaceable(c->to))
			return false;
	}
	return true;
}

/* A lock, if this may be lazy at all. */
static bool
enter(const void *to, const void *from)
{
	uintptr_t start = __atomic_load_n(&cow__engine.start, __ATOMIC_ACQUIRE);
	size_t window = __atomic_load_n(&cow__engine.end, __ATOMIC_ACQUIRE) -
	                start;

	return (uintptr_t)to - start < window &&
	       (uintptr_t)from - start < window &&
	       __atomic_load_n(&cow__engine.copies, __ATOMIC_RELAXED) !=
	               COW__COPIES_OFF &&
	       cow__mutex_try_lock(&cow__engine.lock);
}

static bool
lazily(uintptr_t to, uintptr_t from, size_t bytes, uintptr_t site,
       bool *ret_watch)
{
	bool learning = cow__engine.copies == COW__COPIES_AUTO;
	enum cow__verdict verdict = COW__LAZY;
	struct copy c;

	if (!find(&c, to, from, bytes) || cow__engine.strict)
		return false;
	if (learning) {
		if (c.to->watched) /* what it has goes now */
			cow__evidence_end(c.to);
		verdict = cow__evidence_ask(site, bytes);
		*ret_watch = verdict == COW__WATCH;
	}
	if (verdict != COW__LAZY || !replaceable(c.to) ||
	    cow__engine.process != cow__process_id())
		return false;
	if (cow__process_pins_memory()) {
		cow__fallback(COW_FALLBACK_PINNED);
		return false;
	}
	if (!wait_for_helper(&c, to, from, bytes) || share(&c) < 0)
		return false;
	if (learning)
		cow__evidence_add(c.to, c.from, c.offset, c.bytes, site, true);
	return true;
}

COW_EXPORT bool
cow__copy_lazily(void *to, const void *from, size_t bytes, uintptr_t site,
                 bool *ret_watch)
{
	size_t rest = bytes & (cow__page - 1);
	bool done;

	*ret_watch = false;
	if (bytes < COW__COPY_LEAST || !enter(to, from))
		return false;
	done = lazily((uintptr_t)to, (uintptr_t)from, bytes, site, ret_watch);
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

	if (!enter(to, from))
		return;
	if (find(&c, (uintptr_t)to, (uintptr_t)from, bytes) &&
	    !c.to->watched)
		cow__evidence_add(c.to, c.from, c.offset, c.bytes, site, false);
	cow__engine_unlock();
}

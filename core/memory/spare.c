/* SPDX-License-Identifier: MIT */
/*
 * Spare pages: see the header.
 */
#include "core/memory/spare.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/ends.h"
#include "core/memory/helper.h"
#include "core/memory/holders.h"
#include "core/memory/state.h"
#include "core/policy/decide.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/wait.h"

static size_t count COW_FORK_DATA; /* those that are listed */
static size_t records;             /* those that are known */

struct cow__rewritten *
cow__rewritten_of(struct cow__tile *t)
{
	uint32_t cap = 0;
	void *p;

	if (!t->map.rewritten && cow__array_reserve(&p, &cap, sizeof(*t->map.rewritten), 1) == 0) {
		t->map.rewritten = p;
		*t->map.rewritten = (struct cow__rewritten){ .nspares = 0 };
		records++;
	}
	return t->map.rewritten;
}

void
cow__spare_keep(struct cow__tile *t, size_t at, const struct cow__piece *p)
{
	struct cow__rewritten *r = cow__without(SPARES) ? NULL : cow__rewritten_of(t);

	if (!r || cow__array_reserve((void **)&r->spares, &r->cap, sizeof(*r->spares),
	                             r->nspares + 1) < 0)
		return;
	r->spares[r->nspares++] = (struct cow__spare){ at, *p };
	p->pages->own.refs++;
	p->pages->own.open++;
}

static bool
is_spare_free(const struct cow__tile *pages)
{
	struct cow__census c = { .asked = 0 };

	return pages->kind == COW__LIMBO && pages->own.refs == 1 &&
	       pages->map.backing == COW__SHARED && cow__holders_alone(pages, &c);
}

/* Nobody reads the pages, but a relative has their file, so they can't be written. */
static bool
is_spare_useless(const struct cow__tile *pages)
{
	struct cow__census c = { .asked = 0 };

	return pages->kind == COW__LIMBO && pages->own.refs == 1 && !cow__holders_alone(pages, &c) &&
	       cow__holders_unread(pages, &c);
}

bool
cow__spare_take(struct cow__tile *t, size_t at, size_t bytes, struct cow__piece *ret)
{
	struct cow__rewritten *r = t->map.rewritten;

	for (uint32_t i = 0; r && i < r->nspares; i++) {
		struct cow__spare *s = &r->spares[i];

		if (s->at != at || s->piece.bytes != bytes || !is_spare_free(s->piece.pages))
			continue;
		*ret = s->piece;
		ret->pages->own.open--;
		*s = r->spares[--r->nspares];
		return true;
	}
	return false;
}

/* Does nobody here read the tile's own pages under [at, at + bytes)? */
static bool
own_unread(const struct cow__tile *t, size_t at, size_t bytes)
{
	size_t here = 0;
	uint32_t mine = 0;

	if (!t->map.npieces || !t->own.segment || !t->own.segment->owner)
		return false;
	for (uint32_t i = 0; i < t->map.npieces; here += t->map.pieces[i++].bytes) {
		const struct cow__piece *p = &t->map.pieces[i];

		if (p->pages != t)
			continue;
		mine++;
		if (p->offset != here ||
		    (p->offset < at + bytes && at < p->offset + p->bytes))
			return false;
	}
	return t->own.refs == mine;
}

bool
cow__spare_own(const struct cow__tile *t, size_t at, size_t bytes)
{
	struct cow__census c = { .asked = 0 };

	return own_unread(t, at, bytes) && cow__holders_alone(t, &c);
}

struct cow__tile *
cow__spare_alias(const struct cow__tile *t, size_t at, size_t bytes)
{
	uintptr_t start = cow__tile_start(t) + at;
	struct cow__tile *a = cow__tile_inner(bytes, start, COW__HUGE);

	if (!a)
		return NULL;
	if (cow__map_shared(cow__tile_start(a), bytes, &t->own.segment->file,
	                    cow__segment_offset(start), false) == 0)
		return a;
	(void)cow__tile_put(a);
	return NULL;
}

static void
set_listed(struct cow__rewritten *r, bool listed)
{
	count += listed;
	count -= r->listed;
	r->listed = listed;
}

void
cow__spare_rewritten(struct cow__tile *t)
{
	struct cow__rewritten *r = cow__rewritten_of(t);
	uint64_t now = cow__now(), gone;

	if (!r)
		return;
	gone = now - r->at;
	/* A tile is rewritten in steps. */
	if (!r->at || gone >= COW__SPARE_SAME_NS)
		r->keep_ns = cow__spare_keep_ns(r->at ? gone : UINT64_MAX, cow__engine.decay_ns);
	r->at = now;
	set_listed(r, true);
	cow__helper_want(false);
}

static size_t
drop_spares(struct cow__rewritten *r)
{
	size_t bytes = 0;

	/* The end of a tile may end others, but not the one that was rewritten. */
	while (r->nspares) {
		struct cow__piece p = r->spares[--r->nspares].piece;

		bytes += p.bytes;
		p.pages->own.open--;
		cow__extent_unref_pages(p.pages);
	}
	cow__array_free(r->spares, r->cap, sizeof(*r->spares));
	r->spares = NULL;
	r->cap = 0;
	return bytes;
}

void
cow__spares_drop(struct cow__tile *t)
{
	struct cow__rewritten *r = t->map.rewritten;

	if (!r)
		return;
	(void)drop_spares(r);
	set_listed(r, false);
	if (r->own_punched) /* freed with holes */
		t->own.shadow = t->bytes;
	t->map.rewritten = NULL;
	cow__array_free(r, 1, sizeof(*r));
	records--;
}

static size_t
punch_own(struct cow__tile *t, size_t at, size_t bytes)
{
	struct cow__tile *alias = cow__spare_alias(t, at, bytes);
	size_t done = 0;

	if (!alias)
		return 0;
	if (cow__map_punch(cow__tile_start(alias), bytes) == 0)
		done = bytes;
	cow__tile_inner_free(alias);
	cow__stat_add(bytes_returned, done);
	return done;
}

void
cow__spares_useless(struct cow__tile *t, size_t at, size_t bytes)
{
	struct cow__census c = { .asked = 0 };
	struct cow__rewritten *r = t->map.rewritten;

	if (own_unread(t, at, bytes) && !cow__holders_alone(t, &c) && cow__holders_unread(t, &c)) {
		r = cow__rewritten_of(t); /* holes have to be noted */
		if (r && punch_own(t, at, bytes))
			r->own_punched = true;
	}
	for (uint32_t i = 0; r && i < r->nspares; i++) {
		struct cow__piece p = r->spares[i].piece;

		if (r->spares[i].at != at || p.bytes != bytes || !is_spare_useless(p.pages))
			continue;
		r->spares[i--] = r->spares[--r->nspares];
		p.pages->own.open--;
		cow__extent_unref_pages(p.pages);
	}
}

/* Gives those of the tile's own pages back that nobody reads. */
static size_t
release_own(struct cow__tile *t)
{
	struct cow__census c = { .asked = 0 };
	size_t here = 0, bytes = 0;

	for (uint32_t i = 0; i < t->map.npieces; here += t->map.pieces[i++].bytes)
		if (t->map.pieces[i].pages != t && own_unread(t, here, t->map.pieces[i].bytes) &&
		    cow__holders_unread(t, &c))
			bytes += punch_own(t, here, t->map.pieces[i].bytes);
	t->map.rewritten->own_punched |= bytes != 0;
	return bytes;
}

size_t
cow__spares_release(uint64_t now, bool all)
{
	struct cow__tile *t;
	size_t bytes = 0, own;

	if (!count)
		return 0;
	for (t = cow__tile_first(); t; t = t->next) {
		struct cow__rewritten *r = t->map.rewritten;

		if (!r || !r->listed || t->work || (!all && cow__elapsed(r->at, now) < r->keep_ns))
			continue;
		own = release_own(t);
		bytes += drop_spares(r) + own;
		/* As long as others read its own pages, they may become spare. */
		if (!t->map.npieces || own || !t->own.segment)
			set_listed(r, false);
	}
	return bytes;
}

bool
cow__spares_any(void)
{
	return count != 0;
}

COW_FORK_CODE void
cow__spare_leave(struct cow__tile *pages)
{
	pages->own.open--;
	if (--pages->own.refs == 0) {
		pages->own.word = 0;
		pages->own.held = COW__HELD_NEVER;
	}
}

/* A spare page has old bytes of the parent's, which are not for its child. Those that an
 * earlier child has may not go. */
static void
leave_spare(const struct cow__piece *p)
{
	if (!p->pages->own.held)
		cow__segment_note_left(p->pages->own.segment,
		                       cow__tile_start(p->pages) + p->offset, p->bytes);
	cow__spare_leave(p->pages);
}

COW_FORK_CODE void
cow__spares_child(void)
{
	for (struct cow__tile *t = records ? cow__tile_first() : NULL; t; t = t->next) {
		struct cow__rewritten *r = t->map.rewritten;

		if (!r)
			continue;
		for (uint32_t i = 0; i < r->nspares; i++)
			leave_spare(&r->spares[i].piece);
		r->nspares = 0;
		cow__spares_drop(t);
	}
	count = 0;
}

uint64_t
cow__spares_job(uint64_t now)
{
	static uint64_t next;

	if (!count)
		return UINT64_MAX;
	if (now < next)
		return next - now;
	(void)cow__spares_release(now, false);
	next = now + COW__SPARE_LOOK_NS;
	return count ? COW__SPARE_LOOK_NS : UINT64_MAX;
}

/* SPDX-License-Identifier: MIT */
/*
 * What is free in a pack; extents are taken from it and freed to it. See the header.
 */
#include "share/pack_space.h"
#include "core/base/array.h"
#include "core/base/pool.h"
#include "memfd/map.h"

/* Eight sizes of extents between a power of two and the next. A freed extent serves again
 * for its own size and is not merged: its pages are gone, so it costs only addresses. */
#define CLASSES 192
/* After this many looks the kernel is asked again which slots are alive. */
#define ASK_EVERY 64
#define HUGE_PAGES ((uint32_t)(COW__PACK_HUGE / cow__page))

struct list {
	uint32_t *pages, count, cap;
};

struct cow__pack_space {
	uint32_t fresh;               /* pages from here on were never used */
	struct list free[CLASSES];
	struct cow__extent_at *limbo; /* freed here, still held by others */
	uint32_t nlimbo, limbo_cap, polled;
	uint64_t *waits; /* a bit a page: its extent is in limbo */
	size_t waits_bytes;
	struct cow__roll roll;
	uint32_t asked;
};

static struct cow__pool spaces = {
	.object_bytes = sizeof(struct cow__pack_space)
};

uint32_t
cow__space_round(uint32_t pages, unsigned *ret_class)
{
	unsigned log = 31u - (unsigned)__builtin_clz(pages | 1);
	uint32_t step = log < 3 ? 1 : 1u << (log - 3);

	pages = (uint32_t)cow__round_up(pages, step);
	if (pages >= HUGE_PAGES)
		pages = (uint32_t)cow__round_up(pages, HUGE_PAGES);
	log = 31u - (unsigned)__builtin_clz(pages | 1);
	*ret_class = log < 3 ? pages : log * 8 + ((pages >> (log - 3)) & 7);
	return pages;
}

struct cow__pack_space *
cow__space_new(void)
{
	struct cow__pack_space *s = cow__pool_take(&spaces);

	if (s)
		*s = (struct cow__pack_space){ 0 };
	return s;
}

int
cow__space_begin(struct cow__pack_space *s, uint32_t pages)
{
	void *waits;
	int r;

	s->waits_bytes = cow__round_up(pages / 8, cow__page);
	r = cow__map_meta(s->waits_bytes, &waits);
	if (r == 0)
		s->waits = waits;
	return r;
}

void
cow__space_free(struct cow__pack_space *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < CLASSES; i++)
		cow__array_free(s->free[i].pages, s->free[i].cap,
		                sizeof(uint32_t));
	cow__array_free(s->limbo, s->limbo_cap, sizeof(*s->limbo));
	if (s->waits)
		(void)cow__map_release((uintptr_t)s->waits, s->waits_bytes);
	cow__pool_give(&spaces, s);
}

bool
cow__space_is_waiting(const struct cow__pack_space *s)
{
	return s && s->nlimbo;
}

/* Behind a private mapping: through another one, for a moment. */
static int
punch_retired(struct cow__pack *p, uint32_t page, size_t bytes)
{
	uint64_t offset = cow__data_offset(p->pages) + (uint64_t)page * cow__page;
	uintptr_t at;
	int r = cow__map_reserve(bytes, cow__page, &at);

	if (r < 0)
		return r;
	r = cow__map_unlocked(at, bytes, &p->file, offset, true, false);
	if (r == 0)
		r = cow__map_punch(at, bytes);
	(void)cow__map_release(at, bytes);
	return r;
}

static int
punch(struct cow__pack *p, uint32_t page, uint32_t pages)
{
	size_t bytes = (size_t)pages * cow__page;

	return p->retired ? punch_retired(p, page, bytes)
	                  : cow__map_punch((uintptr_t)cow__pack_data(p, page),
	                                   bytes);
}

static void
to_free(struct cow__pack *p, uint32_t page, uint32_t pages)
{
	struct list *l;
	unsigned class;

	(void)cow__space_round(pages, &class);
	l = &p->space->free[class];
	/* Without memory for the note only the addresses are lost. */
	if (cow__array_reserve((void **)&l->pages, &l->cap, sizeof(uint32_t),
	                       l->count + 1) == 0)
		l->pages[l->count++] = page;
}

static uint64_t *
waiting(const struct cow__pack_space *s, uint32_t page)
{
	return &s->waits[page / 64];
}

/* cow__space_give() calls it once for an extent: one that came back and is freed again is
 * still in limbo. */
static void
to_limbo(struct cow__pack_space *s, const struct cow__extent_at *at)
{
	if (cow__array_reserve((void **)&s->limbo, &s->limbo_cap,
	                       sizeof(*s->limbo), s->nlimbo + 1) < 0)
		return;
	s->limbo[s->nlimbo++] = *at;
	*waiting(s, at->page) |= 1ull << (at->page % 64);
}

/* An answer from before is good enough for the owner, which looks again later. */
static struct cow__roll *
roll_of(struct cow__pack_space *s)
{
	if (s->asked++ % ASK_EVERY == 0)
		s->roll = (struct cow__roll){ { 0 } };
	return &s->roll;
}

void
cow__space_poll(struct cow__pack *p, uint32_t most)
{
	struct cow__pack_space *s = p->space;
	struct cow__roll now = { { 0 } };
	struct cow__roll *r = most < s->nlimbo ? roll_of(s) : &now;

	most = most < s->nlimbo ? most : s->nlimbo;
	while (most-- > 0) {
		struct cow__extent_at *e;

		if (s->polled >= s->nlimbo)
			s->polled = 0;
		e = &s->limbo[s->polled];
		/* It may have come back to this process. */
		if (cow__hold_has(p, &p->group->mine, e->page) ||
		    !cow__hold_alone(p, e->page, r)) {
			s->polled++;
			continue;
		}
		if (punch(p, e->page, e->pages) == 0)
			to_free(p, e->page, e->pages);
		*waiting(s, e->page) &= ~(1ull << (e->page % 64));
		*e = s->limbo[--s->nlimbo];
	}
}

bool
cow__space_take(struct cow__pack *p, uint32_t pages, unsigned class, uint32_t *ret)
{
	struct cow__pack_space *s = p->space;
	struct list *l = &s->free[class];
	uint32_t at;

	if (l->count) {
		*ret = l->pages[--l->count];
		return true;
	}
	at = pages >= HUGE_PAGES
	             ? (uint32_t)cow__round_up(s->fresh, HUGE_PAGES)
	             : s->fresh;
	if (at > p->pages || p->pages - at < pages)
		return false;
	s->fresh = at + pages;
	*ret = at;
	return true;
}

void
cow__space_give(struct cow__pack *p, const struct cow__extent_at *at)
{
	struct cow__roll now = { { 0 } };
	bool only, last = cow__hold_last(
	        p, at->page, p->owner ? roll_of(p->space) : &now, &only);

	/* Private copies of its pages would hide what is written there next. */
	if (p->retired)
		(void)cow__map_zap((uintptr_t)cow__pack_data(p, at->page),
		                   (size_t)at->pages * cow__page);
	if (last)
		last = punch(p, at->page, at->pages) == 0;
	cow__hold_left(p, at->page);
	p->homes--;
	if (!p->owner)
		return;
	if (*waiting(p->space, at->page) & (1ull << (at->page % 64)))
		return;
	if (last && only)
		to_free(p, at->page, at->pages);
	else
		to_limbo(p->space, at);
}

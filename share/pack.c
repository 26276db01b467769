/* SPDX-License-Identifier: MIT */
/*
 * Packs: birth, mapping and death, and the owner's space. See the header.
 */
#include "share/pack.h"
#include "core/base/array.h"
#include "core/base/pool.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/process.h"
#include "share/layout.h"

/* A descriptor each. */
#define PACKS_MAX 24
#define PAGES_MOST ((uint32_t)1 << 22) /* 16 GiB of addresses */
#define PAGES_LEAST ((uint32_t)1 << 14)
/* Extents are of one of eight sizes to the power of two: what was freed serves
 * again without being merged. Its pages are gone, so that costs addresses only. */
#define CLASSES 192
/* So many extents are looked at before the kernel is asked again who is alive. */
#define ASK_EVERY 64
#define HUGE_PAGES ((uint32_t)(COW__PACK_HUGE / cow__page))

struct list {
	uint32_t *pages, count, cap;
};

struct cow__pack_space {
	uint32_t fresh;               /* pages from here on were never used */
	struct list free[CLASSES];
	struct cow__extent_at *limbo; /* freed here, others hold them still */
	uint32_t nlimbo, limbo_cap, polled;
	uint64_t *waits; /* a bit a page: its extent is in limbo */
	size_t waits_bytes;
	struct cow__roll roll;
	uint32_t asked;
};

static struct cow__pool packs = { .object_bytes = sizeof(struct cow__pack) };
static struct cow__pool spaces = {
	.object_bytes = sizeof(struct cow__pack_space)
};

static uint32_t
size_of(uint32_t pages, unsigned *ret_class)
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

/* ---- Files ------------------------------------------------------------------ */

/* Maps all of it: the counting part, and the data as the pack's kind wants. */
static int
map(struct cow__pack *p)
{
	size_t data = cow__data_offset(p->pages);
	uintptr_t at;
	int r;

	p->bytes = data + (size_t)p->pages * cow__page;
	r = cow__map_reserve(p->bytes, COW__PACK_HUGE, &at);
	if (r < 0)
		return r;
	r = cow__map_shared(at, data, &p->file, 0, true);
	/* Without our knowledge a child shall not share memory that it takes for
	 * its own. */
	if (r == 0)
		r = cow__map_shared(at + data, p->bytes - data, &p->file, data,
		                    p->alias);
	if (r < 0) {
		(void)cow__map_release(at, p->bytes);
		return r;
	}
	p->head = (struct cow__pack_head *)at;
	p->generations = (uint32_t *)(at + cow__head_bytes());
	p->rows = (char *)at + cow__head_bytes() +
	          cow__generations_bytes(p->pages);
	p->data = (char *)at + data;
	return 0;
}

static unsigned
count(const struct cow_group *g, bool own)
{
	unsigned n = 0;

	for (const struct cow__pack *p = g->packs; p; p = p->next)
		n += !own || p->space != NULL;
	return n;
}

static void
add(struct cow_group *g, struct cow__pack *p)
{
	p->group = g;
	p->next = g->packs;
	g->packs = p;
}

static int
make(struct cow_group *g, bool alias, struct cow__pack **ret)
{
	struct cow__pack *p;
	void *waits;
	int r = 0;

	/* How many others send us is theirs to say. */
	if (count(g, true) >= PACKS_MAX)
		cow__packs_sweep(g);
	if (count(g, true) >= PACKS_MAX)
		return -ENOSPC; /* a memfd of its own, then */
	p = cow__pool_take(&packs);
	if (!p)
		return -ENOMEM;
	*p = (struct cow__pack){ .owner = true, .alias = alias };
	p->file = COW__NO_DESCRIPTOR;
	p->space = cow__pool_take(&spaces);
	if (!p->space) {
		cow__pool_give(&packs, p);
		return -ENOMEM;
	}
	*p->space = (struct cow__pack_space){ 0 };
	/* Where addresses or file sizes are limited, smaller ones do. */
	for (p->pages = PAGES_MOST; p->pages >= PAGES_LEAST; p->pages /= 16) {
		r = cow__memfd_new("cowshed-pack",
		                   cow__data_offset(p->pages) +
		                           (size_t)p->pages * cow__page,
		                   &p->file);
		if (r == 0)
			r = map(p);
		if (r == 0 || (r != -EFBIG && r != -ENOMEM))
			break;
		cow__descriptor_close(&p->file);
	}
	if (r == 0)
		r = cow__random(&p->id, sizeof(p->id));
	if (r == 0) {
		p->space->waits_bytes = cow__round_up(p->pages / 8, cow__page);
		r = cow__map_meta(p->space->waits_bytes, &waits);
	}
	if (r < 0) {
		if (p->head)
			(void)cow__map_release((uintptr_t)p->head, p->bytes);
		cow__descriptor_close(&p->file);
		cow__pool_give(&spaces, p->space);
		cow__pool_give(&packs, p);
		return r;
	}
	p->space->waits = waits;
	p->head->version = COW__PACK_VERSION;
	p->head->page_bytes = (uint32_t)cow__page;
	p->head->pages = p->pages;
	p->head->alias = alias;
	p->head->group = g->id;
	p->head->id = p->id;
	p->head->magic = COW__PACK_MAGIC;
	add(g, p);
	*ret = p;
	return 0;
}

struct cow__pack *
cow__pack_find(struct cow_group *g, const struct cow__id *id)
{
	struct cow__pack *p = g->packs;

	while (p && (p->id.a != id->a || p->id.b != id->b))
		p = p->next;
	return p;
}

int
cow__pack_attach(struct cow_group *g, struct cow__descriptor *file,
                 struct cow__pack **ret)
{
	struct cow__pack_head head;
	struct cow__pack *p;
	uint64_t bytes;
	int r;

	/* Those of the dead, say: a descriptor each, and their pages. */
	if (count(g, false) >= PACKS_MAX)
		cow__packs_sweep(g);
	r = cow__memfd_check(file->fd, COW__SEALED_SIZE, &bytes);
	if (r == 0)
		r = cow__memfd_read(file->fd, 0, &head, sizeof(head));
	if (r < 0)
		return r;
	if (head.magic != COW__PACK_MAGIC || head.version != COW__PACK_VERSION ||
	    head.page_bytes != cow__page || head.pages < PAGES_LEAST ||
	    head.pages > PAGES_MOST || (head.pages & (head.pages - 1)) ||
	    head.alias > 1 || head.group.a != g->id.a ||
	    head.group.b != g->id.b ||
	    bytes != cow__data_offset(head.pages) +
	                     (size_t)head.pages * cow__page ||
	    cow__pack_find(g, &head.id))
		return -EBADMSG;
	p = cow__pool_take(&packs);
	if (!p)
		return -ENOMEM;
	*p = (struct cow__pack){
		.file = *file,
		.id = head.id,
		.pages = head.pages,
		.alias = head.alias,
	};
	r = map(p);
	if (r < 0) {
		cow__pool_give(&packs, p);
		return r;
	}
	*file = COW__NO_DESCRIPTOR;
	add(g, p);
	*ret = p;
	return 0;
}

bool
cow__pack_has(const struct cow__pack *p, const struct cow__extent_at *at)
{
	return at->pages && at->page < p->pages &&
	       at->pages <= p->pages - at->page;
}

static void
space_free(struct cow__pack_space *s)
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

static void
pack_free(struct cow__pack *p)
{
	for (struct cow__pack **q = &p->group->packs; *q; q = &(*q)->next)
		if (*q == p) {
			*q = p->next;
			break;
		}
	(void)cow__map_release((uintptr_t)p->head, p->bytes);
	cow__descriptor_close(&p->file);
	space_free(p->space);
	cow__pool_give(&packs, p);
}

void
cow__packs_free(struct cow_group *g)
{
	while (g->packs)
		pack_free(g->packs);
}

/* ---- Extents --------------------------------------------------------------- */

/* Behind a private mapping: through another one, for a moment. */
static int
punch_retired(struct cow__pack *p, uint32_t page, size_t bytes)
{
	uint64_t offset = cow__data_offset(p->pages) + (uint64_t)page * cow__page;
	uintptr_t at;
	int r = cow__map_reserve(bytes, cow__page, &at);

	if (r < 0)
		return r;
	r = cow__map_shared(at, bytes, &p->file, offset, false);
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

	(void)size_of(pages, &class);
	l = &p->space->free[class];
	/* Without memory for the note the addresses are lost, no more. */
	if (cow__array_reserve((void **)&l->pages, &l->cap, sizeof(uint32_t),
	                       l->count + 1) == 0)
		l->pages[l->count++] = page;
}

static uint64_t *
waiting(const struct cow__pack_space *s, uint32_t page)
{
	return &s->waits[page / 64];
}

/* Once: what came back, and is freed again, waits there still. */
static void
to_limbo(struct cow__pack_space *s, const struct cow__extent_at *at)
{
	if (cow__array_reserve((void **)&s->limbo, &s->limbo_cap,
	                       sizeof(*s->limbo), s->nlimbo + 1) < 0)
		return;
	s->limbo[s->nlimbo++] = *at;
	*waiting(s, at->page) |= 1ull << (at->page % 64);
}

/* Good enough for the owner, who looks again: a system call less each time. */
static struct cow__roll *
roll_of(struct cow__pack_space *s)
{
	if (s->asked++ % ASK_EVERY == 0)
		s->roll = (struct cow__roll){ { 0 } };
	return &s->roll;
}

/* Looks at some of those that were freed here and held elsewhere. */
static void
poll(struct cow__pack *p, uint32_t most)
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
		/* Or it came back to us. */
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

static bool
take(struct cow__pack *p, uint32_t pages, unsigned class, uint32_t *ret)
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

uint32_t
cow__pack_renew(struct cow__pack *p, uint32_t page)
{
	return __atomic_add_fetch(&p->generations[page], 1, __ATOMIC_ACQ_REL);
}

int
cow__pack_alloc(struct cow_group *g, bool alias, size_t bytes,
                struct cow__pack **ret, struct cow__extent_at *ret_at)
{
	size_t want = (bytes + cow__page - 1) / cow__page;
	struct cow__pack *p;
	uint32_t pages, page;
	unsigned class;
	int r;

	if (want > PAGES_MOST / 2)
		return -ENOSPC;
	pages = size_of((uint32_t)want, &class);
	for (p = g->packs; p; p = p->next) {
		if (!p->owner || p->retired || p->alias != alias)
			continue;
		poll(p, 4);
		if (take(p, pages, class, &page))
			break;
		poll(p, UINT32_MAX);
		if (take(p, pages, class, &page))
			break;
	}
	if (!p) {
		r = make(g, alias, &p);
		if (r < 0)
			return r;
		if (!take(p, pages, class, &page)) {
			pack_free(p);
			return -ENOSPC;
		}
	}
	if (page + pages > p->highest)
		p->highest = page + pages - 1;
	ret_at->page = page;
	ret_at->pages = pages;
	ret_at->generation = cow__pack_renew(p, page);
	cow__hold_set(p, &g->mine, page);
	p->homes++;
	*ret = p;
	return 0;
}

void
cow__pack_free(struct cow__pack *p, const struct cow__extent_at *at)
{
	struct cow__roll now = { { 0 } };
	bool only, last = cow__hold_last(
	        p, at->page, p->owner ? roll_of(p->space) : &now, &only);

	/* What was copied of it here would cover what comes to lie there next. */
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

void
cow__packs_sweep(struct cow_group *g)
{
	struct cow__pack *p, *next;

	for (p = g->packs; p; p = next) {
		next = p->next;
		if (p->space)
			poll(p, UINT32_MAX);
		if (p->homes == 0 && (!p->owner || p->retired) &&
		    !(p->space && p->space->nlimbo))
			pack_free(p);
	}
}

int
cow__pack_retire(struct cow__pack *p)
{
	size_t data = cow__data_offset(p->pages);
	uintptr_t at = (uintptr_t)p->data;
	int r;

	if (p->alias || p->retired)
		return 0;
	r = cow__map_private(at, p->bytes - data, &p->file, data, true);
	p->retired = r == 0;
	return r;
}

void
cow__packs_child(struct cow_group *g)
{
	for (struct cow__pack *p = g->packs; p; p = p->next) {
		p->owner = false;
		space_free(p->space);
		p->space = NULL;
	}
}

/* SPDX-License-Identifier: MIT */
/*
 * Packs: their files, made, mapped and unmapped. See the header.
 */
#include "share/pack.h"
#include "core/base/pool.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/process.h"
#include "share/pack_space.h"

/* Of one process: each costs a descriptor. */
#define PACKS_MAX 24
#define PAGES_MOST ((uint32_t)1 << 22) /* 16 GiB of addresses */
#define PAGES_LEAST ((uint32_t)1 << 14)

static struct cow__pool packs = { .object_bytes = sizeof(struct cow__pack) };

/* ---- Files ------------------------------------------------------------------ */

/* Maps the head, generations and rows, and the data behind them. */
static int
map_pack(struct cow__pack *p)
{
	size_t data = cow__data_offset(p->pages);
	uintptr_t at;
	int r;

	p->bytes = data + (size_t)p->pages * cow__page;
	r = cow__map_reserve(p->bytes, COW__PACK_HUGE, &at);
	if (r < 0)
		return r;
	r = cow__map_unlocked(at, data, &p->file, 0, true, true);
	/* A child of a raw fork must not share memory that it takes for its own. */
	if (r == 0)
		r = cow__map_unlocked(at + data, p->bytes - data, &p->file, data, true,
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
count_packs(const struct cow_group *g, bool own)
{
	unsigned n = 0;

	for (const struct cow__pack *p = g->packs; p; p = p->next)
		n += !own || p->space != NULL;
	return n;
}

static void
list_pack(struct cow_group *g, struct cow__pack *p)
{
	p->group = g;
	p->next = g->packs;
	g->packs = p;
}

/* Makes the pack's memfd and maps it. Where addresses or file sizes are limited, makes a
 * smaller one. */
static int
make_file(struct cow__pack *p)
{
	int r = 0;

	for (p->pages = PAGES_MOST; p->pages >= PAGES_LEAST; p->pages /= 16) {
		r = cow__memfd_new("cowshed-pack",
		                   cow__data_offset(p->pages) +
		                           (size_t)p->pages * cow__page,
		                   &p->file);
		if (r == 0)
			r = map_pack(p);
		if (r == 0 || (r != -EFBIG && r != -ENOMEM))
			break;
		cow__descriptor_close(&p->file);
	}
	return r;
}

/* What other members check when they map it. */
static void
make_head(struct cow__pack *p, const struct cow_group *g)
{
	p->head->version = COW__PACK_VERSION;
	p->head->page_bytes = (uint32_t)cow__page;
	p->head->pages = p->pages;
	p->head->alias = p->alias;
	p->head->group = g->id;
	p->head->id = p->id;
	p->head->magic = COW__PACK_MAGIC;
}

static int
make_pack(struct cow_group *g, bool alias, struct cow__pack **ret)
{
	struct cow__pack *p;
	int r;

	/* Only our own packs are limited. How many others send us is up to them. */
	if (count_packs(g, true) >= PACKS_MAX)
		cow__packs_sweep(g);
	if (count_packs(g, true) >= PACKS_MAX)
		return -ENOSPC; /* a memfd of its own, then */
	p = cow__pool_take(&packs);
	if (!p)
		return -ENOMEM;
	*p = (struct cow__pack){ .owner = true, .alias = alias };
	p->file = COW__NO_DESCRIPTOR;
	p->space = cow__space_new();
	if (!p->space) {
		cow__pool_give(&packs, p);
		return -ENOMEM;
	}
	r = make_file(p);
	if (r == 0)
		r = cow__random(&p->id, sizeof(p->id));
	if (r == 0)
		r = cow__space_begin(p->space, p->pages);
	if (r < 0) {
		if (p->head)
			(void)cow__map_release((uintptr_t)p->head, p->bytes);
		cow__descriptor_close(&p->file);
		cow__space_free(p->space);
		cow__pool_give(&packs, p);
		return r;
	}
	make_head(p, g);
	list_pack(g, p);
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

	/* Packs of dead members, for example, cost a descriptor each, and their pages. */
	if (count_packs(g, false) >= PACKS_MAX)
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
	r = map_pack(p);
	if (r < 0) {
		cow__pool_give(&packs, p);
		return r;
	}
	*file = COW__NO_DESCRIPTOR;
	list_pack(g, p);
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
pack_free(struct cow__pack *p)
{
	for (struct cow__pack **q = &p->group->packs; *q; q = &(*q)->next)
		if (*q == p) {
			*q = p->next;
			break;
		}
	(void)cow__map_release((uintptr_t)p->head, p->bytes);
	cow__descriptor_close(&p->file);
	cow__space_free(p->space);
	cow__pool_give(&packs, p);
}

void
cow__packs_free(struct cow_group *g)
{
	while (g->packs)
		pack_free(g->packs);
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
	pages = cow__space_round((uint32_t)want, &class);
	for (p = g->packs; p; p = p->next) {
		if (!p->owner || p->retired || p->alias != alias)
			continue;
		cow__space_poll(p, 4);
		if (cow__space_take(p, pages, class, &page))
			break;
		cow__space_poll(p, UINT32_MAX);
		if (cow__space_take(p, pages, class, &page))
			break;
	}
	if (!p) {
		r = make_pack(g, alias, &p);
		if (r < 0)
			return r;
		if (!cow__space_take(p, pages, class, &page)) {
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
cow__packs_sweep(struct cow_group *g)
{
	struct cow__pack *p, *next;

	for (p = g->packs; p; p = next) {
		next = p->next;
		if (p->space)
			cow__space_poll(p, UINT32_MAX);
		if (p->homes == 0 && (!p->owner || p->retired) &&
		    !cow__space_is_waiting(p->space))
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
	r = cow__map_private_unlocked(at, p->bytes - data, &p->file, data);
	/* Copies from the pack read it without the lock (home_data()). */
	__atomic_store_n(&p->retired, r == 0, __ATOMIC_RELAXED);
	return r;
}

void
cow__packs_child(struct cow_group *g)
{
	for (struct cow__pack *p = g->packs; p; p = p->next) {
		p->owner = false;
		cow__space_free(p->space);
		p->space = NULL;
	}
}

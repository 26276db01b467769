/* SPDX-License-Identifier: MIT */
/*
 * Segments: memory from the driver, and back to it
 *
 * An expandable segment has more addresses than the device has memory. What is mapped
 * grows and shrinks in units, so free memory of all sizes merges, and what is free can
 * go wherever it lies. Without the driver's virtual memory a segment is one
 * allocation, which goes as a whole or not at all.
 */
#include "core/error.h"
#include "core/pool.h"
#include "cuda/cache.h"
#include "memfd/map.h"

static struct cow__pool segments = {
	.object_bytes = sizeof(struct cow__cuda_segment)
};

struct cow__cuda_segment *
cow__cuda_segment_make(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes)
{
	struct cow__cuda_segment *s = cow__pool_take(&segments);

	if (!s)
		return NULL;
	*s = (struct cow__cuda_segment){ .node.key = ptr, .device = d,
		                         .bytes = bytes };
	s->first = cow__cuda_block_make(s, ptr, bytes);
	if (!s->first) {
		cow__pool_give(&segments, s);
		return NULL;
	}
	return s;
}

void
cow__cuda_segment_add(struct cow__cuda_memory *m, struct cow__cuda_segment *s)
{
	cow__tree_insert(&m->segments, &s->node);
	if (!s->pool)
		return;
	s->next = s->pool->segments;
	s->pool->segments = s;
}

void
cow__cuda_segment_end(struct cow__cuda_memory *m, struct cow__cuda_segment *s)
{
	struct cow__cuda_segment **p;

	if (m)
		cow__tree_remove(&m->segments, &s->node);
	if (m && s->pool) {
		for (p = &s->pool->segments; *p != s; p = &(*p)->next)
			;
		*p = s->next;
	}
	if (s->first)
		cow__cuda_block_drop(s->first);
	cow__pool_give(&segments, s);
}

struct cow__cuda_segment *
cow__cuda_segment_below(struct cow__cuda_memory *m, cow__cu_ptr at)
{
	return (struct cow__cuda_segment *)cow__tree_floor(m->segments, at);
}

/* Memory came to (1) or goes from (-1) this stretch. */
static void
count_mapped(struct cow__cuda_memory *m, const struct cow__cuda_block *b, int sign)
{
	int kind = cow__cuda_kind(b->segment);
	int joins = (b->prev && b->prev->state != COW__CUDA_HOLE) +
	            (b->next && b->next->state != COW__CUDA_HOLE);

	cow__cuda_stat(m->stats.segment, kind, sign * (1 - joins));
	cow__cuda_stat(m->stats.reserved_bytes, kind, sign * (int64_t)b->bytes);
	cow__cuda_trace(m, sign > 0 ? COW_CUDA_SEGMENT_MAP : COW_CUDA_SEGMENT_UNMAP,
	                b);
}

/* ---- One allocation of the driver's ------------------------------------------------ */

static size_t
plain_bytes(int kind, size_t bytes)
{
	if (kind == COW_CUDA_SMALL)
		return COW__CUDA_SMALL_SEGMENT;
	if (bytes < COW__CUDA_LARGE_ALONE)
		return COW__CUDA_LARGE_SEGMENT;
	return cow__round_up(bytes, COW__CUDA_SMALL_SEGMENT);
}

static int
grow_plain(struct cow__cuda_pool *p, size_t bytes, struct cow__cuda_block **ret)
{
	struct cow__cuda *d = p->device;
	struct cow__cuda_segment *s;
	cow__cu_ptr ptr;
	int r;

	bytes = plain_bytes(p->kind, bytes);
	r = cow__cuda_made_add(d, bytes);
	if (r < 0)
		return r;
	r = cow__cu_error(d->cu->mem_alloc(&ptr, bytes), "making device memory");
	if (r < 0) {
		cow__cuda_made_sub(d, bytes);
		return r;
	}
	s = cow__cuda_segment_make(d, ptr, bytes);
	if (!s) {
		(void)d->cu->mem_free(ptr);
		cow__cuda_made_sub(d, bytes);
		return -ENOMEM;
	}
	s->pool = p;
	cow__cuda_segment_add(d->memory, s);
	d->memory->stats.device_alloc++;
	count_mapped(d->memory, s->first, 1);
	cow__cuda_bin_add(s->first);
	*ret = s->first;
	return 0;
}

/* ---- Expandable -------------------------------------------------------------------- */

static size_t
unit_of(const struct cow__cuda_pool *p)
{
	size_t bytes = p->kind == COW_CUDA_SMALL ? COW__CUDA_SMALL_SEGMENT
	                                         : COW__CUDA_LARGE_SEGMENT;

	return (bytes + p->device->granule - 1) / p->device->granule *
	       p->device->granule;
}

static size_t
whole_units(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static size_t
table_bytes(const struct cow__cuda_segment *s)
{
	return cow__round_up(s->bytes / s->unit * sizeof(*s->pieces), cow__page);
}

/* Addresses, and nothing mapped: one hole. */
static int
segment_new(struct cow__cuda_pool *p, size_t bytes, struct cow__cuda_segment **ret)
{
	struct cow__cuda *d = p->device;
	size_t unit = unit_of(p), least = whole_units(bytes, unit), room;
	struct cow__cuda_segment *s = NULL;
	cow__cu_ptr ptr;
	void *table;
	int r;

	room = whole_units(d->total_bytes + d->total_bytes / 8, unit);
	room = cow__max(room, least);
	r = cow__cuda_range_new(d, room, &ptr);
	if (r < 0 && room > least) {
		room = least;
		r = cow__cuda_range_new(d, room, &ptr);
	}
	if (r < 0)
		return r;
	s = cow__cuda_segment_make(d, ptr, room);
	r = s ? 0 : -ENOMEM;
	if (r == 0) {
		s->unit = unit;
		s->pool = p;
		s->first->state = COW__CUDA_HOLE;
		r = cow__map_meta(table_bytes(s), &table);
	}
	if (r < 0) {
		if (s)
			cow__cuda_segment_end(NULL, s);
		cow__cuda_range_free(d, ptr, room);
		return r;
	}
	s->pieces = table;
	cow__cuda_segment_add(d->memory, s);
	*ret = s;
	return 0;
}

/* How much of a hole has to be mapped where so many bytes are missing. */
static size_t
share_of(const struct cow__cuda_block *hole, size_t missing)
{
	return cow__min(hole->bytes,
	                whole_units(missing, hole->segment->unit));
}

/* What has to be mapped to have `bytes` from this block on; SIZE_MAX: can't be. */
static size_t
price(const struct cow__cuda_block *b, size_t bytes)
{
	size_t have = 0, mapped = 0;

	for (; b && have < bytes; b = b->next) {
		if (b->state == COW__CUDA_HOLE)
			mapped += share_of(b, bytes - have);
		else if (b->state != COW__CUDA_FREE)
			break;
		have += b->bytes;
	}
	return have >= bytes ? mapped : SIZE_MAX;
}

static struct cow__cuda_block *
cheapest(const struct cow__cuda_pool *p, size_t bytes)
{
	struct cow__cuda_block *best = NULL;
	size_t least = SIZE_MAX;

	for (struct cow__cuda_segment *s = p->segments; s; s = s->next)
		for (struct cow__cuda_block *b = s->first; b; b = b->next) {
			size_t n = price(b, bytes);

			if (n < least) {
				least = n;
				best = b;
			}
		}
	return best;
}

static struct cow__cuda_piece **
piece_at(struct cow__cuda_segment *s, cow__cu_ptr at)
{
	return &s->pieces[(at - s->node.key) / s->unit];
}

/* Ends the map of a unit, and lets its piece go. */
static int
unmap_unit(struct cow__cuda_segment *s, cow__cu_ptr at)
{
	struct cow__cuda_piece **p = piece_at(s, at);
	int r = cow__cuda_range_unmap(s->device, at, s->unit);

	if (r < 0)
		return r;
	cow__cuda_piece_unref(*p);
	*p = NULL;
	s->device->memory->stats.device_free++;
	return 0;
}

static int
map_unit(struct cow__cuda_segment *s, cow__cu_ptr at)
{
	struct cow__cuda_piece *p;
	int r;

	if (*piece_at(s, at))
		return 0;
	r = cow__cuda_piece_make(s->device, s->unit, &p);
	if (r < 0)
		return r;
	r = cow__cuda_range_map(s->device, at, p, true);
	if (r < 0) {
		cow__cuda_piece_unref(p);
		return r;
	}
	*piece_at(s, at) = p;
	s->device->memory->stats.device_alloc++;
	return 0;
}

/* Maps the first `bytes` of a hole. Returns the free block that they are part of. */
static int
fill(struct cow__cuda_block *hole, size_t bytes, struct cow__cuda_block **ret)
{
	struct cow__cuda_segment *s = hole->segment;
	size_t done = 0;
	int r = 0;

	if (bytes < hole->bytes && !cow__cuda_split(hole, bytes))
		return -ENOMEM;
	while (r == 0 && done < bytes) {
		r = map_unit(s, hole->ptr + done);
		if (r == 0)
			done += s->unit;
	}
	if (r < 0) {
		/* What can't be unmapped now stays, and is found by map_unit(). */
		while (done) {
			done -= s->unit;
			if (unmap_unit(s, hole->ptr + done) < 0)
				s->device->memory->stuck = true;
		}
		(void)cow__cuda_merge(hole);
		return r;
	}
	hole->state = COW__CUDA_FREE;
	count_mapped(s->device->memory, hole, 1);
	*ret = cow__cuda_merge(hole);
	return 0;
}

int
cow__cuda_grow(struct cow__cuda_pool *p, size_t bytes, struct cow__cuda_block **ret)
{
	struct cow__cuda_block *b, *at;
	struct cow__cuda_segment *s;
	int r = 0;

	if (!p->device->virtual_memory)
		return grow_plain(p, bytes, ret);
	b = cheapest(p, bytes);
	if (!b) {
		r = segment_new(p, bytes, &s);
		if (r < 0)
			return r;
		b = s->first;
	}
	if (b->state == COW__CUDA_HOLE)
		r = fill(b, share_of(b, bytes), &b);
	while (r == 0 && b->bytes < bytes) {
		at = b->next;
		/* The rest of a run that a split for want of metadata ended. */
		if (!at || at->state != COW__CUDA_HOLE)
			return -ENOMEM;
		r = fill(at, share_of(at, bytes - b->bytes), &b);
	}
	if (r == 0)
		*ret = b;
	return r;
}

/* ---- Giving back ------------------------------------------------------------------- */

/* The whole units of a free block are LEAVING, the rest stays free. */
static bool
claim_units(struct cow__cuda_block *b)
{
	struct cow__cuda_segment *s = b->segment;
	cow__cu_ptr base = s->node.key, end = b->ptr + b->bytes;
	cow__cu_ptr from = base + whole_units(b->ptr - base, s->unit);
	cow__cu_ptr to = base + (end - base) / s->unit * s->unit;
	struct cow__cuda_block *rest;

	if (from >= to)
		return false;
	cow__cuda_bin_remove(b);
	if (to < end) {
		rest = cow__cuda_split(b, to - b->ptr);
		if (!rest) {
			cow__cuda_bin_add(b);
			return false;
		}
		cow__cuda_bin_add(rest);
	}
	b->state = COW__CUDA_LEAVING;
	if (from > b->ptr) {
		rest = cow__cuda_split(b, from - b->ptr);
		b->state = COW__CUDA_FREE;
		if (!rest) {
			(void)cow__cuda_merge(b);
			return false;
		}
		cow__cuda_bin_add(b);
	}
	return true;
}

static bool
claim(struct cow__cuda_block *b)
{
	if (b->segment->unit)
		return claim_units(b);
	if (b->prev || b->next)
		return false;
	cow__cuda_bin_remove(b);
	b->state = COW__CUDA_LEAVING;
	return true;
}

size_t
cow__cuda_claim(struct cow__cuda_memory *m)
{
	struct cow__cuda_block *b, *next;
	size_t n = 0;

	for (struct cow__cuda_pool *p = m->pools; p; p = p->next)
		for (struct cow__cuda_segment *s = p->segments; s; s = s->next)
			for (b = s->first; b; b = next) {
				next = b->next;
				if (b->state == COW__CUDA_FREE)
					n += claim(b);
			}
	return n;
}

/* Unmaps a block from its end on; what stays mapped is free. */
static int
let_go_units(struct cow__cuda_memory *m, struct cow__cuda_block *b)
{
	struct cow__cuda_segment *s = b->segment;
	struct cow__cuda_block *hole = b;
	size_t left = b->bytes;
	int r = 0;

	while (r == 0 && left) {
		r = unmap_unit(s, b->ptr + left - s->unit);
		if (r == 0)
			left -= s->unit;
	}
	if (left == b->bytes || (left && !(hole = cow__cuda_split(b, left)))) {
		b->state = COW__CUDA_FREE;
		(void)cow__cuda_merge(b);
		return r;
	}
	if (left) {
		b->state = COW__CUDA_FREE;
		(void)cow__cuda_merge(b);
	}
	count_mapped(m, hole, -1);
	hole->state = COW__CUDA_HOLE;
	(void)cow__cuda_merge(hole);
	return r;
}

static int
let_go_plain(struct cow__cuda_memory *m, struct cow__cuda_block *b)
{
	struct cow__cuda *d = m->device;
	int r = cow__cu_error(d->cu->mem_free(b->ptr), "freeing device memory");

	if (r < 0) {
		b->state = COW__CUDA_FREE;
		cow__cuda_bin_add(b);
		return r;
	}
	count_mapped(m, b, -1);
	m->stats.device_free++;
	cow__cuda_made_sub(d, b->bytes);
	cow__cuda_segment_end(m, b->segment);
	return 0;
}

static int
let_go_block(struct cow__cuda_memory *m, struct cow__cuda_block *b, bool keep,
             uint64_t *bytes)
{
	size_t n = b->bytes;
	int r;

	if (keep) {
		b->state = COW__CUDA_FREE;
		(void)cow__cuda_merge(b);
		return 0;
	}
	r = b->segment->unit ? let_go_units(m, b) : let_go_plain(m, b);
	if (r == 0)
		*bytes += n;
	return r;
}

/* Addresses under which nothing is. */
static void
drop_empty(struct cow__cuda_memory *m, struct cow__cuda_segment *s)
{
	if (s->first->state != COW__CUDA_HOLE || s->first->next)
		return;
	cow__cuda_range_free(m->device, s->node.key, s->bytes);
	(void)cow__map_release((uintptr_t)s->pieces, table_bytes(s));
	cow__cuda_segment_end(m, s);
}

/* What a failure left mapped under holes. */
static int
clear_holes(struct cow__cuda_segment *s)
{
	int r = 0;

	for (struct cow__cuda_block *b = s->first; b && r == 0; b = b->next)
		if (b->state == COW__CUDA_HOLE)
			for (size_t at = 0; at < b->bytes && r == 0; at += s->unit)
				if (*piece_at(s, b->ptr + at))
					r = unmap_unit(s, b->ptr + at);
	return r;
}

static struct cow__cuda_block *
leaving(const struct cow__cuda_segment *s)
{
	struct cow__cuda_block *b = s->first;

	while (b && b->state != COW__CUDA_LEAVING)
		b = b->next;
	return b;
}

int
cow__cuda_let_go(struct cow__cuda_memory *m, bool keep, uint64_t *ret_bytes)
{
	struct cow__cuda_segment *s, *next;
	struct cow__cuda_block *b;
	bool stuck = m->stuck;
	uint64_t bytes = 0;
	int r = 0, one;

	m->stuck = false;
	for (struct cow__cuda_pool *p = m->pools; p; p = p->next)
		for (s = p->segments; s; s = next) {
			bool expandable = s->unit;

			next = s->next;
			while ((b = leaving(s)) != NULL) {
				one = let_go_block(m, b, keep, &bytes);
				if (r == 0)
					r = one;
				if (!expandable)
					break; /* it was all of it */
			}
			if (!expandable)
				continue;
			if (stuck && clear_holes(s) < 0)
				m->stuck = true;
			else
				drop_empty(m, s);
		}
	*ret_bytes = bytes;
	return r;
}

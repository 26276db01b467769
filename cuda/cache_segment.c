/* SPDX-License-Identifier: MIT */
/*
 * Segments: memory from the driver
 *
 * An expandable segment has more addresses than the device has memory. Its mapped part grows
 * and shrinks in units. So free memory of all sizes merges, and free units can be given
 * back wherever they lie. Without the driver's virtual memory a segment is one allocation,
 * which is given back as a whole or not at all.
 */
#include "core/base/error.h"
#include "core/base/pool.h"
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

void
cow__cuda_count_mapped(struct cow__cuda_memory *m, const struct cow__cuda_block *b, int sign)
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
	cow__cuda_count_mapped(d->memory, s->first, 1);
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
table_bytes(const struct cow__cuda_segment *s)
{
	return cow__round_up(s->bytes / s->unit * sizeof(*s->pieces), cow__page);
}

/* A segment of addresses with nothing mapped: one hole. */
static int
segment_new(struct cow__cuda_pool *p, size_t bytes, struct cow__cuda_segment **ret)
{
	struct cow__cuda *d = p->device;
	size_t unit = unit_of(p), least = cow__cuda_units(bytes, unit), room;
	struct cow__cuda_segment *s = NULL;
	cow__cu_ptr ptr;
	void *table;
	int r;

	room = cow__cuda_units(d->total_bytes + d->total_bytes / 8, unit);
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

/* How much of a hole has to be mapped to get `missing` bytes. */
static size_t
share_of(const struct cow__cuda_block *hole, size_t missing)
{
	return cow__min(hole->bytes,
	                cow__cuda_units(missing, hole->segment->unit));
}

/* How much has to be mapped to have `bytes` from this block on; SIZE_MAX: it can't be. */
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

int
cow__cuda_unit_unmap(struct cow__cuda_segment *s, cow__cu_ptr at)
{
	struct cow__cuda_piece **p = cow__cuda_piece_at(s, at);
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

	if (*cow__cuda_piece_at(s, at))
		return 0;
	r = cow__cuda_piece_make(s->device, s->unit, &p);
	if (r < 0)
		return r;
	r = cow__cuda_range_map(s->device, at, p, true);
	if (r < 0) {
		cow__cuda_piece_unref(p);
		return r;
	}
	*cow__cuda_piece_at(s, at) = p;
	s->device->memory->stats.device_alloc++;
	return 0;
}

/* Maps the first `bytes` of a hole. *ret is the free block that they are a part of. */
static int
map_hole(struct cow__cuda_block *hole, size_t bytes, struct cow__cuda_block **ret)
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
		/* What can't be unmapped stays mapped; map_unit() finds it. */
		while (done) {
			done -= s->unit;
			if (cow__cuda_unit_unmap(s, hole->ptr + done) < 0)
				s->device->memory->stuck = true;
		}
		(void)cow__cuda_merge(hole);
		return r;
	}
	hole->state = COW__CUDA_FREE;
	cow__cuda_count_mapped(s->device->memory, hole, 1);
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
		r = map_hole(b, share_of(b, bytes), &b);
	while (r == 0 && b->bytes < bytes) {
		at = b->next;
		/* Without memory to split a block, the run of free blocks may end early. */
		if (!at || at->state != COW__CUDA_HOLE)
			return -ENOMEM;
		r = map_hole(at, share_of(at, bytes - b->bytes), &b);
	}
	if (r == 0)
		*ret = b;
	return r;
}

void
cow__cuda_segment_drop(struct cow__cuda_memory *m, struct cow__cuda_segment *s)
{
	if (s->first->state != COW__CUDA_HOLE || s->first->next)
		return;
	cow__cuda_range_free(m->device, s->node.key, s->bytes);
	(void)cow__map_release((uintptr_t)s->pieces, table_bytes(s));
	cow__cuda_segment_end(m, s);
}

/* SPDX-License-Identifier: MIT */
/*
 * Gives free memory back to the driver
 *
 * Work that was queued before the memory was freed may still use it. So there are two
 * steps: the memory is claimed, so that no thread takes it; when the device has done its
 * work, the driver gets it.
 */
#include "core/base/error.h"
#include "cuda/cache.h"

/* Makes the whole units of a free block LEAVING; the rest stays free. */
static bool
claim_units(struct cow__cuda_block *b)
{
	struct cow__cuda_segment *s = b->segment;
	cow__cu_ptr base = s->node.key, end = b->ptr + b->bytes;
	cow__cu_ptr from = base + cow__cuda_units(b->ptr - base, s->unit);
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

/* Unmaps a block from its end on. What stays mapped becomes free. */
static int
let_go_units(struct cow__cuda_memory *m, struct cow__cuda_block *b)
{
	struct cow__cuda_segment *s = b->segment;
	struct cow__cuda_block *hole = b;
	size_t left = b->bytes;
	int r = 0;

	while (r == 0 && left) {
		r = cow__cuda_unit_unmap(s, b->ptr + left - s->unit);
		if (r == 0)
			left -= s->unit;
	}
	if (left == b->bytes) {
		b->state = COW__CUDA_FREE;
		(void)cow__cuda_merge(b);
		return r;
	}
	if (left)
		hole = cow__cuda_split(b, left);
	if (!hole) {
		/* There is no memory to split the block. All of it becomes a hole; map_unit()
		 * finds what is still mapped there. */
		hole = b;
	} else if (left) {
		b->state = COW__CUDA_FREE;
		(void)cow__cuda_merge(b);
	}
	cow__cuda_count_mapped(m, hole, -1);
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
	cow__cuda_count_mapped(m, b, -1);
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

/* Unmaps what an earlier failure left mapped under holes. */
static int
clear_holes(struct cow__cuda_segment *s)
{
	int r = 0;

	for (struct cow__cuda_block *b = s->first; b && r == 0; b = b->next)
		if (b->state == COW__CUDA_HOLE)
			for (size_t at = 0; at < b->bytes && r == 0; at += s->unit)
				if (*cow__cuda_piece_at(s, b->ptr + at))
					r = cow__cuda_unit_unmap(s, b->ptr + at);
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
					break; /* the segment has ended */
			}
			if (!expandable)
				continue;
			if (stuck && clear_holes(s) < 0)
				m->stuck = true;
			else
				cow__cuda_segment_drop(m, s);
		}
	*ret_bytes = bytes;
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Free blocks by size
 *
 * There are sixteen size classes between a power of two and the next, and a bit for each class
 * that has a block. Of the first few blocks in a class, the smallest that fits is taken; of
 * equals, the one at the lowest address. So the block is at most a sixteenth larger than
 * the best fit, and the cost does not grow with the number of blocks.
 */
#include "core/base/pool.h"
#include "cuda/cache.h"

#define LOOKS 16

static struct cow__pool blocks = {
	.object_bytes = sizeof(struct cow__cuda_block)
};

static unsigned
class_of(size_t bytes)
{
	size_t n = bytes / COW__CUDA_UNIT;
	unsigned log = 63u - (unsigned)__builtin_clzll(n | 1), c;

	if (log < 4)
		return (unsigned)n;
	c = (log - 3) * 16 + ((unsigned)(n >> (log - 4)) & 15);
	return c < COW__CUDA_BINS ? c : COW__CUDA_BINS - 1;
}

static bool
busy(const struct cow__cuda_block *b)
{
	return b && (b->state == COW__CUDA_USED || b->state == COW__CUDA_WAITING);
}

static void
count_split(const struct cow__cuda_block *b, int64_t sign)
{
	struct cow_cuda_stats *s = &b->segment->device->memory->stats;
	int kind = cow__cuda_kind(b->segment);

	if (!b->split)
		return;
	cow__cuda_stat(s->inactive_split, kind, sign);
	cow__cuda_stat(s->inactive_split_bytes, kind, sign * (int64_t)b->bytes);
}

void
cow__cuda_bin_add(struct cow__cuda_block *b)
{
	struct cow__cuda_pool *p = b->segment->pool;
	unsigned c = class_of(b->bytes);

	b->list_prev = NULL;
	b->list_next = p->bins[c];
	if (b->list_next)
		b->list_next->list_prev = b;
	p->bins[c] = b;
	p->map[c / 64] |= 1ull << (c % 64);
	b->split = busy(b->prev) || busy(b->next);
	count_split(b, 1);
}

void
cow__cuda_bin_remove(struct cow__cuda_block *b)
{
	struct cow__cuda_pool *p = b->segment->pool;
	unsigned c = class_of(b->bytes);

	count_split(b, -1);
	if (b->list_next)
		b->list_next->list_prev = b->list_prev;
	if (b->list_prev) {
		b->list_prev->list_next = b->list_next;
		return;
	}
	p->bins[c] = b->list_next;
	if (!b->list_next)
		p->map[c / 64] &= ~(1ull << (c % 64));
}

static struct cow__cuda_block *
best_of(struct cow__cuda_block *b, size_t bytes)
{
	struct cow__cuda_block *best = NULL;

	for (int looks = 0; b && looks < LOOKS; b = b->list_next, looks++)
		if (b->bytes >= bytes &&
		    (!best || b->bytes < best->bytes ||
		     (b->bytes == best->bytes && b->ptr < best->ptr)))
			best = b;
	return best;
}

struct cow__cuda_block *
cow__cuda_best_fit(struct cow__cuda_pool *p, size_t bytes)
{
	unsigned c = class_of(bytes);

	while (c < COW__CUDA_BINS) {
		uint64_t map = p->map[c / 64] >> (c % 64);
		struct cow__cuda_block *b;

		if (!map) {
			c = (c / 64 + 1) * 64;
			continue;
		}
		c += (unsigned)__builtin_ctzll(map);
		b = best_of(p->bins[c], bytes);
		if (b)
			return b;
		c++;
	}
	return NULL;
}

/* ---- Blocks ---------------------------------------------------------------------- */

struct cow__cuda_block *
cow__cuda_block_make(struct cow__cuda_segment *s, cow__cu_ptr ptr, size_t bytes)
{
	struct cow__cuda_block *b = cow__pool_take(&blocks);

	if (b)
		*b = (struct cow__cuda_block){ .segment = s, .ptr = ptr,
			                       .bytes = bytes };
	return b;
}

void
cow__cuda_block_drop(struct cow__cuda_block *b)
{
	cow__pool_give(&blocks, b);
}

struct cow__cuda_block *
cow__cuda_split(struct cow__cuda_block *b, size_t bytes)
{
	struct cow__cuda_block *end = cow__pool_take(&blocks);

	if (cow__unlikely(!end))
		return NULL;
	*end = (struct cow__cuda_block){
		.prev = b,
		.next = b->next,
		.segment = b->segment,
		.ptr = b->ptr + bytes,
		.bytes = b->bytes - bytes,
		.state = b->state,
	};
	if (b->next)
		b->next->prev = end;
	b->next = end;
	b->bytes = bytes;
	return end;
}

static void
swallow_next(struct cow__cuda_block *b)
{
	struct cow__cuda_block *gone = b->next;

	b->bytes += gone->bytes;
	b->next = gone->next;
	if (b->next)
		b->next->prev = b;
	cow__pool_give(&blocks, gone);
}

struct cow__cuda_block *
cow__cuda_merge(struct cow__cuda_block *b)
{
	bool binned = b->state == COW__CUDA_FREE;

	if (b->next && b->next->state == b->state) {
		if (binned)
			cow__cuda_bin_remove(b->next);
		swallow_next(b);
	}
	if (b->prev && b->prev->state == b->state) {
		b = b->prev;
		if (binned)
			cow__cuda_bin_remove(b);
		swallow_next(b);
	}
	if (binned)
		cow__cuda_bin_add(b);
	return b;
}

/* ---- Lists of used blocks with uses, and of waiting ones ---------------------------- */

void
cow__cuda_list_add(struct cow__cuda_list *l, struct cow__cuda_block *b)
{
	b->list_prev = l->last;
	b->list_next = NULL;
	if (l->last)
		l->last->list_next = b;
	else
		l->first = b;
	l->last = b;
}

void
cow__cuda_list_remove(struct cow__cuda_list *l, struct cow__cuda_block *b)
{
	if (b->list_next)
		b->list_next->list_prev = b->list_prev;
	else
		l->last = b->list_prev;
	if (b->list_prev)
		b->list_prev->list_next = b->list_next;
	else
		l->first = b->list_next;
}

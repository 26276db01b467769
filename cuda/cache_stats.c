/* SPDX-License-Identifier: MIT */
/*
 * The cache of device memory: statistics, and a snapshot of its blocks
 */
#include "core/base/error.h"
#include "cuda/cache.h"
#include "cuda/pinned.h"

COW_EXPORT int
cow_cuda_get_stats(int device, struct cow_cuda_stats *ret)
{
	struct cow_cuda_stats stats;
	struct cow__cuda *d;
	size_t size;
	int r;

	if (!ret || ret->size < offsetof(struct cow_cuda_stats, allocated_bytes))
		return cow__error(-EINVAL, "cow_cuda_get_stats: NULL, or size is not set");
	r = cow__cuda_get(device, &d);
	if (r < 0)
		return r;
	cow__mutex_lock(&d->memory_lock);
	stats = d->memory->stats;
	cow__mutex_unlock(&d->memory_lock);
	cow__cuda_pinned_count(&stats.pinned_bytes, &stats.pinned_cached_bytes);
	size = cow__min(ret->size, sizeof(stats));
	stats.size = size;
	memcpy(ret, &stats, size);
	return 0;
}

/* ---- Data, which are no blocks ------------------------------------------------------- */

void
cow__cuda_count_piece_locked(struct cow__cuda *d, size_t bytes, int sign)
{
	struct cow__cuda_memory *m = d->memory;

	cow__cuda_stat(m->stats.reserved_bytes, COW_CUDA_LARGE, sign * (int64_t)bytes);
	m->data.reserved += (uint64_t)(sign * (int64_t)bytes);
	if (sign > 0)
		m->stats.device_alloc++;
	else
		m->stats.device_free++;
}

void
cow__cuda_count_piece(struct cow__cuda *d, size_t bytes, int sign)
{
	cow__mutex_lock(&d->memory_lock);
	cow__cuda_count_piece_locked(d, bytes, sign);
	cow__mutex_unlock(&d->memory_lock);
}

void
cow__cuda_count_range(struct cow__cuda *d, size_t bytes, int sign)
{
	struct cow__cuda_memory *m = d->memory;
	int64_t n = sign * (int64_t)bytes;

	cow__mutex_lock(&d->memory_lock);
	cow__cuda_stat(m->stats.segment, COW_CUDA_LARGE, sign);
	cow__cuda_stat(m->stats.active, COW_CUDA_LARGE, sign);
	cow__cuda_stat(m->stats.active_bytes, COW_CUDA_LARGE, n);
	m->data.active += (uint64_t)n;
	cow__mutex_unlock(&d->memory_lock);
}

void
cow__cuda_count_storage(struct cow__cuda *d, size_t bytes, size_t requested, int sign)
{
	struct cow__cuda_memory *m = d->memory;
	int64_t n = sign * (int64_t)bytes;

	cow__mutex_lock(&d->memory_lock);
	cow__cuda_stat(m->stats.allocation, COW_CUDA_LARGE, sign);
	cow__cuda_stat(m->stats.allocated_bytes, COW_CUDA_LARGE, n);
	cow__cuda_stat(m->stats.requested_bytes, COW_CUDA_LARGE,
	               sign * (int64_t)requested);
	m->data.allocated += (uint64_t)n;
	cow__mutex_unlock(&d->memory_lock);
}

/* ---- Peaks ------------------------------------------------------------------------- */

static void
reset(struct cow_cuda_stat *s)
{
	for (int i = 0; i < COW_CUDA_POOLS; i++)
		s[i].peak = s[i].current;
}

COW_EXPORT int
cow_cuda_reset_peaks(int device)
{
	struct cow_cuda_stats *s;
	struct cow__cuda *d;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	s = &d->memory->stats;
	cow__mutex_lock(&d->memory_lock);
	reset(s->allocation);
	reset(s->segment);
	reset(s->active);
	reset(s->inactive_split);
	reset(s->allocated_bytes);
	reset(s->reserved_bytes);
	reset(s->active_bytes);
	reset(s->inactive_split_bytes);
	reset(s->requested_bytes);
	cow__mutex_unlock(&d->memory_lock);
	return 0;
}

/* ---- Snapshot ---------------------------------------------------------------------- */

struct picture {
	struct cow_cuda_block *blocks;
	size_t max, n;
};

static uint32_t
state_of(const struct cow__cuda_block *b)
{
	if (b->state == COW__CUDA_USED)
		return COW_CUDA_BLOCK_USED;
	return b->state == COW__CUDA_WAITING ? COW_CUDA_BLOCK_WAITING
	                                     : COW_CUDA_BLOCK_FREE;
}

static void
add_block(struct picture *p, const struct cow__cuda_block *b, uint64_t from,
          uint64_t bytes)
{
	const struct cow__cuda_segment *s = b->segment;
	size_t at = p->n++;

	if (at >= p->max)
		return;
	p->blocks[at] = (struct cow_cuda_block){
		.segment = from,
		.segment_bytes = bytes,
		.address = b->ptr,
		.bytes = b->bytes,
		.requested = b->state == COW__CUDA_FREE ? 0 : b->requested,
		.stream = s->pool ? s->pool->stream : s->stream,
		.state = state_of(b),
		.pool = (uint32_t)cow__cuda_kind(s),
		.user = b->state == COW__CUDA_FREE ? 0 : b->user,
	};
}

static void
picture_of(struct picture *p, const struct cow__cuda_segment *s)
{
	const struct cow__cuda_block *b = s->first, *end;
	uint64_t bytes;

	while (b) {
		if (b->state == COW__CUDA_HOLE) {
			b = b->next;
			continue;
		}
		bytes = 0;
		for (end = b; end && end->state != COW__CUDA_HOLE; end = end->next)
			bytes += end->bytes;
		for (const uint64_t from = b->ptr; b != end; b = b->next)
			add_block(p, b, from, bytes);
	}
}

/* In the order of addresses. The tree is as deep as a random one. */
static void
in_order(struct picture *p, const struct cow__node *n)
{
	if (!n)
		return;
	in_order(p, n->left);
	picture_of(p, (const struct cow__cuda_segment *)n);
	in_order(p, n->right);
}

COW_EXPORT long
cow_cuda_snapshot(int device, struct cow_cuda_block *blocks, size_t max)
{
	struct picture p = { .blocks = blocks, .max = max };
	struct cow__cuda *d;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	if (!blocks && max)
		return cow__error(-EINVAL, "cow_cuda_snapshot: NULL");
	cow__mutex_lock(&d->memory_lock);
	in_order(&p, d->memory->segments);
	cow__cuda_trace_add(d->memory, COW_CUDA_SNAPSHOT, 0, p.n, NULL, 0);
	cow__mutex_unlock(&d->memory_lock);
	return (long)p.n;
}

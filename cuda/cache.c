/* SPDX-License-Identifier: MIT */
/*
 * The cache of device memory: takes and gives blocks
 *
 * A request that a free block serves costs one lock and no call of the driver. So does a
 * free by the stream that the block belongs to. All else takes the slow way.
 */
#include "core/base/error.h"
#include "core/base/pool.h"
#include "cuda/cache.h"
#include "memfd/map.h"

/* How many waiting blocks one call looks at. Each costs a call of the driver. */
#define LOOKS 8

static struct cow__pool memories = {
	.object_bytes = sizeof(struct cow__cuda_memory)
};
static struct cow__pool pools = { .object_bytes = sizeof(struct cow__cuda_pool) };

int
cow__cuda_memory_new(struct cow__cuda *d)
{
	struct cow__cuda_memory *m;

	if (d->memory)
		return 0;
	m = cow__pool_take(&memories);
	if (!m)
		return cow__error_from(-ENOMEM, "cow_cuda_start");
	*m = (struct cow__cuda_memory){
		.device = d,
		.limit = d->total_bytes,
	};
	d->memory = m;
	return 0;
}

/* A list, not a hash: most programs have few streams. */
struct cow__cuda_pool *
cow__cuda_pool_of(struct cow__cuda *d, struct cow__cu_stream *stream, int kind)
{
	struct cow__cuda_memory *m = d->memory;
	struct cow__cuda_pool **p, *found;

	if (stream == COW_CU_STREAM_LEGACY)
		stream = NULL; /* two names of one stream */
	for (p = &m->pools; *p; p = &(*p)->next)
		if ((*p)->stream == stream && (*p)->kind == kind && !(*p)->ended)
			break;
	found = *p;
	if (found) {
		*p = found->next;
	} else {
		found = cow__pool_take(&pools);
		if (!found)
			return NULL;
		memset(found, 0, sizeof(*found));
		found->device = d;
		found->stream = stream;
		found->kind = kind;
	}
	found->next = m->pools;
	m->pools = found;
	return found;
}

void
cow__cuda_pool_drop(struct cow__cuda_pool *p)
{
	cow__pool_give(&pools, p);
}

/* ---- Taking ---------------------------------------------------------------------- */

static size_t
rounded(size_t bytes)
{
	return cow__round_up(bytes, COW__CUDA_UNIT);
}

static bool
worth_a_split(const struct cow__cuda_block *b, size_t bytes)
{
	size_t rest = b->bytes - bytes;

	if (b->segment->unit || cow__cuda_kind(b->segment) == COW_CUDA_SMALL)
		return rest >= COW__CUDA_UNIT;
	return rest > COW__CUDA_SMALL;
}

static void
count_use(struct cow__cuda_memory *m, const struct cow__cuda_block *b, int64_t sign)
{
	struct cow_cuda_stats *s = &m->stats;
	int kind = cow__cuda_kind(b->segment);

	cow__cuda_stat(s->allocation, kind, sign);
	cow__cuda_stat(s->allocated_bytes, kind, sign * (int64_t)b->bytes);
	cow__cuda_stat(s->requested_bytes, kind, sign * (int64_t)b->requested);
}

static void
count_active(struct cow__cuda_memory *m, const struct cow__cuda_block *b,
             int64_t sign)
{
	int kind = cow__cuda_kind(b->segment);

	cow__cuda_stat(m->stats.active, kind, sign);
	cow__cuda_stat(m->stats.active_bytes, kind, sign * (int64_t)b->bytes);
}

static void
hand_out(struct cow__cuda_memory *m, struct cow__cuda_block *b, size_t requested)
{
	b->requested = requested;
	b->user = cow__cuda_user();
	b->state = COW__CUDA_USED;
	count_use(m, b, 1);
	count_active(m, b, 1);
	cow__cuda_trace(m, COW_CUDA_ALLOC, b);
}

/* A free block becomes one of these bytes, and a free rest. */
static struct cow__cuda_block *
cut(struct cow__cuda_memory *m, struct cow__cuda_block *b, size_t bytes,
    size_t requested)
{
	struct cow__cuda_block *rest = NULL;

	cow__cuda_bin_remove(b);
	if (worth_a_split(b, bytes))
		rest = cow__cuda_split(b, bytes); /* or it gets more */
	hand_out(m, b, requested);
	if (rest)
		cow__cuda_bin_add(rest);
	return b;
}

static int
kind_of_size(size_t bytes)
{
	return bytes <= COW__CUDA_SMALL ? COW_CUDA_SMALL : COW_CUDA_LARGE;
}

struct cow__cuda_block *
cow__cuda_take_cached(struct cow__cuda *d, size_t bytes,
                      struct cow__cu_stream *stream)
{
	struct cow__cuda_memory *m = d->memory;
	struct cow__cuda_block *b = NULL;
	struct cow__cuda_pool *p;
	size_t size = rounded(bytes);

	cow__mutex_lock(&d->memory_lock);
	if (!m->waiting.first) {
		p = cow__cuda_pool_of(d, stream, kind_of_size(size));
		b = p ? cow__cuda_best_fit(p, size) : NULL;
		if (b)
			b = cut(m, b, size, bytes);
	}
	cow__mutex_unlock(&d->memory_lock);
	return b;
}

struct request {
	size_t bytes;
	struct cow__cu_stream *stream;
	struct cow__cuda_block *block;
};

/* Locked. */
static int
serve_request(struct cow__cuda *d, struct request *q)
{
	struct cow__cuda_memory *m = d->memory;
	/* The default stream may be unusable; memory for later is not. */
	bool capturing = q->stream && cow__cuda_capturing(d, q->stream);
	size_t size = rounded(q->bytes);
	struct cow__cuda_pool *p = cow__cuda_pool_of(d, q->stream, kind_of_size(size));
	struct cow__cuda_block *b;
	int r;

	if (!p)
		return -ENOMEM;
	cow__cuda_drain(m, false);
	b = cow__cuda_best_fit(p, size);
	if (!b && !capturing && cow__cuda_adopt(p))
		b = cow__cuda_best_fit(p, size);
	if (!b && capturing)
		return cow__error_number(
		        -EBUSY, "a stream that records a graph can't get # bytes "
		                "from the driver: allocate and free them before, so "
		                "that they are cached", q->bytes);
	if (!b) {
		r = cow__cuda_grow(p, size, &b);
		if (r < 0)
			return r;
	}
	q->block = cut(m, b, size, q->bytes);
	return 0;
}

static int
try_(struct cow__cuda *d, void *arg)
{
	int r;

	cow__mutex_lock(&d->memory_lock);
	r = serve_request(d, arg);
	cow__mutex_unlock(&d->memory_lock);
	return r;
}

int
cow__cuda_take(struct cow__cuda *d, size_t bytes, struct cow__cu_stream *stream,
               struct cow__cuda_block **ret)
{
	struct request q = { .bytes = bytes, .stream = stream };
	int r = cow__cuda_low(d, bytes, stream, try_, &q);

	if (r == 0)
		*ret = q.block;
	return r;
}

/* ---- Giving ---------------------------------------------------------------------- */

bool
cow__cuda_free_block(struct cow__cuda_memory *m, struct cow__cuda_block *b)
{
	struct cow__cuda_segment *s = b->segment;

	if (!s->pool && !s->done(s->done_user)) {
		cow__cuda_list_add(&m->waiting, b);
		return false;
	}
	count_active(m, b, -1);
	cow__cuda_trace(m, COW_CUDA_FREE_COMPLETED, b);
	if (s->pool) {
		b->state = COW__CUDA_FREE;
		(void)cow__cuda_merge(b);
	} else {
		cow__cuda_segment_end(m, s); /* and the block */
	}
	return true;
}

void
cow__cuda_drain(struct cow__cuda_memory *m, bool all)
{
	struct cow__cuda_block *b = m->waiting.first, *last = m->waiting.last, *next;

	/* Each is looked at once. What has to wait on goes to the end, so that those
	 * behind it get their turn in the next call. */
	for (int looks = 0; b && (all || looks < LOOKS); b = next) {
		bool end = b == last;

		next = b->list_next;
		cow__cuda_list_remove(&m->waiting, b);
		if (cow__cuda_uses_passed(&b->uses, m->device) == 1) {
			looks += !cow__cuda_free_block(m, b);
		} else {
			cow__cuda_list_add(&m->waiting, b);
			looks++;
		}
		if (end)
			break;
	}
}

/* The memory lock, in a process that may have been forked while a thread that it
 * lacks had it: then there is nothing to do with the memory. */
static bool
lock_memory(struct cow__cuda *d)
{
	const struct cow__cu *cu;

	if (cow__unlikely(cow__cu_start(&cu) < 0))
		return false;
	cow__mutex_lock(&d->memory_lock);
	return true;
}

void
cow__cuda_give(struct cow__cuda_block *b)
{
	struct cow__cuda *d = b->segment->device;
	struct cow__cuda_memory *m = d->memory;

	if (!lock_memory(d))
		return;
	cow__require(b->state == COW__CUDA_USED);
	count_use(m, b, -1);
	cow__cuda_trace(m, COW_CUDA_FREE_REQUESTED, b);
	if (!b->uses) {
		(void)cow__cuda_free_block(m, b);
		cow__mutex_unlock(&d->memory_lock);
		return;
	}
	cow__cuda_list_remove(&m->noted, b);
	b->state = COW__CUDA_WAITING;
	if (cow__cuda_enter(d) < 0) {
		cow__cuda_list_add(&m->waiting, b);
	} else {
		/* Marks it; and if its streams are idle that is all. */
		if (cow__cuda_uses_passed(&b->uses, d) == 1)
			(void)cow__cuda_free_block(m, b);
		else
			cow__cuda_list_add(&m->waiting, b);
		cow__cuda_leave(d);
	}
	cow__mutex_unlock(&d->memory_lock);
}

void
cow__cuda_give_context(void *block)
{
	cow__cuda_give(block);
}

/* ---- Blocks ---------------------------------------------------------------------- */

int
cow__cuda_block_use_of(struct cow__cuda_block *b, struct cow__cuda *d,
                       struct cow__cu_stream *stream)
{
	struct cow__cuda *own = b->segment->device;
	struct cow__cuda_memory *m = own->memory;
	const struct cow__cuda_pool *p;
	bool first;
	int r = 0;

	if (stream == COW_CU_STREAM_LEGACY)
		stream = NULL; /* two names of one stream */
	cow__mutex_lock(&own->memory_lock);
	p = b->segment->pool;
	if (!p || p->ended || d != own || p->stream != stream) {
		first = !b->uses;
		r = cow__cuda_uses_add(&b->uses, d, stream);
		if (r == 0 && first)
			cow__cuda_list_add(&m->noted, b);
	}
	cow__mutex_unlock(&own->memory_lock);
	return r;
}

int
cow__cuda_block_use(struct cow__cuda_block *b, struct cow__cu_stream *stream)
{
	return cow__cuda_block_use_of(b, b->segment->device, stream);
}

bool
cow__cuda_block_stream(const struct cow__cuda_block *b, struct cow__cu_stream **ret)
{
	struct cow__cuda *d = b->segment->device;
	const struct cow__cuda_segment *s = b->segment;
	bool there;

	cow__mutex_lock(&d->memory_lock);
	there = s->pool ? !s->pool->ended : !s->ended;
	if (there)
		*ret = s->pool ? s->pool->stream : s->stream;
	cow__mutex_unlock(&d->memory_lock);
	return there;
}

struct cow__cuda_block *
cow__cuda_block_at(struct cow__cuda *d, cow__cu_ptr ptr)
{
	struct cow__cuda_segment *s;
	struct cow__cuda_block *b;

	cow__mutex_lock(&d->memory_lock);
	s = cow__cuda_segment_below(d->memory, ptr);
	b = s && ptr - s->node.key < s->bytes ? s->first : NULL;
	while (b && ptr - b->ptr >= b->bytes)
		b = b->next;
	if (b && b->state != COW__CUDA_USED)
		b = NULL;
	cow__mutex_unlock(&d->memory_lock);
	return b;
}

int
cow__cuda_block_outside(struct cow__cuda *d, cow__cu_ptr ptr, size_t bytes,
                        size_t requested, struct cow__cu_stream *stream,
                        cow__cuda_done_fn *done, void *user,
                        struct cow__cuda_block **ret)
{
	struct cow__cuda_memory *m = d->memory;
	struct cow__cuda_segment *s = cow__cuda_segment_make(d, ptr, bytes);
	struct cow__cuda_block *b = s ? s->first : NULL;

	if (!s)
		return -ENOMEM;
	s->stream = stream;
	s->done = done;
	s->done_user = user;
	/* Nothing says in which order it is given to the next one: its own stream
	 * has to pass, too. */
	if (cow__cuda_uses_add(&b->uses, d, stream) < 0) {
		cow__cuda_block_drop(b);
		s->first = NULL;
		cow__cuda_segment_end(NULL, s);
		return -ENOMEM;
	}
	cow__mutex_lock(&d->memory_lock);
	cow__cuda_segment_add(m, s);
	hand_out(m, b, requested);
	cow__cuda_list_add(&m->noted, b);
	cow__mutex_unlock(&d->memory_lock);
	*ret = b;
	return 0;
}

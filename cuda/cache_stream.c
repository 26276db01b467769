/* SPDX-License-Identifier: MIT */
/*
 * Streams that end
 *
 * The memory that was made on a stream outlives it. When the stream's work is done, its
 * pools go to the next stream of the device that needs more memory. Uses of blocks by the
 * stream get their marks before it ends, because it can't be marked afterwards. The driver
 * may give the stream's address to a new stream at once, so no later look-up uses it. If a
 * mark can't be made, or the driver keeps the stream, all is as before.
 */
#include "core/base/error.h"
#include "core/base/pool.h"
#include "cuda/cache.h"
#include "cuda/data.h"
#include "cuda/pinned.h"

static void
pool_end(struct cow__cuda_memory *m, struct cow__cuda_pool *p)
{
	struct cow__cuda_pool **at;

	for (at = &m->pools; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	cow__cuda_mark_free(m->device, p->end);
	cow__cuda_pool_drop(p);
}

static void
move_segment(struct cow__cuda_segment *s, struct cow__cuda_pool *to)
{
	struct cow__cuda_block *b;

	for (b = s->first; b; b = b->next)
		if (b->state == COW__CUDA_FREE)
			cow__cuda_bin_remove(b);
	s->pool = to;
	s->next = to->segments;
	to->segments = s;
	for (b = s->first; b; b = b->next)
		if (b->state == COW__CUDA_FREE)
			cow__cuda_bin_add(b);
}

bool
cow__cuda_adopt(struct cow__cuda_pool *to)
{
	struct cow__cuda_memory *m = to->device->memory;
	struct cow__cuda_pool *p, *next;
	struct cow__cuda_segment *s;
	bool some = false;

	for (p = m->pools; p; p = next) {
		next = p->next;
		if (!p->ended || p->kind != to->kind ||
		    cow__cuda_passed(m->device, p->end) != 1)
			continue;
		while ((s = p->segments) != NULL) {
			p->segments = s->next;
			move_segment(s, to);
			some = true;
		}
		pool_end(m, p);
	}
	return some;
}

static int
wait_for_event(struct cow__cuda *d, struct cow__cu_stream *stream, struct cow__cu_event *end)
{
	if (cow__cuda_passed(d, end) == 1)
		return 0;
	if (cow__cuda_capturing(d, stream))
		return cow__error(-EBUSY, "a graph is being recorded, and the memory "
		                          "belongs to a stream that ended with work under "
		                          "way: use the memory before recording begins");
	return cow__cuda_after(d, stream, end);
}

int
cow__cuda_block_behind(const struct cow__cuda_block *b, struct cow__cu_stream *stream)
{
	const struct cow__cuda_segment *s = b->segment;
	struct cow__cuda *d = s->device;
	int r = cow__cuda_enter(d);

	if (r < 0)
		return r;
	cow__mutex_lock(&d->memory_lock);
	if (s->pool && s->pool->ended)
		r = wait_for_event(d, stream, s->pool->end);
	for (struct cow__cuda_use *u = s->ended ? b->uses : NULL; u && r == 0;
	     u = u->next)
		if (u->marked)
			r = wait_for_event(d, stream, u->mark);
	cow__mutex_unlock(&d->memory_lock);
	cow__cuda_leave(d);
	return r;
}

/* Handles the uses of one list of blocks. Locked, `d` entered. */
static int
end_notes(const struct cow__cuda_list *l, struct cow__cuda *d,
          struct cow__cu_stream *stream, enum cow__cuda_end how)
{
	struct cow__cuda_block *b;
	int r = 0;

	for (b = l->first; b && r == 0; b = b->list_next)
		r = cow__cuda_uses_end(b->uses, d, stream, how);
	/* Outside blocks that belonged to the stream. */
	for (b = l->first; b && how == COW__CUDA_ENDED; b = b->list_next)
		if (b->segment->device == d && b->segment->stream == stream)
			b->segment->ended = true;
	return r;
}

static int
end_all_notes(struct cow__cuda *d, struct cow__cu_stream *stream,
              enum cow__cuda_end how)
{
	int r = cow__cuda_pinned_stream_ends(d, stream, how);

	for (int i = 0; i < cow_cuda_count() && r == 0; i++) {
		struct cow__cuda *other;

		r = cow__cuda_get(i, &other);
		if (r < 0)
			break;
		cow__mutex_lock(&other->memory_lock);
		r = end_notes(&other->memory->noted, d, stream, how);
		if (r == 0)
			r = end_notes(&other->memory->waiting, d, stream, how);
		cow__mutex_unlock(&other->memory_lock);
	}
	return r;
}

/* Makes the stream's pools adoptable, with a mark each; on a failure none. Locked. */
static int
end_pools(struct cow__cuda_memory *m, struct cow__cu_stream *stream)
{
	struct cow__cuda *d = m->device;
	struct cow__cuda_pool *p;
	int r = 0;

	for (p = m->pools; p && r == 0; p = p->next)
		if (p->stream == stream && !p->ended)
			r = cow__cuda_mark(d, stream, &p->end);
	if (r == 0) {
		cow__cuda_stream_ended(d, stream, true);
		r = cow__cu_error(d->cu->stream_destroy(stream),
		                  "ending a stream");
		if (r < 0)
			cow__cuda_stream_ended(d, stream, false);
	}
	for (p = m->pools; p; p = p->next) {
		if (p->stream != stream || p->ended)
			continue;
		if (r == 0) {
			p->ended = true;
		} else {
			cow__cuda_mark_free(d, p->end);
			p->end = NULL;
		}
	}
	return r;
}

static int
end_stream(struct cow__cuda *d, struct cow__cu_stream *stream)
{
	enum cow__cuda_end how;
	int r = cow__cuda_data_stream_ends(d, stream, COW__CUDA_ENDING);

	if (r == 0)
		r = end_all_notes(d, stream, COW__CUDA_ENDING);
	if (r == 0) {
		cow__mutex_lock(&d->memory_lock);
		r = end_pools(d->memory, stream);
		cow__mutex_unlock(&d->memory_lock);
	}
	how = r == 0 ? COW__CUDA_ENDED : COW__CUDA_STAYS;
	(void)end_all_notes(d, stream, how);
	(void)cow__cuda_data_stream_ends(d, stream, how);
	return r;
}

COW_EXPORT int
cow_cuda_stream_free(int device, cow_cuda_stream stream)
{
	struct cow__cuda *d;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	if (!stream || stream == COW_CU_STREAM_LEGACY)
		return cow__error(-EINVAL, "cow_cuda_stream_free: the default "
		                           "stream can't be freed");
	if (cow__cuda_stream(d) == stream)
		return cow__error(-EBUSY, "cow_cuda_stream_free: it is this "
		                          "thread's current stream");
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	if (cow__cuda_capturing(d, stream))
		r = cow__error(-EBUSY, "cow_cuda_stream_free: it records a graph");
	if (r == 0)
		r = end_stream(d, stream);
	cow__cuda_leave(d);
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Copies and fills
 *
 * All copies are boxes of rows; a plain copy has one row. Addresses are looked up when the
 * call is made, and bytes are read when the work runs. So a program that reuses a pinned
 * buffer too early copies the wrong bytes. A device can't read memory later that is not
 * pinned: those bytes are taken at once, or the call waits.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>
#include <string.h>

struct side {
	char *at; /* where the host touches it */
	const char *given;
	size_t pitch, slice;
	bool device;
	enum ref_pinned pinned;
};
struct box {
	struct side to, from;
	size_t width, height, depth;
	void *staged;
};

static size_t extent(const struct side *s, const struct box *b)
{
	return (b->depth - 1) * s->slice + (b->height - 1) * s->pitch + b->width;
}

static void copy_box(const struct box *b)
{
	for (size_t z = 0; z < b->depth; z++)
		for (size_t y = 0; y < b->height; y++)
			memcpy(b->to.at + z * b->to.slice + y * b->to.pitch,
			       b->from.at + z * b->from.slice + y * b->from.pitch, b->width);
}

static void run_copy(struct ref_work *work)
{
	copy_box(work->data);
}

static void finish_copy(struct ref_work *work)
{
	free(((struct box *)work->data)->staged);
}

/* Looks up one side, as `device` sees it. */
static enum cow__cu_result find(struct side *s, const struct box *b, unsigned type, int device,
                                bool write)
{
	size_t bytes = extent(s, b);

	s->device = ref_in_window(s->given);
	if ((type == COW_CU_MEMORY_DEVICE && !s->device &&
	     ref_pinned(s->given, bytes) != REF_PINNED) ||
	    (type == COW_CU_MEMORY_HOST && s->device))
		return COW_CU_INVALID_VALUE;
	if (s->device)
		return ref_resolve(s->given, bytes, device, write, &s->at);
	s->at = (char *)s->given;
	s->pinned = ref_pinned(s->given, bytes);
	if (s->pinned == REF_PARTLY)
		return ref_undefined(COW_CU_INVALID_VALUE, "%p: %zu bytes are pinned in part",
		                     (void *)s->given, bytes);
	if (s->pinned == REF_UNPINNED && !ref.settings[REF_PAGEABLE])
		return ref_undefined(COW_CU_INVALID_VALUE,
		                     "%p is not pinned, so this copy is not asynchronous",
		                     (void *)s->given);
	return COW_CU_SUCCESS;
}

/* Device memory cannot be staged by rows without the order of the stream. */
static void stage(struct box *b)
{
	size_t row = b->width;
	char *p = malloc(row * b->height * b->depth);

	if (!p)
		abort();
	for (size_t z = 0; z < b->depth; z++)
		for (size_t y = 0; y < b->height; y++)
			memcpy(p + (z * b->height + y) * row,
			       b->from.at + z * b->from.slice + y * b->from.pitch, row);
	b->staged = p;
	b->from.at = p;
	b->from.pitch = row;
	b->from.slice = row * b->height;
}

static enum cow__cu_result copy(struct cow__cu_context *context, struct cow__cu_stream *stream,
                                struct box b, unsigned to_type, unsigned from_type,
                                int to_device, int from_device)
{
	struct ref_work *work;
	enum cow__cu_result r = ref_stream(context, &stream);
	bool wait;

	if (r != COW_CU_SUCCESS || !b.width || !b.height || !b.depth)
		return r;
	if (stream->capture != COW_CU_CAPTURE_NONE)
		return COW_CU_NOT_SUPPORTED; /* captures are told of, not made */
	/* -1: as the device of the stream sees it. */
	r = find(&b.to, &b, to_type, to_device < 0 ? stream->context->device : to_device, true);
	if (r == COW_CU_SUCCESS)
		r = find(&b.from, &b, from_type,
		         from_device < 0 ? stream->context->device : from_device, false);
	if (r != COW_CU_SUCCESS)
		return r;
	if (b.depth * b.height == 1 && b.to.at < b.from.at + b.width &&
	    b.from.at < b.to.at + b.width)
		return ref_undefined(COW_CU_INVALID_VALUE, "source and destination overlap");
	work = ref_work_new(context, stream, run_copy, sizeof(b));
	work->touches[0] = (struct ref_range){ b.to.given, extent(&b.to, &b) };
	work->touches[1] = (struct ref_range){ b.from.given, extent(&b.from, &b) };
	/* From pageable memory the bytes are taken now, after the stream's work. To it,
	 * or between two places of the host, the call returns when all is done. */
	wait = !b.to.device && (b.to.pinned == REF_UNPINNED ||
	                        (!b.from.device && b.from.pinned == REF_UNPINNED));
	if (b.to.device && !b.from.device && b.from.pinned == REF_UNPINNED) {
		ref.implicit_waits++;
		ref_wait(stream->last);
		stage(&b);
		work->touches[1].bytes = 0;
	}
	memcpy(work->data, &b, sizeof(b));
	work->finish = finish_copy;
	ref_submit(work);
	if (wait) {
		ref.implicit_waits++;
		ref_wait(stream->last);
	}
	return stream->context->sticky;
}

static struct box row(cow__cu_ptr to, cow__cu_ptr from, size_t bytes)
{
	return (struct box){ .to = { .given = (char *)(uintptr_t)to },
		             .from = { .given = (char *)(uintptr_t)from },
		             .width = bytes, .height = 1, .depth = 1 };
}

enum cow__cu_result cuMemcpyAsync(cow__cu_ptr to, cow__cu_ptr from, size_t bytes,
                                  struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(copy);

	return copy(context, stream, row(to, from, bytes), COW_CU_MEMORY_UNIFIED,
	            COW_CU_MEMORY_UNIFIED, -1, -1);
}

enum cow__cu_result cuMemcpyHtoDAsync_v2(cow__cu_ptr to, const void *from, size_t bytes,
                                         struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(copy_to_device);

	return copy(context, stream, row(to, (uintptr_t)from, bytes), COW_CU_MEMORY_DEVICE,
	            COW_CU_MEMORY_HOST, -1, -1);
}

enum cow__cu_result cuMemcpyDtoHAsync_v2(void *to, cow__cu_ptr from, size_t bytes,
                                         struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(copy_to_host);

	return copy(context, stream, row((uintptr_t)to, from, bytes), COW_CU_MEMORY_HOST,
	            COW_CU_MEMORY_DEVICE, -1, -1);
}

enum cow__cu_result cuMemcpyDtoDAsync_v2(cow__cu_ptr to, cow__cu_ptr from, size_t bytes,
                                         struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(copy_within);

	return copy(context, stream, row(to, from, bytes), COW_CU_MEMORY_DEVICE,
	            COW_CU_MEMORY_DEVICE, -1, -1);
}

/* Each side as its own device sees it: works without peer access. */
enum cow__cu_result cuMemcpyPeerAsync(cow__cu_ptr to, struct cow__cu_context *to_context,
                                      cow__cu_ptr from, struct cow__cu_context *from_context,
                                      size_t bytes, struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(copy_peer);

	if (ref_alive(to_context) != COW_CU_SUCCESS || ref_alive(from_context) != COW_CU_SUCCESS)
		return COW_CU_INVALID_CONTEXT;
	return copy(context, stream, row(to, from, bytes), COW_CU_MEMORY_DEVICE,
	            COW_CU_MEMORY_DEVICE, to_context->device, from_context->device);
}

/* ---- Two and three dimensions --------------------------------------------- */

static bool place(struct side *s, unsigned type, const void *host, cow__cu_ptr device, size_t x,
                  size_t y, size_t z, size_t pitch, size_t height, const struct box *b)
{
	const char *base = type == COW_CU_MEMORY_HOST ? host : (char *)(uintptr_t)device;

	if (type == COW_CU_MEMORY_ARRAY || type < COW_CU_MEMORY_HOST ||
	    type > COW_CU_MEMORY_UNIFIED)
		return false;
	if (b->height * b->depth > 1 && pitch < x + b->width)
		return false;
	if (b->depth > 1 && height < y + b->height)
		return false;
	s->pitch = pitch;
	s->slice = pitch * height;
	s->given = base + z * s->slice + y * pitch + x;
	return true;
}

enum cow__cu_result cuMemcpy2DAsync_v2(const struct cow__cu_copy2d *c,
                                       struct cow__cu_stream *stream)
{
	struct box b;
	ENTER_CONTEXT(copy_2d);

	if (!c)
		return COW_CU_INVALID_VALUE;
	b = (struct box){ .width = c->width_bytes, .height = c->height, .depth = 1 };
	if (!place(&b.to, c->dst_type, c->dst_host, c->dst_device, c->dst_x, c->dst_y, 0,
	           c->dst_pitch, 0, &b) ||
	    !place(&b.from, c->src_type, c->src_host, c->src_device, c->src_x, c->src_y, 0,
	           c->src_pitch, 0, &b))
		return COW_CU_INVALID_VALUE;
	return copy(context, stream, b, c->dst_type, c->src_type, -1, -1);
}

#define BOX3D(c)                                                               \
	(struct box){ .width = c->width_bytes, .height = c->height, .depth = c->depth }
#define PLACE3D(c, b)                                                          \
	(c->src_lod == 0 && c->dst_lod == 0 &&                                 \
	 place(&b.to, c->dst_type, c->dst_host, c->dst_device, c->dst_x,       \
	       c->dst_y, c->dst_z, c->dst_pitch, c->dst_height, &b) &&         \
	 place(&b.from, c->src_type, c->src_host, c->src_device, c->src_x,     \
	       c->src_y, c->src_z, c->src_pitch, c->src_height, &b))

enum cow__cu_result cuMemcpy3DAsync_v2(const struct cow__cu_copy3d *c,
                                       struct cow__cu_stream *stream)
{
	struct box b;
	ENTER_CONTEXT(copy_3d);

	if (!c)
		return COW_CU_INVALID_VALUE;
	b = BOX3D(c);
	if (!PLACE3D(c, b) || c->reserved0 || c->reserved1)
		return COW_CU_INVALID_VALUE;
	return copy(context, stream, b, c->dst_type, c->src_type, -1, -1);
}

enum cow__cu_result cuMemcpy3DPeerAsync(const struct cow__cu_copy3d_peer *c,
                                        struct cow__cu_stream *stream)
{
	struct box b;
	ENTER_CONTEXT(copy_3d_peer);

	if (!c)
		return COW_CU_INVALID_VALUE;
	if (ref_alive(c->src_context) != COW_CU_SUCCESS ||
	    ref_alive(c->dst_context) != COW_CU_SUCCESS)
		return COW_CU_INVALID_CONTEXT;
	b = BOX3D(c);
	if (!PLACE3D(c, b))
		return COW_CU_INVALID_VALUE;
	return copy(context, stream, b, c->dst_type, c->src_type, c->dst_context->device,
	            c->src_context->device);
}

/* ---- Fills --------------------------------------------------------------- */

struct fill {
	char *at;
	uint32_t value;
	size_t width, count;
};

static void run_fill(struct ref_work *work)
{
	const struct fill *f = work->data;

	size_t bytes = f->count * f->width, done = f->width, n;

	/* Copies the bytes that are there behind themselves: twice as many each time. */
	memcpy(f->at, &f->value, f->width);
	for (; done < bytes; done += n) {
		n = done < bytes - done ? done : bytes - done;
		memcpy(f->at + done, f->at, n);
	}
}

static enum cow__cu_result set(struct cow__cu_context *context, cow__cu_ptr to, uint32_t value,
                               size_t width, size_t count, struct cow__cu_stream *stream)
{
	struct fill f = { NULL, value, width, count };
	enum cow__cu_result r = ref_stream(context, &stream);
	struct ref_work *work;

	if (r != COW_CU_SUCCESS || !count)
		return r;
	if (to % width || count > WINDOW)
		return COW_CU_INVALID_VALUE;
	if (stream->capture != COW_CU_CAPTURE_NONE)
		return COW_CU_NOT_SUPPORTED;
	r = ref_resolve((char *)(uintptr_t)to, width * count, stream->context->device, true,
	                &f.at);
	if (r != COW_CU_SUCCESS)
		return r;
	work = ref_work_new(context, stream, run_fill, sizeof(f));
	work->touches[0] = (struct ref_range){ (char *)(uintptr_t)to, width * count };
	memcpy(work->data, &f, sizeof(f));
	ref_submit(work);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuMemsetD8Async(cow__cu_ptr to, unsigned char value, size_t count,
                                    struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(set_8);

	return set(context, to, value, 1, count, stream);
}

enum cow__cu_result cuMemsetD16Async(cow__cu_ptr to, unsigned short value, size_t count,
                                     struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(set_16);

	return set(context, to, value, 2, count, stream);
}

enum cow__cu_result cuMemsetD32Async(cow__cu_ptr to, unsigned value, size_t count,
                                     struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(set_32);

	return set(context, to, value, 4, count, stream);
}

/* SPDX-License-Identifier: MIT */
/*
 * Streams
 *
 * A destroyed stream stays allocated, so that its use is noticed.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>

enum { ALIVE = 0x57a11ce, DEAD = 0xdeadbea };

static struct cow__cu_stream *all;

struct cow__cu_stream *ref_streams(void)
{
	return all;
}

struct cow__cu_stream *ref_stream_make(struct cow__cu_context *context, unsigned flags)
{
	struct cow__cu_stream *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	*s = (struct cow__cu_stream){ .magic = ALIVE, .context = context,
		                      .blocking = flags != COW_CU_STREAM_NON_BLOCKING,
		                      .next = all };
	all = s;
	return s;
}

enum cow__cu_result ref_stream(struct cow__cu_context *context, struct cow__cu_stream **stream)
{
	if (!*stream || *stream == COW_CU_STREAM_LEGACY) {
		*stream = context->null;
		return ref_unsafe_default(context, true);
	}
	if (*stream == (struct cow__cu_stream *)0x2)
		return COW_CU_NOT_SUPPORTED; /* a default stream for each thread: not used here */
	if ((*stream)->magic != ALIVE)
		return ref_undefined(COW_CU_INVALID_HANDLE, "%p %s", (void *)*stream,
		                     (*stream)->magic == DEAD ? "is a destroyed stream"
		                                              : "is no stream");
	return ref_alive((*stream)->context);
}

#define STREAM()                                                               \
	ref_result = ref_stream(context, &stream);                             \
	if (ref_result != COW_CU_SUCCESS)                                      \
	return ref_result

/* A capture would be broken by a call that waits. */
static enum cow__cu_result may_wait(struct cow__cu_stream *stream)
{
	if (stream->capture == COW_CU_CAPTURE_NONE)
		return COW_CU_SUCCESS;
	stream->capture = COW_CU_CAPTURE_INVALIDATED;
	return COW_CU_STREAM_CAPTURE_UNSUPPORTED;
}

enum cow__cu_result cuStreamCreateWithPriority(struct cow__cu_stream **ret, unsigned flags,
                                               int priority)
{
	ENTER_CONTEXT(stream_create);

	(void)priority; /* out of range is clamped */
	if (!ret || flags > COW_CU_STREAM_NON_BLOCKING)
		return COW_CU_INVALID_VALUE;
	*ret = ref_stream_make(context, flags);
	ref.streams++;
	return COW_CU_SUCCESS;
}

/* Its queued work is still done. */
enum cow__cu_result cuStreamDestroy_v2(struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(stream_destroy);

	if (!stream || stream == COW_CU_STREAM_LEGACY)
		return COW_CU_INVALID_HANDLE;
	STREAM();
	stream->magic = DEAD;
	ref.streams--;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuStreamSynchronize(struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(stream_synchronize);

	STREAM();
	ref_result = may_wait(stream);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	ref_wait(stream->last);
	/* The default stream is empty only when all that it waits for is. */
	if (stream == stream->context->null)
		for (struct cow__cu_stream *s = all; s; s = s->next)
			if (s->context == stream->context && s->blocking)
				ref_wait(s->last);
	return stream->context->sticky;
}

enum cow__cu_result cuStreamQuery(struct cow__cu_stream *stream)
{
	ENTER_CONTEXT(stream_query);

	STREAM();
	ref_result = may_wait(stream);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	if (!stream->last || stream->last->done)
		return stream->context->sticky;
	ref_nudge();
	return COW_CU_NOT_READY;
}

enum cow__cu_result cuStreamIsCapturing(struct cow__cu_stream *stream, unsigned *ret)
{
	ENTER_CONTEXT(stream_is_capturing);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!stream || stream == COW_CU_STREAM_LEGACY)
		return ref_unsafe_default(context, false);
	STREAM();
	*ret = stream->capture;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuStreamGetCtx(struct cow__cu_stream *stream, struct cow__cu_context **ret)
{
	ENTER_CONTEXT(stream_get_ctx);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	STREAM();
	*ret = stream->context;
	return COW_CU_SUCCESS;
}

struct callback {
	cow__cu_host_fn fn;
	void *user;
};

static void call_back(struct ref_work *work)
{
	struct callback *c = work->data;

	ref_in_callback = true;
	c->fn(c->user);
	ref_in_callback = false;
}

enum cow__cu_result cuLaunchHostFunc(struct cow__cu_stream *stream, cow__cu_host_fn fn,
                                     void *user)
{
	struct ref_work *work;
	ENTER_CONTEXT(launch_host_func);

	if (!fn)
		return COW_CU_INVALID_VALUE;
	STREAM();
	work = ref_work_new(context, stream, call_back, sizeof(struct callback));
	*(struct callback *)work->data = (struct callback){ fn, user };
	ref_submit(work);
	return COW_CU_SUCCESS;
}

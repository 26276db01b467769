/* SPDX-License-Identifier: MIT */
/*
 * Streams that record a graph
 *
 * Nothing is recorded: this file only finds the calls that break a recording. These break it,
 * and are refused:
 *
 *   - a call that a graph can't have (making and freeing memory, asking events), by the
 *     recording thread, or by any thread if the recording is GLOBAL; but not in a thread
 *     with the mode RELAXED (cuThreadExchangeStreamCaptureMode)
 *   - waiting for the stream, or for its context, by any thread in any mode
 *   - the default stream, if the recording one is ordered with it
 *   - waiting, in the recording, for an event from outside of it
 *
 * The documentation names few of the calls of the first kind. Here all calls count that could
 * be: code that avoids too many of them avoids the right ones.
 */
#include "tests/driver/ref.h"

static _Thread_local unsigned mode = COW_CU_CAPTURE_GLOBAL;
static _Thread_local char self; /* its address is the thread's */

EXPORT enum cow__cu_result cuStreamBeginCapture_v2(struct cow__cu_stream *stream, unsigned how);
EXPORT enum cow__cu_result cuStreamEndCapture(struct cow__cu_stream *stream, void **ret);
EXPORT enum cow__cu_result cuGraphDestroy(void *graph);

static enum cow__cu_result broken(struct cow__cu_stream *s)
{
	s->capture = COW_CU_CAPTURE_INVALIDATED;
	return COW_CU_STREAM_CAPTURE_UNSUPPORTED;
}

static bool forbids(const struct cow__cu_stream *s)
{
	if (s->capture != COW_CU_CAPTURE_ACTIVE || mode == COW_CU_CAPTURE_RELAXED)
		return false;
	if (s->recorder == &self)
		return s->mode != COW_CU_CAPTURE_RELAXED;
	return mode == COW_CU_CAPTURE_GLOBAL && s->mode == COW_CU_CAPTURE_GLOBAL;
}

enum cow__cu_result ref_unsafe(void)
{
	enum cow__cu_result r = COW_CU_SUCCESS;

	for (struct cow__cu_stream *s = ref_streams(); s; s = s->next)
		if (forbids(s))
			r = broken(s);
	return r;
}

enum cow__cu_result ref_unsafe_context(const struct cow__cu_context *context)
{
	enum cow__cu_result r = COW_CU_SUCCESS;

	for (struct cow__cu_stream *s = ref_streams(); s; s = s->next)
		if (s->context == context && s->capture == COW_CU_CAPTURE_ACTIVE)
			r = broken(s);
	return r;
}

enum cow__cu_result ref_unsafe_default(const struct cow__cu_context *context, bool breaks)
{
	enum cow__cu_result r = COW_CU_SUCCESS;

	for (struct cow__cu_stream *s = ref_streams(); s; s = s->next)
		if (s->context == context && s->blocking && s->capture != COW_CU_CAPTURE_NONE) {
			if (breaks)
				(void)broken(s);
			r = COW_CU_STREAM_CAPTURE_IMPLICIT;
		}
	return r;
}

enum cow__cu_result cuThreadExchangeStreamCaptureMode(unsigned *ret)
{
	unsigned before = mode;
	ENTER(thread_capture_mode);

	if (!ret || *ret > COW_CU_CAPTURE_RELAXED)
		return COW_CU_INVALID_VALUE;
	mode = *ret;
	*ret = before;
	return COW_CU_SUCCESS;
}

/* The library does not call these: they are not in its list of calls. */

enum cow__cu_result cuStreamBeginCapture_v2(struct cow__cu_stream *stream, unsigned how)
{
	enum cow__cu_result r = COW_CU_STREAM_CAPTURE_UNSUPPORTED;

	if (!stream || stream == COW_CU_STREAM_LEGACY)
		return r;
	pthread_mutex_lock(&ref.lock);
	if (stream->capture == COW_CU_CAPTURE_NONE && how <= COW_CU_CAPTURE_RELAXED) {
		stream->capture = COW_CU_CAPTURE_ACTIVE;
		stream->mode = how;
		stream->recorder = &self;
		r = COW_CU_SUCCESS;
	}
	pthread_mutex_unlock(&ref.lock);
	return r;
}

enum cow__cu_result cuStreamEndCapture(struct cow__cu_stream *stream, void **ret)
{
	enum cow__cu_result r = COW_CU_SUCCESS;

	pthread_mutex_lock(&ref.lock);
	if (stream->capture == COW_CU_CAPTURE_NONE)
		r = COW_CU_ILLEGAL_STATE;
	else if (stream->capture == COW_CU_CAPTURE_INVALIDATED)
		r = COW_CU_STREAM_CAPTURE_INVALIDATED;
	stream->capture = COW_CU_CAPTURE_NONE;
	*ret = r == COW_CU_SUCCESS ? &self : NULL;
	pthread_mutex_unlock(&ref.lock);
	return r;
}

enum cow__cu_result cuGraphDestroy(void *graph)
{
	return graph ? COW_CU_SUCCESS : COW_CU_INVALID_VALUE;
}

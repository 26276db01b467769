/* SPDX-License-Identifier: MIT */
/*
 * Streams and marks. See the header.
 *
 * Each thread has a current stream for each device. Few threads set one. A thread that does
 * has a table, found by a key of libc: a library that is loaded late gets little
 * thread-local memory. The tables form a list. The driver does not tell whether any stream
 * of a device records a graph, so each stream in the list is asked. The list is locked
 * meanwhile, because a stream that is no longer current may end.
 */
#include "cuda/stream.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/pool.h"

#include <pthread.h>

struct current {
	struct current *next, **at; /* in the list; the pointer to this one */
	struct cow__cu_stream *streams[COW_DEVICE_INDEXES];
	uint64_t ended; /* bit n: the stream of device n has ended */
};

/* An unused event. */
struct cow__cuda_spare {
	struct cow__cuda_spare *next;
	struct cow__cu_event *event;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key;

static struct cow__mutex all_lock; /* only the driver's own are taken after it */
static struct current *all;

static struct cow__pool currents = { .object_bytes = sizeof(struct current) };
static struct cow__pool spares = {
	.object_bytes = sizeof(struct cow__cuda_spare)
};

static void
thread_ended(void *ended)
{
	struct current *c = ended;
	const struct cow__cu *cu;

	/* In a forked child the list may be half changed, and a lost thread may have its lock. */
	if (cow__cu_start(&cu) < 0)
		return;
	cow__mutex_lock(&all_lock);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	cow__mutex_unlock(&all_lock);
	cow__pool_give(&currents, c);
}

static void
make_key(void)
{
	have_key = pthread_key_create(&key, thread_ended) == 0;
}

static struct current *
current_of_thread(void)
{
	(void)pthread_once(&once, make_key);
	return have_key ? pthread_getspecific(key) : NULL;
}

struct cow__cu_stream *
cow__cuda_stream(const struct cow__cuda *d)
{
	const struct current *c = current_of_thread();

	return c ? c->streams[d->index] : NULL;
}

/* ---- Marks -------------------------------------------------------------------- */

static struct cow__cu_event *
take_spare(struct cow__cuda *d)
{
	struct cow__cu_event *e = NULL;
	struct cow__cuda_spare *s;

	cow__mutex_lock(&d->marks);
	s = d->spare;
	if (s)
		d->spare = s->next;
	cow__mutex_unlock(&d->marks);
	if (s) {
		e = s->event;
		cow__pool_give(&spares, s);
	}
	return e;
}

int
cow__cuda_mark(struct cow__cuda *d, struct cow__cu_stream *stream,
               struct cow__cu_event **ret)
{
	struct cow__cu_event *e = take_spare(d);
	int r = 0;

	if (!e)
		r = cow__cu_error(d->cu->event_create(
		                          &e, COW_CU_EVENT_DISABLE_TIMING),
		                  "making an event");
	if (r == 0)
		r = cow__cu_error(d->cu->event_record(e, stream),
		                  "marking a stream");
	if (r < 0) {
		cow__cuda_mark_free(d, e);
		return r;
	}
	*ret = e;
	return 0;
}

int
cow__cuda_passed(struct cow__cuda *d, struct cow__cu_event *mark)
{
	enum cow__cu_result result;

	if (!mark)
		return 1;
	result = d->cu->event_query(mark);
	if (result == COW_CU_NOT_READY)
		return 0;
	return result == COW_CU_SUCCESS
	               ? 1
	               : cow__cu_error(result, "work on the device");
}

int
cow__cuda_await(struct cow__cuda *d, struct cow__cu_event *mark)
{
	if (!mark)
		return 0;
	return cow__cu_error(d->cu->event_synchronize(mark),
	                     "work on the device");
}

int
cow__cuda_after(struct cow__cuda *d, struct cow__cu_stream *stream,
                struct cow__cu_event *mark)
{
	if (!mark)
		return 0;
	return cow__cu_error(d->cu->stream_wait_event(stream, mark, 0),
	                     "ordering streams");
}

void
cow__cuda_mark_free(struct cow__cuda *d, struct cow__cu_event *mark)
{
	struct cow__cuda_spare *s;

	if (!mark)
		return;
	s = cow__pool_take(&spares);
	if (!s) {
		(void)d->cu->event_destroy(mark);
		return;
	}
	s->event = mark;
	cow__mutex_lock(&d->marks);
	s->next = d->spare;
	d->spare = s;
	cow__mutex_unlock(&d->marks);
}

bool
cow__cuda_capturing(struct cow__cuda *d, struct cow__cu_stream *stream)
{
	unsigned status = COW_CU_CAPTURE_NONE;

	if (!d->cu->stream_is_capturing)
		return false;
	/* The legacy stream itself never records, and to ask breaks nothing. */
	if (!stream || stream == COW_CU_STREAM_LEGACY)
		return d->cu->stream_is_capturing(stream, &status) ==
		       COW_CU_STREAM_CAPTURE_IMPLICIT;
	return d->cu->stream_is_capturing(stream, &status) == COW_CU_SUCCESS &&
	       status != COW_CU_CAPTURE_NONE;
}

int
cow__cuda_usable(struct cow__cuda *d, struct cow__cu_stream *stream)
{
	if ((stream && stream != COW_CU_STREAM_LEGACY) ||
	    cow__likely(!cow__cuda_capturing(d, stream)))
		return 0;
	return cow__error(-EBUSY,
	                  "a stream that is ordered with the default stream records a "
	                  "graph: set another stream (cow_cuda_stream_set()) meanwhile");
}

bool
cow__cuda_recording(struct cow__cuda *d)
{
	bool found = cow__cuda_capturing(d, NULL);

	cow__mutex_lock(&all_lock);
	for (struct current *c = all; c && !found; c = c->next)
		found = c->streams[d->index] && !(c->ended >> d->index & 1) &&
		        cow__cuda_capturing(d, c->streams[d->index]);
	cow__mutex_unlock(&all_lock);
	return found;
}

void
cow__cuda_stream_ended(const struct cow__cuda *d, struct cow__cu_stream *stream,
                       bool ended)
{
	uint64_t bit = (uint64_t)1 << d->index;

	cow__mutex_lock(&all_lock);
	for (struct current *c = all; c; c = c->next)
		if (c->streams[d->index] == stream)
			c->ended = ended ? c->ended | bit : c->ended & ~bit;
	cow__mutex_unlock(&all_lock);
}

/* ---- For the program ----------------------------------------------------------- */

static int
entered(int device, struct cow__cuda **ret)
{
	int r = cow__cuda_get(device, ret);

	return r < 0 ? r : cow__cuda_enter(*ret);
}

COW_EXPORT int
cow_cuda_stream_new(int device, int priority, cow_cuda_stream *ret)
{
	struct cow__cu_stream *s = NULL;
	struct cow__cuda *d;
	int r;

	if (!ret)
		return cow__error(-EINVAL, "cow_cuda_stream_new: ret is NULL");
	r = entered(device, &d);
	if (r < 0)
		return r;
	/* The driver clamps the priority. */
	r = cow__cu_error(d->cu->stream_create(&s, COW_CU_STREAM_NON_BLOCKING,
	                                       priority),
	                  "making a stream");
	cow__cuda_leave(d);
	if (r == 0)
		*ret = s;
	return r;
}

COW_EXPORT int
cow_cuda_stream_set(int device, cow_cuda_stream stream)
{
	struct cow__cuda *d;
	struct current *c;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	c = current_of_thread();
	if (!c) {
		if (!stream)
			return 0;
		c = have_key ? cow__pool_take(&currents) : NULL;
		if (!c)
			return cow__error(-ENOMEM,
			                  "cow_cuda_stream_set: no memory");
		memset(c, 0, sizeof(*c));
		if (pthread_setspecific(key, c) != 0) {
			cow__pool_give(&currents, c);
			return cow__error(-ENOMEM,
			                  "cow_cuda_stream_set: no memory");
		}
		cow__mutex_lock(&all_lock);
		c->next = all;
		c->at = &all;
		if (all)
			all->at = &c->next;
		all = c;
		cow__mutex_unlock(&all_lock);
	}
	cow__mutex_lock(&all_lock);
	c->streams[device] = stream;
	c->ended &= ~((uint64_t)1 << device);
	cow__mutex_unlock(&all_lock);
	return 0;
}

COW_EXPORT int
cow_cuda_stream_get(int device, cow_cuda_stream *ret)
{
	struct cow__cuda *d;
	int r = cow__cuda_get(device, &d);

	if (r < 0)
		return r;
	if (!ret)
		return cow__error(-EINVAL, "cow_cuda_stream_get: ret is NULL");
	*ret = cow__cuda_stream(d);
	return 0;
}

COW_EXPORT int
cow_cuda_stream_after(int device, cow_cuda_stream later, cow_cuda_stream first)
{
	struct cow__cu_event *mark = NULL;
	struct cow__cuda *d;
	int r = entered(device, &d);

	if (r < 0)
		return r;
	r = cow__cuda_mark(d, first, &mark);
	if (r == 0)
		r = cow__cuda_after(d, later, mark);
	cow__cuda_mark_free(d, mark);
	cow__cuda_leave(d);
	return r;
}

COW_EXPORT int
cow_cuda_stream_wait(int device, cow_cuda_stream stream)
{
	struct cow__cuda *d;
	int r = entered(device, &d);

	if (r < 0)
		return r;
	r = cow__cu_error(d->cu->stream_synchronize(stream),
	                  "waiting for a stream");
	cow__cuda_leave(d);
	return r;
}

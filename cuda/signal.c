/* SPDX-License-Identifier: MIT */
/*
 * Signals to other processes. See the header.
 */
#include "cuda/signal.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "cuda/stream.h"

struct sent {
	struct sent *next;
	struct cow__cuda *device;
	struct cow__cu_event *event;
	struct cow__cu_ipc_event name;
};

static struct cow__pool pool = { .object_bytes = sizeof(struct sent) };
static struct cow__mutex lock; /* the driver is called with it */
static struct sent *sent; /* events whose work may be under way */

/* Frees the events of this device that have passed. The others never leave the list, because
 * a thread that receives may look for them there. */
static void
sweep(struct cow__cuda *d)
{
	struct sent **at = &sent, *s;

	cow__mutex_lock(&lock);
	while ((s = *at) != NULL) {
		if (s->device != d || cow__cuda_passed(d, s->event) == 0) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		(void)d->cu->event_destroy(s->event);
		cow__pool_give(&pool, s);
	}
	cow__mutex_unlock(&lock);
}

static int
event_new(struct cow__cuda *d, struct cow__cu_stream *stream, struct sent *s)
{
	const struct cow__cu *cu = d->cu;
	int r;

	r = cow__cu_error(cu->event_create(&s->event,
	                                   COW_CU_EVENT_DISABLE_TIMING |
	                                           COW_CU_EVENT_INTERPROCESS),
	                  "making an event for other processes");
	if (r < 0)
		return r;
	r = cow__cu_error(cu->event_record(s->event, stream), "marking a stream");
	if (r == 0)
		r = cow__cu_error(cu->ipc_get_event(&s->name, s->event),
		                  "naming an event for other processes");
	if (r < 0)
		(void)cu->event_destroy(s->event);
	return r;
}

int
cow__cuda_signal(struct cow__cuda *d, struct cow__cu_stream *stream,
                 struct cow__wire_device *w)
{
	enum cow__cu_result result = d->cu->stream_query(stream);
	struct sent *s;
	int can = 0, r;

	if (result == COW_CU_SUCCESS)
		return 0;
	if (result != COW_CU_NOT_READY)
		return cow__cu_error(result, "work on the device");
	if (d->cu->ipc_get_event && d->cu->ipc_open_event)
		(void)d->cu->device_get_attribute(&can, COW_CU_IPC_EVENT,
		                                  d->handle);
	sweep(d);
	s = can ? cow__pool_take(&pool) : NULL;
	if (!s)
		return cow__cu_error(d->cu->stream_synchronize(stream),
		                     "work on the device");
	*s = (struct sent){ .device = d };
	r = event_new(d, stream, s);
	if (r < 0) {
		cow__pool_give(&pool, s);
		return r;
	}
	_Static_assert(sizeof(s->name) == sizeof(w->event), "the same bytes");
	memcpy(w->event, &s->name, sizeof(w->event));
	w->flags |= COW__WIRE_EVENT;
	cow__mutex_lock(&lock);
	s->next = sent;
	sent = s;
	cow__mutex_unlock(&lock);
	return 0;
}

/* An event that this process sent itself: the driver can't open such a name here. Locked. */
static struct sent *
find_sent(const struct cow__wire_device *w)
{
	struct sent *s = sent;

	while (s && memcmp(&s->name, w->event, sizeof(w->event)) != 0)
		s = s->next;
	return s;
}

int
cow__cuda_await_signal(struct cow__cuda *d, struct cow__cu_stream *stream,
                       const struct cow__wire_device *w)
{
	struct cow__cu_event *event;
	struct cow__cu_ipc_event name;
	enum cow__cu_result result = COW_CU_SUCCESS;
	struct sent *own;
	int r = 0;

	if (!(w->flags & COW__WIRE_EVENT))
		return 0;
	cow__mutex_lock(&lock);
	own = find_sent(w);
	if (own)
		result = d->cu->stream_wait_event(stream, own->event, 0);
	cow__mutex_unlock(&lock);
	if (own)
		return cow__cu_error(result, "ordering streams");
	if (!d->cu->ipc_open_event)
		return 0; /* then the sender had no events either */
	memcpy(&name, w->event, sizeof(name));
	result = d->cu->ipc_open_event(&event, name);
	if (result == COW_CU_OUT_OF_MEMORY)
		return cow__cu_error(result, "opening an event");
	if (result != COW_CU_SUCCESS)
		return 0; /* see the header */
	r = cow__cuda_after(d, stream, event);
	(void)d->cu->event_destroy(event);
	return r;
}

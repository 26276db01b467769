/* SPDX-License-Identifier: MIT */
/*
 * Work: late, and in any order that is allowed
 *
 * Each piece of work knows what must be done before it: the last work of its stream; what its
 * stream was told to wait for; between the default stream and the blocking ones, the last
 * work of each other. Work with nothing before it may run. Two threads pick from that at
 * random. No work begins before a random time is over, unless a call waits for it. So a
 * program that forgets to wait nearly always sees old bytes, not once in a thousand runs.
 *
 * A call that waits marks the work that it needs as `wanted`, with all that must be done
 * before. Other work stays late.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>
#include <time.h>

enum { WORKERS = 2 };

static struct ref_work *first, *last_work;

struct ref_work *ref_work_ref(struct ref_work *work)
{
	if (work)
		work->refs++;
	return work;
}

static void let_go(struct ref_work *work)
{
	while (work->afters)
		ref_work_unref(work->after[--work->afters]);
	free(work->after);
	work->after = NULL;
}

void ref_work_unref(struct ref_work *work)
{
	if (!work || --work->refs)
		return;
	let_go(work);
	free(work->data);
	free(work);
}

void ref_work_after(struct ref_work *work, struct ref_work *other)
{
	if (!other || other->done)
		return;
	work->after = realloc(work->after, (work->afters + 1) * sizeof(*work->after));
	if (!work->after)
		abort();
	work->after[work->afters++] = ref_work_ref(other);
}

struct ref_work *ref_work_new(struct cow__cu_context *context, struct cow__cu_stream *stream,
                              void (*run)(struct ref_work *), size_t data_bytes)
{
	struct ref_work *work = calloc(1, sizeof(*work));

	if (!work)
		abort();
	(void)context;
	work->stream = stream;
	work->context = stream->context;
	work->run = run;
	work->refs = 1;
	if (data_bytes && !(work->data = calloc(1, data_bytes)))
		abort();
	return work;
}

/* ---- Order --------------------------------------------------------------- */

static bool ready(struct ref_work *work)
{
	size_t i = 0;

	if (work->running || work->done)
		return false;
	while (i < work->afters)
		if (work->after[i]->done) {
			ref_work_unref(work->after[i]);
			work->after[i] = work->after[--work->afters];
		} else {
			i++;
		}
	return work->afters == 0 &&
	       (!work->foreign || ref_foreign_done(work->foreign, work->until));
}

static void want(struct ref_work *work)
{
	if (work->done || work->wanted)
		return;
	work->wanted = true;
	for (size_t i = 0; i < work->afters; i++)
		want(work->after[i]);
}

static void remove_from_list(struct ref_work *work)
{
	if (work->before)
		work->before->next = work->next;
	else
		first = work->next;
	if (work->next)
		work->next->before = work->before;
	else
		last_work = work->before;
	work->next = work->before = NULL;
}

/* One that may run now, or NULL; *ret_ns: when to look again. */
static struct ref_work *pick(uint64_t *ret_ns)
{
	struct ref_work *found = NULL;
	uint64_t now = ref_now_ns(), n = 0;

	*ret_ns = UINT64_MAX;
	for (struct ref_work *w = first; w; w = w->next) {
		bool hold = ref.settings[REF_HOLD] && !w->wanted;

		if (w->foreign && !w->running && !hold && now + 200000 < *ret_ns)
			*ret_ns = now + 200000; /* no call tells: ask again */
		if (hold || !ready(w))
			continue;
		if (!w->wanted && w->due_ns > now) {
			if (w->due_ns < *ret_ns)
				*ret_ns = w->due_ns;
			continue;
		}
		if (ref_random() % ++n == 0)
			found = w;
	}
	return found;
}

static void *work_on(void *unused)
{
	pthread_mutex_lock(&ref.lock);
	for (;;) {
		uint64_t until;
		struct ref_work *w = pick(&until);

		if (!w) {
			struct timespec t = { (time_t)(until / 1000000000),
				              (long)(until % 1000000000) };

			if (until == UINT64_MAX)
				pthread_cond_wait(&ref.changed, &ref.lock);
			else
				pthread_cond_timedwait(&ref.changed, &ref.lock, &t);
			continue;
		}
		w->running = true;
		pthread_mutex_unlock(&ref.lock);
		w->run(w);
		pthread_mutex_lock(&ref.lock);
		if (w->finish)
			w->finish(w);
		w->done = true;
		w->done_ns = ref_now_ns();
		remove_from_list(w);
		let_go(w);
		ref_work_unref(w);
		pthread_cond_broadcast(&ref.changed);
	}
	return unused;
}

void ref_submit(struct ref_work *work)
{
	static bool started;
	struct cow__cu_stream *stream = work->stream, *null = work->context->null;
	long delay = ref.settings[REF_DELAY_US];

	for (; !started; started = true)
		for (int i = 0; i < WORKERS; i++) {
			pthread_t thread;

			if (pthread_create(&thread, NULL, work_on, NULL))
				abort();
			pthread_detach(thread);
		}
	ref_work_after(work, stream->last);
	if (stream == null) {
		for (struct cow__cu_stream *s = ref_streams(); s; s = s->next)
			if (s->context == work->context && s->blocking)
				ref_work_after(work, s->last);
	} else if (stream->blocking) {
		ref_work_after(work, null->last);
	}
	/* A third begins at once: late is not the only mistake there is. */
	work->due_ns = ref_now_ns();
	if (delay > 0 && ref_random() % 3)
		work->due_ns += ref_random() % (uint64_t)delay * 1000;
	ref_work_unref(stream->last);
	stream->last = ref_work_ref(work);
	work->before = last_work;
	if (last_work)
		last_work->next = work;
	else
		first = work;
	last_work = work;
	pthread_cond_broadcast(&ref.changed);
}

/* ---- Waiting ------------------------------------------------------------- */

void ref_wait(struct ref_work *work)
{
	if (!work)
		return;
	ref_work_ref(work);
	want(work);
	pthread_cond_broadcast(&ref.changed);
	while (!work->done)
		pthread_cond_wait(&ref.changed, &ref.lock);
	ref_work_unref(work);
}

void ref_wait_context(struct cow__cu_context *context)
{
	for (;;) {
		struct ref_work *w = first;

		while (w && w->context != context)
			w = w->next;
		if (!w)
			return;
		ref_wait(w);
	}
}

void ref_nudge(void)
{
	uint64_t n = 0;
	struct ref_work *found = NULL;

	for (struct ref_work *w = first; w; w = w->next)
		if (ready(w) && ref_random() % ++n == 0)
			found = w;
	if (found && ref_random() % 4 == 0) {
		found->wanted = true;
		pthread_cond_broadcast(&ref.changed);
	}
}

static bool meets(const struct ref_range *r, const char *at, size_t bytes)
{
	return r->bytes && r->at < at + bytes && at < r->at + r->bytes;
}

struct ref_work *ref_pending_on(const void *at, size_t bytes)
{
	for (struct ref_work *w = first; w; w = w->next)
		if (meets(&w->touches[0], at, bytes) || meets(&w->touches[1], at, bytes))
			return w;
	return NULL;
}

struct ref_work *ref_pending_first(void)
{
	return first;
}

size_t ref_pending(void)
{
	size_t n = 0;

	for (struct ref_work *w = first; w; w = w->next)
		n++;
	return n;
}

/* SPDX-License-Identifier: MIT */
/*
 * Events
 *
 * An event is the last work that was recorded with it. A stream that was told to wait for it
 * waits for the work that it had at that time. An event that processes share is two numbers
 * in a page of a memfd: how often it was recorded, and how many of those recordings are
 * done. When a process has ended, all its recordings count as done.
 */
#include "tests/driver/ref.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ALIVE = 0x0e7e47, DEAD = 0xdeade7e, PAGE = 4096 };

struct cow__cu_event {
	uint32_t magic;
	unsigned flags;
	struct cow__cu_context *context;
	struct ref_work *last;
	struct ref_shared_event *shared;
	int fd;
	bool recorded, captured;
	struct cow__cu_event *next;
};

/* Destroyed ones too: using one is noticed. */
static struct cow__cu_event *all;

/* What a handle's bytes are. */
struct name {
	char magic[8];
	int pid, fd;
};

static bool gone(int pid)
{
	char path[40], text[256], *end;
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	end = strrchr(text, ')');
	return n <= 0 || (end && (end[2] == 'Z' || end[2] == 'X'));
}

bool ref_foreign_done(const struct ref_shared_event *e, uint64_t until)
{
	return __atomic_load_n(&e->done, __ATOMIC_ACQUIRE) >= until ||
	       gone(__atomic_load_n(&e->owner, __ATOMIC_RELAXED));
}

static enum cow__cu_result check(struct cow__cu_event *e)
{
	if (!e)
		return COW_CU_INVALID_HANDLE;
	if (e->magic != ALIVE)
		return ref_undefined(COW_CU_INVALID_HANDLE, "%p %s", (void *)e,
		                     e->magic == DEAD ? "is a destroyed event"
		                                      : "is no event");
	return COW_CU_SUCCESS;
}

#define EVENT(e)                                                               \
	ref_result = check(e);                                                 \
	if (ref_result != COW_CU_SUCCESS)                                      \
	return ref_result

static enum cow__cu_result make(struct cow__cu_context *context, unsigned flags,
                                struct cow__cu_event **ret)
{
	if (ref.events >= (size_t)ref.settings[REF_MAX_EVENTS])
		return COW_CU_OUT_OF_MEMORY;
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		abort();
	**ret = (struct cow__cu_event){ .magic = ALIVE, .flags = flags,
		                        .context = context, .fd = -1, .next = all };
	all = *ret;
	ref.events++;
	return COW_CU_SUCCESS;
}

static void share(struct cow__cu_event *e, int fd)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		abort();
	madvise(page, PAGE, MADV_DONTFORK);
	e->fd = fd;
	e->shared = page;
}

enum cow__cu_result cuEventCreate(struct cow__cu_event **ret, unsigned flags)
{
	ENTER_CONTEXT(event_create);

	if (!ret || flags & ~7u)
		return COW_CU_INVALID_VALUE;
	/* Those that processes share measure no time. */
	if (flags & COW_CU_EVENT_INTERPROCESS && !(flags & COW_CU_EVENT_DISABLE_TIMING))
		return COW_CU_INVALID_VALUE;
	ref_result = make(context, flags, ret);
	if (ref_result == COW_CU_SUCCESS && flags & COW_CU_EVENT_INTERPROCESS) {
		int fd = memfd_create("cowref-event", MFD_CLOEXEC);

		if (fd < 0 || ftruncate(fd, PAGE) < 0)
			abort();
		share(*ret, fd);
	}
	return ref_result;
}

enum cow__cu_result cuEventDestroy_v2(struct cow__cu_event *event)
{
	struct ref_work *w;
	ENTER_CONTEXT(event_destroy);

	EVENT(event);
	event->magic = DEAD;
	ref.events--;
	if (event->fd >= 0)
		close(event->fd);
	/* Work that looks at the page keeps it; then it is never given back. */
	for (w = ref_pending_first(); w && w->foreign != event->shared; w = w->next)
		;
	if (event->shared && !w && (!event->last || event->last->done))
		munmap(event->shared, PAGE);
	ref_work_unref(event->last);
	event->last = NULL;
	return COW_CU_SUCCESS;
}

struct recording {
	struct ref_shared_event *shared;
	uint64_t number;
};

static void nothing(struct ref_work *work)
{
	(void)work;
}

static void tell(struct ref_work *work)
{
	struct recording *r = work->data;

	if (r->shared && r->shared->done < r->number)
		__atomic_store_n(&r->shared->done, r->number, __ATOMIC_RELEASE);
}

enum cow__cu_result cuEventRecord(struct cow__cu_event *event, struct cow__cu_stream *stream)
{
	struct ref_work *work;
	struct recording *r;
	ENTER_CONTEXT(event_record);

	EVENT(event);
	ref_result = ref_stream(context, &stream);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	if (stream->context != event->context)
		return COW_CU_INVALID_HANDLE;
	event->captured = stream->capture != COW_CU_CAPTURE_NONE;
	if (event->captured && event->shared)
		return ref_unsafe_context(context);
	work = ref_work_new(context, stream, nothing, sizeof(struct recording));
	r = work->data;
	r->shared = event->shared;
	if (r->shared) {
		__atomic_store_n(&r->shared->owner, ref.pid, __ATOMIC_RELAXED);
		r->number = __atomic_add_fetch(&r->shared->recorded, 1, __ATOMIC_ACQ_REL);
	}
	work->finish = tell;
	ref_work_unref(event->last);
	event->last = ref_work_ref(work);
	event->recorded = true;
	ref_submit(work);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuStreamWaitEvent(struct cow__cu_stream *stream,
                                      struct cow__cu_event *event, unsigned flags)
{
	struct ref_work *work;
	ENTER_CONTEXT(stream_wait_event);

	EVENT(event);
	if (flags)
		return COW_CU_INVALID_VALUE;
	ref_result = ref_stream(context, &stream);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	if (event->recorded && event->captured != (stream->capture != COW_CU_CAPTURE_NONE)) {
		(void)ref_unsafe_context(context);
		return COW_CU_STREAM_CAPTURE_ISOLATION;
	}
	work = ref_work_new(context, stream, nothing, 0);
	ref_work_after(work, event->last);
	if (event->shared) {
		work->foreign = event->shared;
		work->until = __atomic_load_n(&event->shared->recorded, __ATOMIC_ACQUIRE);
	}
	ref_submit(work);
	return COW_CU_SUCCESS;
}

/* It is part of a graph. */
static enum cow__cu_result captured(struct cow__cu_context *context)
{
	(void)ref_unsafe_context(context);
	return COW_CU_CAPTURED_EVENT;
}

static bool done(struct cow__cu_event *e)
{
	return (!e->last || e->last->done) &&
	       (!e->shared || ref_foreign_done(e->shared, e->shared->recorded));
}

enum cow__cu_result cuEventQuery(struct cow__cu_event *event)
{
	ENTER_CONTEXT(event_query);

	EVENT(event);
	if (event->captured)
		return captured(context);
	if (done(event))
		return event->context->sticky;
	ref_nudge();
	return COW_CU_NOT_READY;
}

enum cow__cu_result cuEventSynchronize(struct cow__cu_event *event)
{
	ENTER_CONTEXT(event_synchronize);

	EVENT(event);
	if (event->captured)
		return captured(context);
	ref_wait(event->last);
	while (event->magic == ALIVE && !done(event)) {
		struct timespec t = { 0, 100000 };

		pthread_mutex_unlock(&ref.lock);
		nanosleep(&t, NULL);
		pthread_mutex_lock(&ref.lock);
	}
	return event->context->sticky;
}

enum cow__cu_result cuEventElapsedTime(float *ret_ms, struct cow__cu_event *start,
                                       struct cow__cu_event *end)
{
	ENTER_CONTEXT(event_elapsed_time);

	EVENT(start);
	EVENT(end);
	if (!ret_ms)
		return COW_CU_INVALID_VALUE;
	if ((start->flags | end->flags) & COW_CU_EVENT_DISABLE_TIMING || !start->recorded ||
	    !end->recorded)
		return COW_CU_INVALID_HANDLE;
	if (!start->last->done || !end->last->done)
		return COW_CU_NOT_READY;
	*ret_ms = (float)((double)(int64_t)(end->last->done_ns - start->last->done_ns) / 1e6);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuIpcGetEventHandle(struct cow__cu_ipc_event *ret,
                                        struct cow__cu_event *event)
{
	struct name name = { "cowref-", ref.pid, 0 };
	ENTER_CONTEXT(ipc_get_event);

	EVENT(event);
	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!event->shared)
		return COW_CU_INVALID_HANDLE;
	name.fd = event->fd;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &name, sizeof(name));
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuIpcOpenEventHandle(struct cow__cu_event **ret,
                                         struct cow__cu_ipc_event handle)
{
	char path[64], target[64] = "";
	struct name name;
	int fd;
	ENTER_CONTEXT(ipc_open_event);

	memcpy(&name, &handle, sizeof(name));
	if (!ret || memcmp(name.magic, "cowref-", 8) != 0)
		return COW_CU_INVALID_VALUE;
	if (name.pid == ref.pid)
		return COW_CU_INVALID_CONTEXT; /* not in the process that made it */
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", name.pid, name.fd);
	if (readlink(path, target, sizeof(target) - 1) < 0 ||
	    strncmp(target, "/memfd:cowref-event", 19) != 0)
		return COW_CU_INVALID_HANDLE;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return COW_CU_MAP_FAILED;
	ref_result = make(context, COW_CU_EVENT_DISABLE_TIMING | COW_CU_EVENT_INTERPROCESS, ret);
	if (ref_result == COW_CU_SUCCESS)
		share(*ret, fd);
	else
		close(fd);
	return ref_result;
}

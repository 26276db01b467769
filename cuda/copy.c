/* SPDX-License-Identifier: MIT */
/*
 * Copies of CUDA devices (docs/design/cuda.md has the reasons)
 *
 *                  pinned                      pageable
 *   to a device    one asynchronous copy       the ring; small ones by the driver
 *   to the host    one asynchronous copy       the ring; small ones by the driver, which
 *                                              waits
 *   within         one asynchronous copy on the current stream
 *   two devices    on the source's stream, between two marks: it comes behind the
 *                  destination's stream, which then waits for it
 *
 * A copy from or to the host waits for its stream, unless it may be left unfinished. Copies
 * on devices come in the order of their streams, and no thread waits.
 */
#include "cuda/copy.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "cuda/kernels.h"
#include "cuda/piece.h"
#include "cuda/pinned.h"
#include "cuda/poison.h"
#include "cuda/ring.h"
#include "cuda/stream.h"

/* Up to this size the driver's own buffers are as fast as ours, with fewer calls. */
#define SMALL (64 * KIB)

static int
enter_device(struct cow_device device, struct cow__cuda **ret)
{
	int r = cow__cuda_get(device.index, ret);

	return r < 0 ? r : cow__cuda_enter(*ret);
}

/* Lets the sentence about the driver's error stand, so that the program gets it. */
static int
said(int r)
{
	if (r < 0 && r != -ENOTSUP)
		cow__error_stands();
	return r;
}

/* ---- Host memory ----------------------------------------------------------------- */

/* The driver's number for a piece of pinned memory; 0: not pinned. */
static unsigned long long
pinned_piece(struct cow__cuda *d, const void *at)
{
	unsigned long long piece = 0;
	unsigned type = 0;

	if (d->cu->pointer_get_attribute(&type, COW_CU_POINTER_MEMORY_TYPE,
	                                 (uintptr_t)at) != COW_CU_SUCCESS ||
	    type != COW_CU_MEMORY_HOST ||
	    d->cu->pointer_get_attribute(&piece, COW_CU_POINTER_BUFFER_ID,
	                                 (uintptr_t)at) != COW_CU_SUCCESS)
		return 0;
	return piece;
}

/* Does all of it lie in one pinned piece? A copy must not cross from one piece to another. */
static bool
is_pinned(struct cow__cuda *d, const void *host, size_t bytes)
{
	unsigned long long piece = pinned_piece(d, host);

	return piece && piece == pinned_piece(d, (const char *)host + bytes - 1);
}

static int
recorded(void)
{
	return cow__error(-EBUSY,
	                  "a copy that a stream records into a graph can't be waited for: "
	                  "use cow_tensor_copy() with COW_COPY_NON_BLOCKING");
}

/* May this copy be part of a graph? */
static int
capture_check(struct cow__cuda *d, struct cow__cu_stream *stream, bool pinned,
              uint32_t flags)
{
	if (cow__likely(!cow__cuda_capturing(d, stream)))
		return 0;
	if (!stream || stream == COW_CU_STREAM_LEGACY)
		return cow__cuda_usable(d, stream);
	if (!pinned)
		return cow__error(-EBUSY,
		                  "a stream that records a graph can't copy pageable "
		                  "host memory: use cow_cuda_pinned_new() for it");
	if (!(flags & COW_COPY_NON_BLOCKING))
		return cow__error(-EBUSY,
		                  "a stream that records a graph can't be waited for: "
		                  "copy with COW_COPY_NON_BLOCKING");
	if (flags & COW_COPY_MARKED)
		return recorded();
	return 0;
}

static int
wait_for(struct cow__cuda *d, struct cow__cu_stream *stream)
{
	return cow__cu_error(d->cu->stream_synchronize(stream),
	                     "waiting for a copy");
}

/* Notes that pinned memory is in use until the copy has run. If that can't be noted, waits
 * for the copy. */
static int
in_use(struct cow__cuda *d, struct cow__cu_stream *stream, const void *host)
{
	return cow__cuda_pinned_used(host, d, stream) < 0 ? wait_for(d, stream) : 0;
}

/* Enters the device, unless the copy can't be part of a graph that its stream records.
 * On success the caller leaves. */
static int
host_begin(struct cow_device device, const void *host, size_t bytes,
           uint32_t flags, struct cow__cuda **ret,
           struct cow__cu_stream **ret_stream, bool *ret_pinned)
{
	int r = enter_device(device, ret);

	if (r < 0)
		return r;
	*ret_stream = cow__cuda_stream(*ret);
	*ret_pinned = is_pinned(*ret, host, bytes);
	r = capture_check(*ret, *ret_stream, *ret_pinned, flags);
	if (r < 0)
		cow__cuda_leave(*ret);
	return r;
}

static int
from_host(void *user, struct cow_device device, void *to, const void *host,
          size_t bytes, uint32_t flags)
{
	bool waits = !(flags & COW_COPY_NON_BLOCKING), pinned;
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r;

	(void)user;
	if (bytes == 0)
		return 0;
	r = host_begin(device, host, bytes, flags, &d, &stream, &pinned);
	if (r < 0)
		return said(r);
	if (pinned || (waits && bytes <= SMALL))
		r = cow__cu_error(d->cu->copy_to_device((uintptr_t)to, host,
		                                        bytes, stream),
		                  "copying to a device");
	else
		r = cow__cuda_ring_to(d, stream, (uintptr_t)to, host, bytes);
	if (r == 0 && waits) {
		r = wait_for(d, stream);
	} else if (r == 0 && pinned) {
		r = in_use(d, stream, host);
		if (r == 0 && (flags & COW_COPY_MARKED))
			cow__cuda_poison_reads(host, bytes);
	}
	cow__cuda_leave(d);
	return said(r);
}

static int
to_host(void *user, struct cow_device device, void *host, const void *from,
        size_t bytes, uint32_t flags)
{
	bool waits = !(flags & COW_COPY_NON_BLOCKING), pinned;
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r;

	(void)user;
	if (bytes == 0)
		return 0;
	r = host_begin(device, host, bytes, flags, &d, &stream, &pinned);
	if (r < 0)
		return said(r);
	if (pinned && !waits)
		r = cow__cuda_poison_fills(d, stream, host, bytes);
	if (r == 0 && (pinned || bytes <= SMALL)) {
		/* For memory that is not pinned the driver waits by itself. */
		r = cow__cu_error(d->cu->copy_to_host(host, (uintptr_t)from,
		                                      bytes, stream),
		                  "copying from a device");
		if (r == 0 && pinned && waits)
			r = wait_for(d, stream);
		else if (r == 0 && pinned)
			r = in_use(d, stream, host);
	} else if (r == 0) {
		r = cow__cuda_ring_from(d, stream, host, (uintptr_t)from, bytes);
	}
	cow__cuda_leave(d);
	return said(r);
}

/* ---- Devices ------------------------------------------------------------------------- */

/* May a copy on devices be queued on the stream? A copy that a mark follows can't be part of a
 * graph, nor can one of several steps, whose temporary is freed afterwards. */
static int
may_queue(struct cow__cuda *d, struct cow__cu_stream *stream, uint32_t flags)
{
	int r = cow__cuda_usable(d, stream);

	if (r == 0 && flags & COW_COPY_MARKED && cow__cuda_capturing(d, stream))
		r = cow__error(-EBUSY,
		               "a graph can't have this copy: it is waited for, or "
		               "needs temporary memory");
	return r;
}

/* A mark behind the device's current stream; the caller frees it. `recording`: the other
 * device's stream records a graph. One graph may have both streams, but a mark of a stream
 * that does not record would break it. */
static int
mark_of(struct cow__cuda *d, uint32_t flags, bool recording,
        struct cow__cu_event **ret)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	int r = cow__cuda_enter(d);

	if (r < 0)
		return r;
	r = may_queue(d, stream, flags);
	if (r == 0 && cow__cuda_capturing(d, stream) != recording)
		r = cow__error(-EBUSY, "a copy between two devices, and the stream of "
		                       "only one of them records a graph");
	if (r == 0)
		r = cow__cuda_mark(d, stream, ret);
	cow__cuda_leave(d);
	return r;
}

static int
stream_after(struct cow__cuda *d, struct cow__cu_event *mark)
{
	int r = cow__cuda_enter(d);

	if (r < 0)
		return r;
	r = cow__cuda_after(d, cow__cuda_stream(d), mark);
	cow__cuda_leave(d);
	return r;
}

/* The source is entered. If the devices don't reach each other, the driver finds a way. */
static int
send(struct cow__cuda *d, cow__cu_ptr to, struct cow__cuda *e, cow__cu_ptr from,
     size_t bytes, struct cow__cu_event *behind, struct cow__cu_event **ret)
{
	struct cow__cu_stream *stream = cow__cuda_stream(e);
	int r = cow__cuda_after(e, stream, behind);

	if (r < 0)
		return r;
	if (e->peers >> d->index & 1) {
		r = cow__cuda_reach(e, d);
		if (r < 0)
			return r;
	}
	r = cow__cu_error(d->cu->copy_peer(to, d->context, from, e->context,
	                                   bytes, stream),
	                  "copying between devices");
	if (r < 0)
		return r;
	r = cow__cuda_mark(e, stream, ret);
	/* Without a mark the destination could not wait for the copy, so wait here. */
	if (r < 0)
		(void)e->cu->stream_synchronize(stream);
	return r;
}

static int
between(struct cow__cuda *d, cow__cu_ptr to, struct cow__cuda *e,
        cow__cu_ptr from, size_t bytes, uint32_t flags)
{
	struct cow__cu_event *ready = NULL, *sent = NULL;
	int r = cow__cuda_enter(e);

	if (r < 0)
		return r;
	r = may_queue(e, cow__cuda_stream(e), flags);
	if (r == 0)
		r = mark_of(d, flags, cow__cuda_capturing(e, cow__cuda_stream(e)),
		            &ready);
	if (r == 0)
		r = send(d, to, e, from, bytes, ready, &sent);
	if (r == 0) {
		r = stream_after(d, sent);
		if (r < 0)
			(void)e->cu->event_synchronize(sent);
	}
	cow__cuda_mark_free(e, sent);
	cow__cuda_leave(e);
	cow__cuda_mark_free(d, ready);
	return r;
}

static int
within(void *user, struct cow_device to_device, void *to,
       struct cow_device from_device, const void *from, size_t bytes,
       uint32_t flags)
{
	struct cow__cu_stream *stream;
	struct cow__cuda *d, *e;
	int r;

	(void)user;
	r = cow__cuda_get(to_device.index, &d);
	if (r == 0)
		r = cow__cuda_get(from_device.index, &e);
	if (r < 0 || bytes == 0)
		return said(r);
	if (d != e)
		return said(between(d, (uintptr_t)to, e, (uintptr_t)from, bytes,
		                    flags));
	r = cow__cuda_enter(d);
	if (r < 0)
		return said(r);
	stream = cow__cuda_stream(d);
	r = may_queue(d, stream, flags);
	if (r == 0)
		r = cow__cu_error(d->cu->copy_within((uintptr_t)to,
		                                     (uintptr_t)from, bytes,
		                                     stream),
		                  "copying within a device");
	cow__cuda_leave(d);
	return said(r);
}

static int
strided(void *user, struct cow_device device, int dims, const int64_t *sizes,
        void *to, enum cow_dtype to_dtype, const int64_t *to_strides,
        const void *from, enum cow_dtype from_dtype, const int64_t *from_strides,
        bool conj, bool neg, uint32_t flags)
{
	struct cow__strided job = {
		.dims = dims,
		.to = { .data = to, .dtype = to_dtype },
		.from = { .data = (char *)(uintptr_t)from, .dtype = from_dtype },
		.conj = conj,
		.neg = neg,
	};
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r;

	(void)user;
	for (int i = 0; i < dims; i++) {
		job.sizes[i] = sizes[i];
		job.to.strides[i] = to_strides[i] *
		                    (int64_t)cow_dtype_bytes(to_dtype);
		job.from.strides[i] = from_strides[i] *
		                      (int64_t)cow_dtype_bytes(from_dtype);
	}
	r = enter_device(device, &d);
	if (r < 0)
		return said(r);
	stream = cow__cuda_stream(d);
	r = may_queue(d, stream, flags);
	if (r == 0)
		r = cow__cuda_strided(d, stream, &job);
	cow__cuda_leave(d);
	return said(r);
}

/* ---- Marks ------------------------------------------------------------------------------- */

static int
mark_stream(void *user, struct cow_device device, void **ret)
{
	struct cow__cuda_watch *w = NULL;
	struct cow__cu_event *e = NULL;
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r = enter_device(device, &d);

	(void)user;
	if (r < 0)
		return r;
	stream = cow__cuda_stream(d);
	if (cow__cuda_capturing(d, stream)) {
		r = recorded();
		goto leave;
	}
	r = cow__cuda_mark(d, stream, &e);
	w = r == 0 ? cow__cuda_watch_new(e) : NULL;
	if (r == 0 && !w) {
		cow__cuda_mark_free(d, e);
		r = cow__error(-ENOMEM, "no memory for a mark");
	}
	if (r < 0) {
		(void)d->cu->stream_synchronize(stream);
		cow__cuda_poison_reads(NULL, 0);
	} else {
		*ret = w;
	}
leave:
	cow__cuda_leave(d);
	return r;
}

static int
passed(void *user, struct cow_device device, void *mark_)
{
	struct cow__cuda_watch *w = mark_;
	struct cow__cuda *d;
	int r = enter_device(device, &d), s;

	(void)user;
	if (r < 0)
		return r;
	r = cow__cuda_passed(d, w->mark);
	cow__cuda_leave(d);
	s = r == 1 ? cow__cuda_watch_check(w) : 0;
	return s < 0 ? s : r;
}

static int
await(void *user, struct cow_device device, void *mark_)
{
	struct cow__cuda_watch *w = mark_;
	struct cow__cuda *d;
	int r = enter_device(device, &d);

	(void)user;
	if (r < 0)
		return r;
	r = cow__cuda_await(d, w->mark);
	cow__cuda_leave(d);
	return r < 0 ? r : cow__cuda_watch_check(w);
}

static void
mark_free(void *user, struct cow_device device, void *mark_)
{
	struct cow__cuda_watch *w = mark_;
	struct cow__cuda *d;

	(void)user;
	if (cow__cuda_get(device.index, &d) == 0)
		cow__cuda_mark_free(d, w->mark);
	cow__cuda_watch_free(w);
}

/* The current device, as the CUDA runtime has it: by the thread's context. */
static int
current(void *user)
{
	const struct cow__cu *cu;
	cow__cu_device handle;
	struct cow__cuda *d;

	(void)user;
	if (cow__cu_start(&cu) < 0 || cu->ctx_get_device(&handle) != COW_CU_SUCCESS)
		return 0;
	for (int i = 0; i < cow_cuda_count(); i++)
		if (cow__cuda_get(i, &d) == 0 && d->handle == handle)
			return i;
	return 0;
}

static int
host_new(void *user, struct cow_device device, size_t bytes, struct cow_storage **ret)
{
	(void)user;
	(void)device; /* all devices reach it */
	return cow_cuda_pinned_new(bytes, ret);
}

const struct cow_device_ops cow__cuda_ops = {
	.size = sizeof(cow__cuda_ops),
	.name = "CUDA",
	.from_host = from_host,
	.to_host = to_host,
	.within = within,
	.strided = strided,
	.mark = mark_stream,
	.passed = passed,
	.await = await,
	.mark_free = mark_free,
	.current = current,
	.host_new = host_new,
};

/* SPDX-License-Identifier: MIT */
/*
 * Copies of ordinary host memory, through two pinned buffers. See the header.
 *
 * Each buffer has a mark behind its last use by a device, on any stream. A copy that takes the
 * buffer waits for that mark first, also after a failure.
 */
#include "cuda/ring.h"
#include "core/base/base.h"
#include "cuda/stream.h"
#include "tensor/strided.h"

#include <pthread.h>

#define BUFFER_BYTES (4 * MIB)

struct ring {
	pthread_mutex_t lock;
	unsigned next;
	struct {
		char *at;
		struct cow__cu_event *mark;
	} buffers[2];
};

static struct ring rings[COW_DEVICE_INDEXES] = {
	[0 ... COW_DEVICE_INDEXES - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

/* Uses all threads that copies may use, because one thread is slower than a device. */
static void
move(void *to, const void *from, size_t bytes)
{
	struct cow__strided job = {
		.dims = 1,
		.sizes = { (int64_t)bytes },
		.to = { to, COW_UINT8, { 1 } },
		.from = { (char *)(uintptr_t)from, COW_UINT8, { 1 } },
	};

	cow__strided_copy(&job);
}

/* Takes the next buffer, when no device uses it any more. */
static int
take_buffer(struct cow__cuda *d, struct ring *ring, unsigned *ret)
{
	unsigned b = ring->next;
	void *at;
	int r;

	if (!ring->buffers[b].at) {
		r = cow__cu_error(d->cu->host_alloc(&at, BUFFER_BYTES,
		                                    COW_CU_HOST_PORTABLE),
		                  "making a pinned buffer");
		if (r < 0)
			return r;
		ring->buffers[b].at = at;
	}
	r = cow__cuda_await(d, ring->buffers[b].mark);
	if (r < 0)
		return r;
	cow__cuda_mark_free(d, ring->buffers[b].mark);
	ring->buffers[b].mark = NULL;
	ring->next ^= 1;
	*ret = b;
	return 0;
}

/* Makes a mark behind the work that was queued with the buffer. If there is none, the buffer's
 * next user could not wait for it, so this waits. */
static int
used(struct cow__cuda *d, struct cow__cu_stream *stream, struct ring *ring,
     unsigned b)
{
	int r = cow__cuda_mark(d, stream, &ring->buffers[b].mark);

	if (r < 0)
		(void)d->cu->stream_synchronize(stream);
	return r;
}

int
cow__cuda_ring_to(struct cow__cuda *d, struct cow__cu_stream *stream,
                  cow__cu_ptr to, const void *host, size_t bytes)
{
	struct ring *ring = &rings[d->index];
	const char *from = host;
	int r = 0;

	pthread_mutex_lock(&ring->lock);
	for (size_t n; r == 0 && bytes > 0; bytes -= n, to += n, from += n) {
		unsigned b;

		n = cow__min(bytes, BUFFER_BYTES);
		r = take_buffer(d, ring, &b);
		if (r < 0)
			break;
		move(ring->buffers[b].at, from, n);
		r = cow__cu_error(d->cu->copy_to_device(to, ring->buffers[b].at,
		                                        n, stream),
		                  "copying to a device");
		if (r == 0)
			r = used(d, stream, ring, b);
	}
	pthread_mutex_unlock(&ring->lock);
	return r;
}

/* Copies what the device has put into a buffer to host memory. */
static int
collect(struct cow__cuda *d, struct ring *ring, unsigned b, char *to, size_t n)
{
	int r = cow__cuda_await(d, ring->buffers[b].mark);

	if (r == 0)
		move(to, ring->buffers[b].at, n);
	return r;
}

int
cow__cuda_ring_from(struct cow__cuda *d, struct cow__cu_stream *stream,
                    void *host, cow__cu_ptr from, size_t bytes)
{
	struct ring *ring = &rings[d->index];
	struct {
		unsigned buffer;
		size_t bytes;
	} before = { 0, 0 };
	char *to = host;
	int r = 0;

	pthread_mutex_lock(&ring->lock);
	while (r == 0 && (bytes > 0 || before.bytes > 0)) {
		size_t n = cow__min(bytes, BUFFER_BYTES);
		unsigned b = 0;

		/* The device fills one buffer while the host reads the other. */
		if (n > 0) {
			r = take_buffer(d, ring, &b);
			if (r == 0)
				r = cow__cu_error(
				        d->cu->copy_to_host(ring->buffers[b].at,
				                            from, n, stream),
				        "copying from a device");
			if (r == 0)
				r = used(d, stream, ring, b);
		}
		if (r == 0 && before.bytes > 0) {
			r = collect(d, ring, before.buffer, to, before.bytes);
			to += before.bytes;
		}
		before.buffer = b;
		before.bytes = n;
		from += n;
		bytes -= n;
	}
	pthread_mutex_unlock(&ring->lock);
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Device storages in messages: receiving
 *
 * Everything in a message is checked. The device must be one of ours. The sizes must fit each
 * other, the device, and the number of descriptors. Each descriptor must be one of the
 * driver's, of that device, and of the size that the message says: a piece is mapped whole
 * or not at all.
 */
#include "core/base/error.h"
#include "cuda/data.h"
#include "cuda/parcel.h"
#include "cuda/signal.h"
#include "cuda/stream.h"
#include "memfd/descriptor.h"
#include "memfd/socket.h"

/* More than a process has addresses. */
#define BYTES_MOST ((uint64_t)1 << 47)

/* Translates the driver's error about what came. A shortage is ours; any other error means
 * that the sender sent something wrong. */
static int
theirs(int r)
{
	return r == 0 || r == -ENOMEM || r == -EMFILE || r == -ECHILD
	               ? r
	               : cow__error(-EBADMSG, "a descriptor that came is not memory of "
	                                      "the device that its message names");
}

static int
device_of(const struct cow__wire_device *w, struct cow__cuda **ret)
{
	struct cow__cu_uuid uuid;
	int r = -ENODEV;

	for (int i = 0; i < cow_cuda_count(); i++) {
		r = cow__cuda_get(i, ret);
		if (r < 0)
			return r;
		if ((*ret)->cu->device_get_uuid &&
		    (*ret)->cu->device_get_uuid(&uuid, (*ret)->handle) ==
		            COW_CU_SUCCESS &&
		    memcmp(uuid.bytes, w->uuid, sizeof(w->uuid)) == 0)
			return 0;
	}
	return -ENODEV;
}

static bool
is_sound(const struct cow__wire_device *w, uint64_t bytes, const struct cow__cuda *d)
{
	return !(w->flags & ~(uint32_t)COW__WIRE_EVENT) && w->pieces &&
	       w->piece_bytes && d->granule && w->piece_bytes % d->granule == 0 &&
	       w->piece_bytes <= BYTES_MOST / w->pieces &&
	       (uint64_t)w->pieces * w->piece_bytes <=
	               cow__round_up(d->total_bytes, d->granule) &&
	       bytes <= w->pieces * w->piece_bytes &&
	       bytes > (w->pieces - 1) * w->piece_bytes;
}

/* Imports one piece and maps it at its place. */
static int
open_piece(struct cow__cuda_data *data, size_t i, int fd, bool exposed)
{
	struct cow__cuda *d = data->device;
	struct cow__cuda_piece *p;
	struct cow__cu_prop prop;
	int r = cow__cuda_piece_import(d, fd, data->piece_bytes, &p);

	if (r < 0)
		return r;
	p->exposed = exposed;
	if (d->cu->mem_get_prop &&
	    (d->cu->mem_get_prop(&prop, p->handle) != COW_CU_SUCCESS ||
	     prop.location.type != COW_CU_LOCATION_DEVICE ||
	     prop.location.id != d->handle))
		r = -EBADMSG;
	if (r == 0)
		r = cow__cuda_data_map(data, i, p);
	if (r < 0)
		cow__cuda_piece_unref(p);
	return r;
}

/* Opens all pieces of a socket's queue. Packets before the last one are taken out of the
 * queue, so after a shortage they can't be tried again. */
static int
open_bundle(struct cow__cuda_data *data, int socket, bool exposed)
{
	int fds[COW__WIRE_BUNDLE], r = 0;
	unsigned n;
	char byte;

	if (cow__socket_kind(socket) != 0)
		return -EBADMSG;
	for (size_t i = 0; i < data->count;) {
		size_t want = cow__min(data->count - i, COW__WIRE_BUNDLE);
		long got = cow__socket_look_now(socket, &byte, 1, fds,
		                                COW__WIRE_BUNDLE, &n);

		if (got < 0)
			return got == -EMFILE && i ? -ESTALE
			       : got == -EMFILE    ? -EMFILE
			                           : -EBADMSG;
		if (n > COW__WIRE_BUNDLE)
			return -EBADMSG;
		if (got != 1 || n != want)
			r = -EBADMSG;
		for (unsigned k = 0; r == 0 && k < n; k++)
			r = open_piece(data, i + k, fds[k], exposed);
		cow__socket_drop(fds, n);
		if (r < 0)
			return r == -ENOMEM && i ? -ESTALE : r;
		i += n;
		if (i < data->count)
			(void)cow__socket_take(socket, &byte, 1);
	}
	return 0;
}

static int
receive_entered(struct cow__cuda *d, const struct cow__wire_device *w,
                uint64_t bytes, enum cow_share_mode mode,
                const struct cow__id *scope, bool trusted, int fd,
                struct cow_storage **ret)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	bool clone = mode == COW_SHARE_CLONE;
	struct cow__cuda_data *data;
	struct cow_storage *s, *copy;
	int r;

	/* A graph can't wait for another process. */
	if (cow__cuda_capturing(d, stream))
		return -EBUSY;
	r = cow__cuda_data_new(d, stream, w->piece_bytes, w->pieces, &data);
	if (r < 0)
		return r;
	data->alias = !clone;
	r = w->pieces == 1 ? open_piece(data, 0, fd, clone)
	                   : open_bundle(data, fd, clone);
	if (r == 0)
		r = cow__cuda_await_signal(d, stream, w);
	if (r == 0)
		r = cow__cuda_data_storage(data, bytes, &s);
	if (r < 0) {
		cow__cuda_data_leave(data);
		return r == -ESTALE ? r : theirs(r);
	}
	if (clone && !trusted) {
		r = cow__cuda_parcel_copy(s, d,
		                          w->pieces > 1 ? w->piece_bytes : 0, &copy);
		(void)cow_storage_unref(s);
		if (r < 0)
			return r;
		s = copy;
	} else if (!clone && w->id.a && scope) {
		cow__cuda_data_name(data, &w->id, scope, s);
	}
	*ret = s;
	return 0;
}

/* An alias that this process already has. The current stream waits for what the sender queued
 * before it sent the alias again, as at the first time. */
static int
receive_again(struct cow__cuda *d, const struct cow__wire_device *w)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	int r = cow__cuda_enter(d);

	if (r < 0)
		return r;
	r = cow__cuda_capturing(d, stream)
	            ? -EBUSY
	            : theirs(cow__cuda_await_signal(d, stream, w));
	cow__cuda_leave(d);
	return r;
}

int
cow__cuda_parcel_receive(const struct cow__wire_device *w, uint64_t bytes,
                         enum cow_share_mode mode, const struct cow__id *scope,
                         bool trusted, int fd, struct cow_storage **ret)
{
	struct cow_storage *known;
	struct cow__cuda *d;
	int r = device_of(w, &d);

	if (r < 0)
		return r;
	if (bytes == 0)
		return w->pieces || w->piece_bytes || w->flags
		               ? -EBADMSG
		               : cow_cuda_storage_new(d->index, 0, NULL, ret);
	if (!is_sound(w, bytes, d))
		return -EBADMSG;
	if (!d->can_share)
		return -ENODEV;
	if (mode == COW_SHARE_ALIAS && w->id.a) {
		known = cow__cuda_data_named(&w->id, scope);
		if (known) {
			r = known->bytes == bytes ? receive_again(d, w)
			                          : -EBADMSG;
			if (r < 0)
				(void)cow_storage_unref(known);
			else
				*ret = known;
			return r;
		}
	}
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = receive_entered(d, w, bytes, mode, scope, trusted, fd, ret);
	cow__cuda_leave(d);
	return r;
}

/* The device of a descriptor: the driver tells it when the descriptor is imported. */
static int
find_device(int fd, struct cow__cuda **ret)
{
	for (int i = 0; i < cow_cuda_count(); i++) {
		struct cow__cu_prop prop;
		struct cow__cuda_piece *p;
		int r = cow__cuda_get(i, ret);

		if (r < 0 || !(*ret)->can_share || !(*ret)->cu->mem_get_prop ||
		    (r = cow__cuda_enter(*ret)) < 0)
			return r < 0 ? r : -EOPNOTSUPP;
		r = cow__cuda_piece_import(*ret, fd, 0, &p);
		if (r == 0) {
			bool here = (*ret)->cu->mem_get_prop(&prop, p->handle) ==
			                    COW_CU_SUCCESS &&
			            prop.location.id == (*ret)->handle;

			cow__cuda_piece_unref(p);
			r = here ? 0 : -ENODEV;
		}
		cow__cuda_leave(*ret);
		if (r == 0)
			return 0;
	}
	return -EBADMSG;
}

int
cow__cuda_parcel_import(int fd, uint64_t offset, uint64_t bytes, enum cow_share_mode mode,
              struct cow_storage **ret)
{
	struct cow__wire_device w = { .pieces = 1 };
	struct cow__cuda *d;
	int r;

	if (offset || mode == COW_SHARE_SEALED)
		return -EBADMSG;
	r = find_device(fd, &d);
	if (r < 0)
		return r;
	w.piece_bytes = cow__round_up(bytes, d->granule);
	if (!is_sound(&w, bytes, d))
		return -EBADMSG;
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = receive_entered(d, &w, bytes, mode, NULL, false, fd, ret);
	cow__cuda_leave(d);
	return r;
}

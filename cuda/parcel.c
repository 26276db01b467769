/* SPDX-License-Identifier: MIT */
/*
 * Device storages in messages: sending
 *
 * A message carries pieces, with a descriptor each. Cached memory shares its physical memory
 * with other storages, so it is copied to a piece of its own first, whose rest is zeros: a
 * process that maps a piece sees all of it.
 *
 *   alias   the storage gets pieces of its own, and both sides write them
 *   clone   the pieces become `exposed`: no process writes them in place any more.
 *           Processes do not count each other, so none finds that it is the last, and
 *           there may be one copy too many. The driver frees the memory with its last
 *           mapping and descriptor.
 *           Each process that has a piece can write it. So a peer that is not trusted
 *           gets a copy, and a receiver that does not trust the sender makes one
 *   sealed  not possible: a process that maps a piece can write it
 *
 * A storage of zero bytes has no piece. The message only says which device it is on.
 */
#include "cuda/parcel.h"
#include "core/base/error.h"
#include "cuda/data.h"
#include "cuda/memory.h"
#include "cuda/pinned.h"
#include "cuda/signal.h"
#include "cuda/stream.h"
#include "memfd/descriptor.h"
#include "memfd/process.h"
#include "memfd/socket.h"

void
cow__cuda_close(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct cow__descriptor d = cow__descriptor_of(fds[i]);

		cow__descriptor_close(&d);
	}
}

/* ---- Sending -------------------------------------------------------------------- */

int
cow__cuda_parcel_copy(struct cow_storage *s, struct cow__cuda *d,
                      size_t piece_bytes, struct cow_storage **ret)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	struct cow__cuda_data *from = NULL;
	struct cow_storage *c = NULL;
	int r = 0;

	if (s->data->ops == &cow__cuda_data_ops)
		r = cow__cuda_data_get(s->data, &from);
	if (from)
		r = cow__cuda_data_order(from, stream);
	if (r == 0)
		r = cow__cuda_data_fresh(d, s->bytes, piece_bytes, false, &c);
	if (r < 0)
		return r;
	r = cow__cu_error(d->cu->copy_within((uintptr_t)c->data->data,
	                                     (uintptr_t)s->data->data, s->bytes,
	                                     stream),
	                  "copying what is sent");
	if (r == 0 && from)
		r = cow__cuda_data_use(from, stream);
	if (r < 0) {
		(void)cow_storage_unref(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* The storage moves to the copy's memory. */
static void
move_to_copy(struct cow_storage *s, struct cow_storage *copy)
{
	struct cow__allocation *a = s->data;

	s->data = copy->data;
	copy->data = a;
}

/* Maps memory of one piece, which the allocator made, at other addresses, where it is data.
 * *ret false: it is no such memory, or the storage has not got it alone. */
static int
adopt_piece(struct cow_storage *s, struct cow__cuda *d, bool *ret)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	struct cow__cuda_data *from = cow__cuda_data_of(s), *data;
	struct cow__cuda_block *b = cow__cuda_block_of(s);
	struct cow__cuda_piece *p = b ? cow__cuda_block_piece(b) : NULL;
	struct cow_storage *c = NULL;
	int r;

	*ret = false;
	if (!p || cow__transparent(s) || s->data->kind != COW__AT_FOREIGN ||
	    __atomic_load_n(&s->data->refs, __ATOMIC_ACQUIRE) > 1)
		return 0;
	r = from ? cow__cuda_data_order(from, stream) : 0;
	if (r == 0)
		r = cow__cuda_data_new(d, stream, p->bytes, 1, &data);
	if (r < 0)
		return r;
	(void)cow__cuda_piece_ref(p);
	r = cow__cuda_data_use_owner(data, b);
	if (r == 0)
		r = cow__cuda_data_map(data, 0, p);
	if (r == 0)
		r = cow__cuda_data_clear(data, s->bytes, false);
	if (r == 0)
		r = cow__cuda_data_storage(data, s->bytes, &c);
	if (r < 0) {
		if (!data->pieces[0])
			cow__cuda_piece_unref(p);
		cow__cuda_data_leave(data);
		return r;
	}
	move_to_copy(s, c);
	(void)cow_storage_unref(c);
	*ret = true;
	return 0;
}

/* The storage that is sent, in pieces: the given one, or a copy. *ret is a reference. */
static int
in_pieces(struct cow_storage *s, struct cow__cuda *d, enum cow_share_mode mode,
          bool trusted, struct cow_storage **ret)
{
	bool ours = s->data->ops == &cow__cuda_data_ops, moved;
	bool stays = cow__transparent(s) || !ours;
	struct cow__cuda_data *data;
	struct cow_storage *c = NULL;
	int r;

	if (mode == COW_SHARE_CLONE && !trusted) {
		data = cow__cuda_data_of(s);
		return cow__cuda_parcel_copy(s, d, data ? data->piece_bytes : 0,
		                             ret);
	}
	r = adopt_piece(s, d, &moved);

	if (r < 0)
		return r;
	data = cow__cuda_data_of(s);
	if (moved && mode == COW_SHARE_ALIAS) {
		*ret = cow_storage_ref(s);
		return 0;
	}
	if (data && data->pieces && (mode == COW_SHARE_ALIAS) == data->alias &&
	    (data->alias || !stays)) {
		*ret = cow_storage_ref(s);
		return 0;
	}
	if (mode == COW_SHARE_ALIAS && stays)
		return ours ? cow__error(-EBUSY, "a transparent storage can't move to "
		                                 "become an alias")
		            : cow__error(-EOPNOTSUPP, "memory of another allocator "
		                                      "can't become an alias");
	if (mode == COW_SHARE_ALIAS && data && data->pieces) {
		r = cow__materialize(s, 0, s->bytes, COW_WRITE_AUTO);
		if (r == 0)
			*ret = cow_storage_ref(s);
		return r;
	}
	r = cow__cuda_parcel_copy(s, d, 0, &c);
	if (r < 0)
		return r;
	/* An alias that is sent as a clone stays an alias. */
	if (stays || (data && data->alias)) {
		*ret = c;
		return 0;
	}
	move_to_copy(s, c);
	(void)cow_storage_unref(c);
	*ret = cow_storage_ref(s);
	return 0;
}

/* Makes descriptors of the pieces [from, from + n). */
static int
export_some(const struct cow__cuda_data *data, size_t from, unsigned n, int *fds)
{
	for (unsigned i = 0; i < n; i++) {
		int r = cow__cuda_piece_export(data->pieces[from + i], &fds[i]);

		if (r < 0) {
			cow__cuda_close(fds, i);
			return r;
		}
	}
	return 0;
}

/* Makes a socket whose queue has the descriptors of all pieces. */
static int
bundle(const struct cow__cuda_data *data, int *ret)
{
	int ends[2], fds[COW__WIRE_BUNDLE], r = cow__socket_pair(ends);

	if (r < 0)
		return r;
	for (size_t from = 0; r == 0 && from < data->count; from += COW__WIRE_BUNDLE) {
		unsigned n = (unsigned)cow__min(data->count - from,
		                                COW__WIRE_BUNDLE);
		long put;

		r = export_some(data, from, n, fds);
		if (r < 0)
			break;
		put = cow__socket_send(ends[0], "", 1, fds, n);
		cow__cuda_close(fds, n);
		if (put < 0)
			r = put == -EAGAIN ? -ENOBUFS : (int)put;
	}
	cow__cuda_close(&ends[0], 1);
	if (r < 0)
		cow__cuda_close(&ends[1], 1);
	else
		*ret = ends[1];
	return r;
}

/* Notes that other processes may have the pieces from now on. */
static void
give_away(struct cow_storage *s, struct cow__cuda_data *data,
          enum cow_share_mode mode, const struct cow__id *scope)
{
	struct cow__id id = data->id;

	if (mode == COW_SHARE_CLONE) {
		for (size_t i = 0; i < data->count; i++)
			__atomic_store_n(&data->pieces[i]->exposed, true,
			                 __ATOMIC_RELAXED);
		return;
	}
	data->alias = true;
	s->resizable = false;
	if (!id.a && cow__random(&id, sizeof(id)) == 0 && scope)
		cow__cuda_data_name(data, &id, scope, s);
}

/* Names the device, by a name that is the same in all processes. */
static int
name_device(const struct cow__cuda *d, struct cow__wire_device *w)
{
	struct cow__cu_uuid uuid;
	int r;

	if (!d->cu->device_get_uuid)
		return cow__error(-EOPNOTSUPP, "this driver is too old to tell "
		                               "devices apart (cuDeviceGetUuid)");
	r = cow__cu_error(d->cu->device_get_uuid(&uuid, d->handle),
	                  "asking which device it is");
	if (r == 0)
		memcpy(w->uuid, uuid.bytes, sizeof(w->uuid));
	return r;
}

static int
send_entered(struct cow_storage *s, struct cow__cuda *d, enum cow_share_mode mode,
             const struct cow__id *scope, bool trusted, int *ret_fd,
             struct cow__wire_device *w)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	struct cow__cuda_data *data;
	struct cow_storage *t = NULL;
	int fd = -1, r;

	r = name_device(d, w);
	if (r == 0)
		r = in_pieces(s, d, mode, trusted, &t);
	if (r < 0)
		return r;
	data = cow__cuda_data_of(t);
	r = cow__cuda_data_order(data, stream);
	if (r == 0)
		r = data->count == 1 ? cow__cuda_piece_export(data->pieces[0], &fd)
		                     : bundle(data, &fd);
	if (r == 0) {
		r = cow__cuda_signal(d, stream, w);
		if (r < 0)
			cow__cuda_close(&fd, 1);
	}
	if (r == 0) {
		give_away(t, data, mode, scope);
		w->piece_bytes = data->piece_bytes;
		w->pieces = (uint32_t)data->count;
		if (mode == COW_SHARE_ALIAS)
			w->id = data->id;
		*ret_fd = fd;
	}
	(void)cow_storage_unref(t);
	return r;
}

/* Checks that the storage can be sent, and enters its device. */
static int
check_and_enter(const struct cow_storage *s, enum cow_share_mode mode, struct cow__cuda **ret)
{
	int r = cow__cuda_get(s->device.index, ret);

	if (r < 0)
		return r;
	if (mode == COW_SHARE_SEALED)
		return cow__error(-EOPNOTSUPP, "a device's storage can't be sealed: send a clone");
	if (!(*ret)->can_share)
		return cow__error(-EOPNOTSUPP, "this device's memory can't become a "
		                               "descriptor");
	r = cow__cuda_enter(*ret);
	if (r == 0 && cow__cuda_capturing(*ret, cow__cuda_stream(*ret))) {
		cow__cuda_leave(*ret);
		r = cow__error(-EBUSY, "a graph is being recorded: send the storage "
		                       "before or after");
	}
	return r;
}

static int
parcel_send(struct cow_storage *s, enum cow_share_mode mode,
            const struct cow__id *scope, bool trusted, int *ret_fd,
            struct cow__wire_device *ret)
{
	struct cow__wire_device w = { .flags = 0 };
	struct cow__cuda *d;
	int r;

	if (s->bytes == 0) {
		r = cow__cuda_get(s->device.index, &d);
		if (r == 0)
			r = name_device(d, &w);
		if (r == 0)
			*ret = w;
		return r;
	}
	r = check_and_enter(s, mode, &d);
	if (r < 0)
		return r;
	r = send_entered(s, d, mode, scope, trusted, ret_fd, &w);
	cow__cuda_leave(d);
	if (r == 0)
		*ret = w;
	return r;
}

/* A descriptor by itself has no event, so this waits for the work that is under way. */
static int
parcel_export(struct cow_storage *s, enum cow_share_mode mode, int *ret_fd)
{
	struct cow__cuda_data *data = cow__cuda_data_of(s);
	struct cow__wire_device w = { .flags = 0 };
	struct cow__cuda *d;
	int fd, r;

	if (data && data->count > 1)
		return cow__error(-EOPNOTSUPP, "cow_storage_export: a storage of several "
		                               "pieces has no single descriptor");
	r = check_and_enter(s, mode, &d);
	if (r < 0)
		return r;
	r = send_entered(s, d, mode, NULL, false, &fd, &w);
	if (r == 0) {
		r = cow__cu_error(d->cu->stream_synchronize(cow__cuda_stream(d)),
		                  "work on the device");
		if (r < 0)
			cow__cuda_close(&fd, 1);
	}
	cow__cuda_leave(d);
	if (r == 0)
		*ret_fd = fd;
	return r;
}

const struct cow__parcel_ops cow__cuda_parcel_ops = {
	.send = parcel_send,
	.receive = cow__cuda_parcel_receive,
	.export = parcel_export,
	.import = cow__cuda_parcel_import,
	.alias_pinned = cow__cuda_pinned_alias,
};

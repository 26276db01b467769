/* SPDX-License-Identifier: MIT */
/*
 * Device storages in messages
 *
 * What travels is pieces: a descriptor each. Memory that shares its physical memory
 * with other things (CACHED) is copied to a piece of its own first, whose rest is
 * zeros: whoever maps a piece sees all of it.
 *
 *   alias   the storage has its pieces alone, then both sides write them
 *   clone   the pieces become `exposed`: from now on nobody writes them in place.
 *           Who has one knows of no others, so nobody is ever found to be the last:
 *           a copy too many is the price for no counting. The memory itself goes with
 *           the last mapping and descriptor of it, by the driver's count.
 *           But a piece can be written by all who have it. So who is not trusted
 *           gets a copy, and makes one of what it gets
 *   sealed  there is no such thing: nothing keeps who maps a piece from writing it
 *
 * Zero bytes have no piece: which device they are of is all that travels.
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
move_in(struct cow_storage *s, struct cow_storage *copy)
{
	struct cow__allocation *a = s->data;

	s->data = copy->data;
	copy->data = a;
}

/* Memory of one piece that the allocator made is seen at other addresses from now on,
 * where it is data of ours. False: it isn't so, or others have it, too. */
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
	move_in(s, c);
	(void)cow_storage_unref(c);
	*ret = true;
	return 0;
}

/* What is to be sent: the storage itself, or a copy, in pieces. A reference. */
static int
settle(struct cow_storage *s, struct cow__cuda *d, enum cow_share_mode mode,
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
		return ours ? cow__error(-EBUSY, "an alias of a transparent storage: "
		                                 "its address was given away")
		            : cow__error(-EOPNOTSUPP, "an alias of memory of "
		                                      "another allocator");
	if (mode == COW_SHARE_ALIAS && data && data->pieces) {
		r = cow__materialize(s, 0, s->bytes, COW_WRITE_AUTO);
		if (r == 0)
			*ret = cow_storage_ref(s);
		return r;
	}
	r = cow__cuda_parcel_copy(s, d, 0, &c);
	if (r < 0)
		return r;
	/* An alias that is sent as a clone stays one. */
	if (stays || (data && data->alias)) {
		*ret = c;
		return 0;
	}
	move_in(s, c);
	(void)cow_storage_unref(c);
	*ret = cow_storage_ref(s);
	return 0;
}

/* Descriptors of pieces [from, from + n). */
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

/* A queue of all of them. */
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

/* Who else gets them is not known from now on. */
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

/* Which device it is, on any machine and for any process. */
static int
name_device(const struct cow__cuda *d, struct cow__wire_device *w)
{
	struct cow__cu_uuid uuid;
	int r;

	if (!d->cu->device_get_uuid)
		return cow__error(-EOPNOTSUPP, "this driver does not tell which "
		                               "device is which");
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
		r = settle(s, d, mode, trusted, &t);
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

/* Entered, if it can be sent at all. */
static int
begin(const struct cow_storage *s, enum cow_share_mode mode, struct cow__cuda **ret)
{
	int r = cow__cuda_get(s->device.index, ret);

	if (r < 0)
		return r;
	if (mode == COW_SHARE_SEALED)
		return cow__error(-EOPNOTSUPP, "a device has no seals: send a clone");
	if (!(*ret)->can_share)
		return cow__error(-EOPNOTSUPP, "this device's memory can't become a "
		                               "descriptor");
	r = cow__cuda_enter(*ret);
	if (r == 0 && cow__cuda_capturing(*ret, cow__cuda_stream(*ret))) {
		cow__cuda_leave(*ret);
		r = cow__error(-EBUSY, "a graph is recorded: send the storage before "
		                       "or after");
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
	r = begin(s, mode, &d);
	if (r < 0)
		return r;
	r = send_entered(s, d, mode, scope, trusted, ret_fd, &w);
	cow__cuda_leave(d);
	if (r == 0)
		*ret = w;
	return r;
}

/* By itself: no event goes along, so what is under way must be done. */
static int
parcel_export(struct cow_storage *s, enum cow_share_mode mode, int *ret_fd)
{
	struct cow__cuda_data *data = cow__cuda_data_of(s);
	struct cow__wire_device w = { .flags = 0 };
	struct cow__cuda *d;
	int fd, r;

	if (data && data->count > 1)
		return cow__error(-EOPNOTSUPP, "cow_storage_export: this storage has "
		                               "many pieces, and so many descriptors");
	r = begin(s, mode, &d);
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

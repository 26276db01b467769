/* SPDX-License-Identifier: MIT */
/*
 * Device storages: clones, and writing them
 *
 * A lazy clone is a reference. The first write to one of several clones copies:
 *
 *   CACHED   all bytes (core/storage/materialize.c, by the device's allocator)
 *   SINGLE   all bytes, to a piece of its own
 *   PIECES   the pieces that are written; the others are mapped at its own addresses,
 *            too
 *
 * The last clone writes in place where the pieces are its own. So device data are never
 * `owned`: each write calls alone(), which costs a look at the pieces.
 *
 * Graphs. A recorded graph runs again later. A recorded copy would run again, too, and read
 * memory that may belong to another storage by then. So nothing is copied while the current
 * stream records. Data that were cloned while a stream recorded are never copied.
 */
#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/base/stats.h"
#include "cuda/data.h"
#include "cuda/stream.h"

static int
entered(const struct cow__cuda_data *data, struct cow__cuda **ret)
{
	int r = cow__cuda_get(data->device->index, ret);

	return r < 0 ? r : cow__cuda_enter(*ret);
}

/* May it be copied now? */
static int
may_copy(const struct cow__cuda_data *data, struct cow__cu_stream *stream)
{
	if (cow__cuda_capturing(data->device, stream))
		return cow__error(-EBUSY,
		                  "a graph is being recorded: a clone that it writes must "
		                  "be written once before (cow_storage_data_mut()), or "
		                  "be made by cow_storage_clone()");
	if (data->captured)
		return cow__error(-EBUSY,
		                  "the storage was cloned while a graph was being recorded: "
		                  "clone it before, or with cow_storage_clone()");
	return 0;
}

static bool
is_own(const struct cow__cuda_piece *p)
{
	/* Pairs with the release by the data that had the piece, too. */
	return __atomic_load_n(&p->refs, __ATOMIC_ACQUIRE) == 1 &&
	       !__atomic_load_n(&p->exposed, __ATOMIC_RELAXED);
}

/* The pieces that a write touches: [*ret_first, *ret_end). */
static void
pieces_of(const struct cow__cuda_data *data, const struct cow__writing *w,
          size_t *ret_first, size_t *ret_end)
{
	size_t n = data->piece_bytes;

	*ret_first = *ret_end = 0;
	if (!data->pieces)
		return;
	if (w->hint == COW_WRITE_BY_COPY) {
		*ret_end = data->count;
	} else if (w->bytes) {
		*ret_first = w->offset / n;
		*ret_end = (w->offset + w->bytes - 1) / n + 1;
	}
}

static int
alone(struct cow__allocation *a, const struct cow__writing *w)
{
	struct cow__cuda_data *data = a->other;
	struct cow__cu_stream *stream;
	size_t i, end_;
	struct cow__cuda *d;
	int r;

	r = cow__cuda_get(data ? data->device->index : a->ptr.device.index, &d);
	if (r < 0)
		return r;
	if (!data || data->alias)
		return COW__ALONE_HERE;
	for (pieces_of(data, w, &i, &end_); i < end_; i++)
		if (!is_own(data->pieces[i]))
			return COW__NOT_ALONE;
	stream = cow__cuda_stream(d);
	if (a->cloned) {
		r = cow__cuda_enter(d);
		if (r < 0)
			return r;
		r = cow__cuda_data_order(data, stream);
		cow__cuda_leave(d);
	}
	/* A write notes the stream here; for reads the program calls cow_cuda_record_stream(). */
	if (r == 0 && stream != data->stream)
		r = cow__cuda_data_use(data, stream);
	return r < 0 ? r : COW__ALONE_HERE;
}

/* ---- New data for a write ------------------------------------------------------- */

/* Maps the pieces of the new data: new ones where the write goes, the old ones elsewhere. Does
 * all that can fail except queueing the copies. */
static int
map_pieces(struct cow__cuda_data *to, const struct cow__cuda_data *from,
           size_t first, size_t end_, bool sole)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < to->count; i++) {
		struct cow__cuda_piece *p = from->pieces[i];

		if (i >= first && i < end_ && !(sole && is_own(p)))
			r = cow__cuda_data_piece(to->device, to->piece_bytes, &p);
		else
			(void)cow__cuda_piece_ref(p);
		if (r < 0)
			break;
		r = cow__cuda_data_map(to, i, p);
		if (r < 0)
			cow__cuda_piece_unref(p);
	}
	return r;
}

static int
copy_part(struct cow__cuda_data *to, const struct cow__cuda_data *from, size_t offset,
          size_t bytes)
{
	if (bytes == 0)
		return 0;
	cow__stat_add(bytes_copied, bytes);
	return cow__cu_error(to->device->cu->copy_within(to->at + offset,
	                                                 from->at + offset, bytes,
	                                                 to->stream),
	                     "copying a clone's bytes");
}

/* Copies piece by piece, because a driver may refuse one copy across two mappings. Copies all
 * of the last piece, whose rest is zeros, and not the bytes that will be overwritten. */
static int
copy_piece(struct cow__cuda_data *to, const struct cow__cuda_data *from, size_t i,
           const struct cow__writing *w)
{
	size_t start = i * to->piece_bytes, stop = start + to->piece_bytes;
	size_t from_ = w->offset, to_ = w->offset + w->bytes;
	int r;

	if (w->hint != COW_WRITE_ALL || from_ >= stop || to_ <= start)
		return copy_part(to, from, start, stop - start);
	from_ = cow__max(from_, start);
	to_ = cow__min(to_, stop);
	r = copy_part(to, from, start, from_ - start);
	return r < 0 ? r : copy_part(to, from, to_, stop - to_);
}

static int
copy_pieces(struct cow__cuda_data *to, struct cow__cuda_data *from,
            const struct cow__writing *w)
{
	int r = cow__cuda_data_order(from, to->stream);

	for (size_t i = 0; r == 0 && i < to->count; i++)
		if (to->pieces[i] != from->pieces[i])
			r = copy_piece(to, from, i, w);
	/* A later write to the old data, in place, waits for the copies. */
	return r < 0 ? r : cow__cuda_data_use(from, to->stream);
}

/* Makes data at new addresses, whose pieces in the range are only theirs. */
static int
renew(struct cow__cuda_data *from, const struct cow__writing *w, bool sole,
      struct cow__cuda_data **ret)
{
	struct cow__cuda *d = from->device;
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	struct cow__cuda_data *to;
	size_t first, end_;
	int r = may_copy(from, stream);

	if (r < 0)
		return r;
	(void)cow__cuda_data_collect(d);
	r = cow__cuda_data_new(d, stream, from->piece_bytes, from->count, &to);
	if (r < 0)
		return r;
	pieces_of(from, w, &first, &end_);
	r = map_pieces(to, from, first, end_, sole);
	if (r == 0)
		r = copy_pieces(to, from, w);
	if (r < 0) {
		cow__cuda_data_leave(to);
		return r;
	}
	*ret = to;
	return 0;
}

static int
view(struct cow__allocation *a, const struct cow__writing *w,
     struct cow__allocation **ret)
{
	struct cow__cuda_data *from, *to;
	/* Once true, it stays true: another reference could only come from this storage. */
	bool sole = __atomic_load_n(&a->refs, __ATOMIC_ACQUIRE) == 1;
	struct cow__cuda *d;
	int r = cow__cuda_data_get(a, &from);

	if (r == 0)
		r = entered(from, &d);
	if (r < 0)
		return r;
	if (!from->pieces) {
		/* CACHED: the allocator copies. */
		r = may_copy(from, cow__cuda_stream(d));
		if (r == 0)
			r = cow__cuda_data_order(from, cow__cuda_stream(d));
		cow__cuda_leave(d);
		return r < 0 ? r : -E2BIG;
	}
	r = renew(from, w, sole, &to);
	if (r == 0) {
		r = cow__allocation_other((void *)(uintptr_t)to->at, a->bytes, to,
		                          &cow__cuda_data_ops, ret);
		if (r < 0)
			cow__cuda_data_leave(to);
		else
			cow__cuda_data_serves(to, a->bytes);
	}
	if (r == 0 && sole)
		/* The old data are about to be freed, and their work is ordered before
		 * ours. So they give up their references to shared pieces, which are then
		 * ours alone. A piece lives as long as it is mapped. */
		for (size_t i = 0; i < to->count; i++)
			if (to->pieces[i] == from->pieces[i]) {
				cow__cuda_piece_unref(from->pieces[i]);
				from->pieces[i] = NULL;
			}
	cow__cuda_leave(d);
	return r;
}

/* ---- The rest of the table ------------------------------------------------------ */

static int
cloned(struct cow__allocation *a)
{
	struct cow__cuda_data *data;
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r = cow__cuda_data_get(a, &data);

	if (r == 0)
		r = cow__cuda_get(data->device->index, &d);
	if (r < 0)
		return r;
	if (data->alias)
		return 1;
	/* The clone has what the stream's work up to here writes; see alone(). */
	stream = cow__cuda_stream(d);
	if (stream != data->stream)
		r = cow__cuda_data_use(data, stream);
	if (r < 0 || !stream)
		return r;
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	if (cow__cuda_capturing(d, stream))
		__atomic_store_n(&data->captured, true, __ATOMIC_RELAXED);
	cow__cuda_leave(d);
	return 0;
}

static int
copied(struct cow__allocation *a)
{
	struct cow__cuda_data *data;
	int r = cow__cuda_data_get(a, &data);

	return r < 0 ? r : cow__cuda_data_use(data, cow__cuda_stream(data->device));
}

static void
drop_data(struct cow__allocation *a)
{
	struct cow__cuda_data *data = a->other;

	if (!data)
		return;
	if (data->pieces)
		cow__profile_device(a->data, -(int64_t)a->bytes,
		                    (struct cow_device){
		                            COW_DEVICE_CUDA,
		                            (int16_t)data->device->index });
	cow__cuda_data_leave(data);
}

static void
describe_data(const struct cow__allocation *a, struct cow_storage_info *ret)
{
	const struct cow__cuda_data *data = a->other;
	size_t own = 0;

	if (!data || !data->pieces) {
		ret->mappings = 1;
		ret->state = ret->sharers > 1 ? COW_STATE_LAZY : COW_STATE_OWNED;
		ret->bytes_own = ret->sharers > 1 ? 0 : a->bytes;
		return;
	}
	ret->mappings = data->count;
	for (size_t i = 0; i < data->count; i++)
		own += data->alias || is_own(data->pieces[i]);
	ret->bytes_own = 0;
	if (ret->sharers > 1)
		return;
	ret->bytes_own = cow__min(own * data->piece_bytes, a->bytes);
	ret->state = own == data->count ? COW_STATE_OWNED
	             : own              ? COW_STATE_VIEW
	                                : COW_STATE_LAZY;
}

const struct cow__allocation_ops cow__cuda_data_ops = {
	.alone = alone,
	.view = view,
	.drop = drop_data,
	.cloned = cloned,
	.copied = copied,
	.describe = describe_data,
};

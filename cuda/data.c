/* SPDX-License-Identifier: MIT */
/*
 * Device data: life, uses, order. See the header; clones and writing are in
 * cuda/storage.c.
 */
#include "cuda/data.h"
#include "core/error.h"
#include "core/pool.h"
#include "core/profile.h"
#include "core/stats.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "memfd/map.h"

static struct cow__pool datas = {
	.object_bytes = sizeof(struct cow__cuda_data)
};
/* Held while nothing of the driver's is called. */
static struct cow__mutex lists_lock;
static struct cow__cuda_data *living, *leaving;

static void
enlist(struct cow__cuda_data **list, struct cow__cuda_data *data)
{
	data->next = *list;
	data->before = list;
	if (data->next)
		data->next->before = &data->next;
	*list = data;
}

static void
delist(struct cow__cuda_data *data)
{
	*data->before = data->next;
	if (data->next)
		data->next->before = data->before;
}

/* Where the pieces are noted. */
static size_t
note_bytes(size_t count)
{
	return cow__round_up(count * sizeof(struct cow__cuda_piece *), cow__page);
}

static void
forget(struct cow__cuda_data *data)
{
	cow__cuda_uses_forget(&data->uses);
	if (data->pieces)
		(void)cow__map_release((uintptr_t)data->pieces,
		                       note_bytes(data->count));
	cow__pool_give(&datas, data);
}

/* What nobody uses any more. False: the driver keeps a map. */
static bool
end(struct cow__cuda_data *data)
{
	struct cow__cuda *d = data->device;
	size_t bytes = data->count * data->piece_bytes;

	if (data->at && cow__cuda_range_unmap(d, data->at, bytes) < 0)
		return false;
	if (data->at) {
		cow__cuda_range_free(d, data->at, bytes);
		cow__cuda_count_range(d, bytes, -1);
	}
	for (size_t i = 0; i < data->count; i++)
		cow__cuda_piece_unref(data->pieces[i]);
	forget(data);
	return true;
}

bool
cow__cuda_data_collect(struct cow__cuda *d)
{
	struct cow__cuda_data *mine, *data, *next;
	bool any = false;

	/* Taken off, so that other threads look at others meanwhile. */
	cow__mutex_lock(&lists_lock);
	mine = leaving;
	leaving = NULL;
	cow__mutex_unlock(&lists_lock);
	for (data = mine; data; data = next) {
		next = data->next;
		if (data->device == d && cow__cuda_uses_passed(&data->uses, d) &&
		    end(data)) {
			any = true;
			continue;
		}
		cow__mutex_lock(&lists_lock);
		enlist(&leaving, data);
		cow__mutex_unlock(&lists_lock);
	}
	return any;
}

void
cow__cuda_data_leave(struct cow__cuda_data *data)
{
	struct cow__cuda *d = data->device, *same;

	/* In a child the lists may be half changed, and are of no use. */
	if (cow__cuda_get(d->index, &same) < 0) {
		for (size_t i = 0; i < data->count; i++)
			cow__cuda_piece_unref(data->pieces[i]);
		forget(data);
		return;
	}
	if (data->requested)
		cow__cuda_count_storage(d, data->count * data->piece_bytes,
		                        data->requested, -1);
	cow__mutex_lock(&lists_lock);
	delist(data);
	if (data->pieces)
		enlist(&leaving, data);
	cow__mutex_unlock(&lists_lock);
	/* The allocator looks after its own memory. */
	if (!data->pieces) {
		forget(data);
		return;
	}
	if (cow__cuda_enter(d) < 0)
		return; /* the next one looks again */
	(void)cow__cuda_data_collect(d);
	cow__cuda_leave(d);
}

static int
data_new(struct cow__cuda *d, struct cow__cu_stream *stream,
         struct cow__cuda_data **ret)
{
	struct cow__cuda_data *data = cow__pool_take(&datas);

	if (!data)
		return -ENOMEM;
	*data = (struct cow__cuda_data){ .device = d, .stream = stream };
	if (cow__cuda_uses_add(&data->uses, d, stream) < 0) {
		cow__pool_give(&datas, data);
		return -ENOMEM;
	}
	*ret = data;
	return 0;
}

static void
lives(struct cow__cuda_data *data)
{
	cow__mutex_lock(&lists_lock);
	enlist(&living, data);
	cow__mutex_unlock(&lists_lock);
}

int
cow__cuda_data_new(struct cow__cuda *d, struct cow__cu_stream *stream,
                   size_t piece_bytes, size_t count, struct cow__cuda_data **ret)
{
	struct cow__cuda_data *data;
	void *note;
	int r = data_new(d, stream, &data);

	if (r < 0)
		return r;
	data->piece_bytes = piece_bytes;
	data->count = count;
	data->backing = count > 1 ? COW_CUDA_PIECES : COW_CUDA_SINGLE;
	r = cow__map_meta(note_bytes(count), &note);
	if (r == 0) {
		data->pieces = note; /* zeros */
		r = cow__cuda_range_new(d, count * piece_bytes, &data->at);
		if (r == -ENOMEM && cow__cuda_data_collect(d))
			r = cow__cuda_range_new(d, count * piece_bytes,
			                        &data->at);
	}
	if (r < 0) {
		forget(data);
		return r;
	}
	cow__cuda_count_range(d, count * piece_bytes, 1);
	lives(data);
	*ret = data;
	return 0;
}

int
cow__cuda_data_piece(struct cow__cuda *d, size_t bytes, struct cow__cuda_piece **ret)
{
	int r = cow__cuda_piece_new(d, bytes, ret);

	if (r == 0) {
		(*ret)->counted = true;
		cow__cuda_count_piece(d, bytes, 1);
	}
	return r;
}

void
cow__cuda_data_serves(struct cow__cuda_data *data, size_t bytes)
{
	data->requested = bytes;
	cow__cuda_count_storage(data->device, data->count * data->piece_bytes, bytes, 1);
}

int
cow__cuda_data_map(struct cow__cuda_data *data, size_t i,
                   struct cow__cuda_piece *piece)
{
	cow__cu_ptr at = data->at + i * data->piece_bytes;
	int r = cow__cuda_range_map(data->device, at, piece, true);

	if (r == 0)
		data->pieces[i] = piece;
	return r;
}

int
cow__cuda_data_use(struct cow__cuda_data *data, struct cow__cu_stream *stream)
{
	int r;

	cow__mutex_lock(&data->lock);
	r = cow__cuda_uses_add(&data->uses, data->device, stream);
	cow__mutex_unlock(&data->lock);
	if (r == 0 && data->block)
		r = cow__cuda_block_use(data->block, stream);
	return r;
}

/* One use of it, or NULL. By position: the list only grows meanwhile, at its head,
 * so a use may be seen twice, which does no harm. */
static bool
use_at(struct cow__cuda_data *data, size_t n, struct cow__cuda_use *ret)
{
	struct cow__cuda_use *u;

	cow__mutex_lock(&data->lock);
	for (u = data->uses; u && n > 0; n--)
		u = u->next;
	if (u)
		*ret = *u;
	cow__mutex_unlock(&data->lock);
	return u != NULL;
}

static int
recorded(void)
{
	return cow__error(-EBUSY, "a graph is recorded, and the storage's memory was used "
	                          "on another stream: write it (cow_storage_data_mut()) "
	                          "before recording begins");
}

/* Behind what its stream does. `d` is entered. */
static int
mark_use(struct cow__cuda *d, const struct cow__cuda_use *use,
         struct cow__cu_event **ret)
{
	int r = use->device == d ? 0 : cow__cuda_enter(use->device);

	if (r < 0)
		return r;
	r = cow__cuda_capturing(use->device, use->stream)
	            ? recorded()
	            : cow__cuda_mark(use->device, use->stream, ret);
	if (use->device != d)
		cow__cuda_leave(use->device);
	return r;
}

int
cow__cuda_data_order(struct cow__cuda_data *data, struct cow__cu_stream *stream)
{
	struct cow__cuda *d = data->device;
	struct cow__cuda_use use;
	int r = 0;

	for (size_t n = 0; r == 0 && use_at(data, n, &use); n++) {
		struct cow__cu_event *mark = use.mark;

		if (use.device == d && use.stream == stream && !use.marked)
			continue;
		if (cow__cuda_capturing(d, stream))
			return recorded();
		if (!use.marked)
			r = mark_use(d, &use, &mark);
		if (r == 0)
			r = cow__cuda_after(d, stream, mark);
		if (!use.marked)
			cow__cuda_mark_free(use.device, mark);
	}
	return r;
}

void
cow__cuda_data_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream)
{
	cow__mutex_lock(&lists_lock);
	for (struct cow__cuda_data *data = living; data; data = data->next) {
		cow__mutex_lock(&data->lock);
		(void)cow__cuda_uses_end(data->uses, d, stream, d);
		if (data->device == d && data->stream == stream) {
			data->stream = NULL;
			(void)cow__cuda_uses_add(&data->uses, d, NULL);
		}
		cow__mutex_unlock(&data->lock);
	}
	for (struct cow__cuda_data *data = leaving; data; data = data->next)
		(void)cow__cuda_uses_end(data->uses, d, stream, d);
	cow__mutex_unlock(&lists_lock);
}

void
cow__cuda_data_name(struct cow__cuda_data *data, const struct cow__id *id,
                    const struct cow__id *scope, struct cow_storage *s)
{
	cow__mutex_lock(&lists_lock);
	data->id = *id;
	data->scope = *scope;
	data->storage = s;
	cow__mutex_unlock(&lists_lock);
}

static bool
same(const struct cow__id *a, const struct cow__id *b)
{
	return a->a == b->a && a->b == b->b;
}

struct cow_storage *
cow__cuda_data_named(const struct cow__id *id, const struct cow__id *scope)
{
	struct cow_storage *found = NULL;

	cow__mutex_lock(&lists_lock);
	/* A storage that is dying is one until its data have left this list. */
	for (struct cow__cuda_data *data = living; data && !found;
	     data = data->next)
		if (data->storage && same(&data->id, id) &&
		    same(&data->scope, scope) &&
		    cow__storage_try_ref(data->storage))
			found = data->storage;
	cow__mutex_unlock(&lists_lock);
	return found;
}

/* ---- Storages ------------------------------------------------------------------ */

struct cow__cuda_data *
cow__cuda_data_of(const struct cow_storage *s)
{
	return s->data->ops == &cow__cuda_data_ops ? s->data->other : NULL;
}

int
cow__cuda_data_storage(struct cow__cuda_data *data, size_t bytes,
                       struct cow_storage **ret)
{
	struct cow_device device = { COW_DEVICE_CUDA,
		                     (int16_t)data->device->index };
	struct cow_storage like = { .device = device };
	struct cow__allocation *a;
	int r;

	/* Of other bytes, when it is resized. */
	if (cow_allocator_get(device, &like.allocator) == 0)
		like.resizable = !data->alias;
	r = cow__allocation_other((void *)(uintptr_t)data->at, bytes, data,
	                          &cow__cuda_data_ops, &a);
	if (r < 0)
		return r;
	r = cow__storage_on(a, bytes, &like, ret);
	if (r < 0) {
		/* Its data are the caller's still. */
		a->kind = COW__AT_NOTHING;
		a->ops = NULL;
		cow__allocation_unref(a);
		return r;
	}
	cow__cuda_data_serves(data, bytes);
	cow__profile_device(a->data, (int64_t)bytes, device);
	return 0;
}

int
cow__cuda_data_clear(struct cow__cuda_data *data, size_t bytes, bool zero)
{
	size_t from = zero ? 0 : bytes, all = data->count * data->piece_bytes;

	if (from == all)
		return 0;
	return cow__cu_error(data->device->cu->set_8(data->at + from, 0,
	                                             all - from, data->stream),
	                     "filling device memory");
}

int
cow__cuda_data_fresh(struct cow__cuda *d, size_t bytes, size_t piece_bytes,
                     bool zero, struct cow_storage **ret)
{
	struct cow__cu_stream *stream = cow__cuda_stream(d);
	struct cow__cuda_piece *piece;
	struct cow__cuda_data *data;
	int r;

	if (!piece_bytes)
		piece_bytes = cow__round_up(bytes, d->granule);
	r = cow__cuda_data_new(d, stream, piece_bytes,
	                       (bytes + piece_bytes - 1) / piece_bytes, &data);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < data->count; i++) {
		r = cow__cuda_data_piece(d, piece_bytes, &piece);
		if (r < 0)
			break;
		r = cow__cuda_data_map(data, i, piece);
		if (r < 0)
			cow__cuda_piece_unref(piece);
	}
	if (r == 0)
		r = cow__cuda_data_clear(data, bytes, zero);
	if (r == 0)
		r = cow__cuda_data_storage(data, bytes, ret);
	if (r < 0)
		cow__cuda_data_leave(data);
	return r;
}

int
cow__cuda_pieces_new(struct cow__cuda *d, size_t bytes,
                     const struct cow_cuda_options *o, struct cow_storage **ret)
{
	size_t piece = o->piece ? o->piece : d->granule;
	int r;

	if (!d->virtual_memory)
		return cow__error(-ENOTSUP, "a storage of many pieces: this driver has "
		                            "no virtual memory");
	if (piece % d->granule || piece > (size_t)INT64_MAX / 2 ||
	    bytes > (size_t)INT64_MAX / 2)
		return cow__error_number(-EINVAL, "cow_cuda_options: a piece is a "
		                                  "multiple of # bytes, and no storage "
		                                  "is that long",
		                         d->granule);
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = cow__cuda_data_fresh(d, bytes, piece, o->flags & COW_STORAGE_ZERO, ret);
	cow__cuda_leave(d);
	return r < 0 ? cow__error_from(r, "cow_cuda_storage_new") : 0;
}

int
cow__cuda_data_adopt(struct cow__allocation *a)
{
	a->ops = &cow__cuda_data_ops;
	return 0;
}

int
cow__cuda_data_get(struct cow__allocation *a, struct cow__cuda_data **ret)
{
	struct cow__cuda_data *data, *none = NULL;
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r;

	/* Pairs with the exchange below. */
	*ret = __atomic_load_n(&a->other, __ATOMIC_ACQUIRE);
	if (*ret)
		return 0;
	r = cow__cuda_get(a->ptr.device.index, &d);
	if (r < 0)
		return r;
	stream = cow__cuda_stream(d);
	r = data_new(d, stream, &data);
	if (r < 0)
		return r;
	data->backing = COW_CUDA_CACHED;
	data->block = cow_data_ptr_cast(&a->ptr, cow__cuda_give_context);
	if (data->block && cow__cuda_block_stream(data->block, &data->stream) &&
	    data->stream != stream)
		r = cow__cuda_uses_add(&data->uses, d, data->stream);
	if (r < 0) {
		forget(data);
		return r;
	}
	lives(data);
	if (__atomic_compare_exchange_n(&a->other, (void **)&none, data, false,
	                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		*ret = data;
	} else {
		cow__cuda_data_leave(data); /* another thread was faster */
		*ret = none;
	}
	return 0;
}

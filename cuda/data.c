/* SPDX-License-Identifier: MIT */
/*
 * Device data: made and freed, uses, order. See the header. cuda/fresh.c makes storages on
 * them; cuda/storage.c has clones and writing.
 */
#include "cuda/data.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/base/profile.h"
#include "core/base/stats.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "memfd/map.h"

static struct cow__pool datas = {
	.object_bytes = sizeof(struct cow__cuda_data)
};
/* Taken before a device's memory lock. With it held the driver is called only for marks. The
 * thread that ends a stream has it from the first mark until the stream has ended, so that
 * no thread notes a use of the stream in a list that was gone through already. */
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

/* The size of the array of pieces. */
static size_t
note_bytes(size_t count)
{
	return cow__round_up(count * sizeof(struct cow__cuda_piece *), cow__page);
}

static void
free_data(struct cow__cuda_data *data)
{
	cow__cuda_uses_forget(&data->uses);
	if (data->pieces)
		(void)cow__map_release((uintptr_t)data->pieces,
		                       note_bytes(data->count));
	cow__pool_give(&datas, data);
}

/* Frees data that no stream uses. False: the driver refused to unmap them. */
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
	free_data(data);
	return true;
}

/* Takes the data that no stream uses out of the list of leaving ones; the others get their
 * marks. Under the lock, because a stream of theirs may be about to end. */
static struct cow__cuda_data *
take_unused(struct cow__cuda *d)
{
	struct cow__cuda_data *taken = NULL, *data, *next;

	cow__mutex_lock(&lists_lock);
	for (data = leaving; data; data = next) {
		next = data->next;
		if (data->device != d || !cow__cuda_uses_passed(&data->uses, d))
			continue;
		delist(data);
		data->next = taken;
		taken = data;
	}
	cow__mutex_unlock(&lists_lock);
	return taken;
}

bool
cow__cuda_data_collect(struct cow__cuda *d)
{
	struct cow__cuda_data *data, *next;
	bool any = false;

	for (data = take_unused(d); data; data = next) {
		next = data->next;
		if (end(data)) {
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

	/* In a forked child the lists may be half changed, and are not needed. */
	if (cow__cuda_get(d->index, &same) < 0) {
		for (size_t i = 0; i < data->count; i++)
			cow__cuda_piece_unref(data->pieces[i]);
		free_data(data);
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
	/* CACHED: the allocator frees the memory. */
	if (!data->pieces) {
		cow__cuda_uses_drop(&data->uses);
		free_data(data);
		return;
	}
	if (cow__cuda_enter(d) < 0)
		return; /* data that leave later look again */
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
		free_data(data);
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

static int
recorded(void)
{
	return cow__error(-EBUSY, "a graph is being recorded, and the storage's memory was "
	                          "used on another stream: write it "
	                          "(cow_storage_data_mut()) before recording begins");
}

/* Makes `stream` wait for the work of the use's stream. `d` is entered. The data's lock keeps
 * the use's stream from ending before it is marked. */
static int
wait_for_use(struct cow__cuda *d, struct cow__cu_stream *stream,
             const struct cow__cuda_use *use)
{
	struct cow__cu_event *mark = use->mark;
	int r = 0;

	/* The stream of a marked use has ended; a new stream may have its address. */
	if (use->stream == stream && !use->marked)
		return 0;
	if (cow__cuda_capturing(d, stream))
		return recorded();
	if (!mark)
		r = cow__cuda_capturing(d, use->stream)
		            ? recorded()
		            : cow__cuda_mark(d, use->stream, &mark);
	if (r == 0)
		r = cow__cuda_after(d, stream, mark);
	if (mark != use->mark)
		cow__cuda_mark_free(d, mark);
	return r;
}

int
cow__cuda_data_order(struct cow__cuda_data *data, struct cow__cu_stream *stream)
{
	const struct cow__cuda_use *u;
	int r = 0;

	cow__mutex_lock(&data->lock);
	for (u = data->uses; r == 0 && u; u = u->next)
		r = wait_for_use(data->device, stream, u);
	cow__mutex_unlock(&data->lock);
	return r;
}

static int
stream_ends(struct cow__cuda_data *data, struct cow__cuda *d,
            struct cow__cu_stream *stream, enum cow__cuda_end how)
{
	int r;

	cow__mutex_lock(&data->lock);
	r = cow__cuda_uses_end(data->uses, d, stream, how);
	if (how == COW__CUDA_ENDED && data->device == d && data->stream == stream)
		data->stream = COW__CUDA_NO_STREAM;
	cow__mutex_unlock(&data->lock);
	return r;
}

int
cow__cuda_data_stream_ends(struct cow__cuda *d, struct cow__cu_stream *stream,
                           enum cow__cuda_end how)
{
	struct cow__cuda_data *data;
	int r = 0;

	if (how == COW__CUDA_ENDING)
		cow__mutex_lock(&lists_lock);
	for (data = living; data && r == 0; data = data->next)
		r = stream_ends(data, d, stream, how);
	for (data = leaving; data && r == 0; data = data->next)
		r = stream_ends(data, d, stream, how);
	if (how != COW__CUDA_ENDING)
		cow__mutex_unlock(&lists_lock);
	return r;
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
	/* A storage that is being freed exists until its data have left this list. */
	for (struct cow__cuda_data *data = living; data && !found;
	     data = data->next)
		if (data->storage && same(&data->id, id) &&
		    same(&data->scope, scope) &&
		    cow__storage_try_ref(data->storage))
			found = data->storage;
	cow__mutex_unlock(&lists_lock);
	return found;
}

/* ---- Of storages --------------------------------------------------------------- */

struct cow__cuda_data *
cow__cuda_data_of(const struct cow_storage *s)
{
	return s->data->ops == &cow__cuda_data_ops ? s->data->other : NULL;
}

int
cow__cuda_data_adopt(struct cow__allocation *a)
{
	a->ops = &cow__cuda_data_ops;
	return 0;
}

/* Notes that the block's stream uses the data. If that has ended, the current stream, which
 * uses them, waits for its work. Locked, so that it does not end between the two. */
static int
add_owner(struct cow__cuda_data *data, const struct cow__cuda_block *b,
          struct cow__cu_stream **ret)
{
	return cow__cuda_block_stream(b, ret)
	               ? cow__cuda_uses_add(&data->uses, data->device, *ret)
	               : cow__cuda_block_behind(b, cow__cuda_stream(data->device));
}

int
cow__cuda_data_use_owner(struct cow__cuda_data *data, const struct cow__cuda_block *b)
{
	struct cow__cu_stream *owner;
	int r;

	cow__mutex_lock(&lists_lock);
	cow__mutex_lock(&data->lock);
	r = add_owner(data, b, &owner);
	cow__mutex_unlock(&data->lock);
	cow__mutex_unlock(&lists_lock);
	return r;
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
	cow__mutex_lock(&lists_lock);
	if (data->block)
		r = add_owner(data, data->block, &data->stream);
	if (r == 0)
		enlist(&living, data);
	cow__mutex_unlock(&lists_lock);
	if (r < 0) {
		free_data(data);
		return r;
	}
	if (__atomic_compare_exchange_n(&a->other, (void **)&none, data, false,
	                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		*ret = data;
	} else {
		cow__cuda_data_leave(data); /* another thread made them first */
		*ret = none;
	}
	return 0;
}

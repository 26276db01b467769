/* SPDX-License-Identifier: MIT */
/*
 * Device memory as storages
 *
 * Each device has two allocators: one of cached blocks, which is registered, and one of
 * single pieces. The context of their data pointers is the block, so a storage finds its
 * block without a look-up. For that reason there is no raw form.
 */
#include "core/base/error.h"
#include "core/base/pool.h"
#include "cuda/cache.h"
#include "cuda/data.h"
#include "cuda/start.h"

static int
pointer_on(struct cow__cuda *d, struct cow__cuda_block *b, struct cow_data_ptr *ret)
{
	*ret = cow_data_ptr_make((void *)(uintptr_t)b->ptr, b,
	                         cow__cuda_give_context,
	                         (struct cow_device){ COW_DEVICE_CUDA,
	                                              (int16_t)d->index });
	return 0;
}

static int
cached_allocate(struct cow_allocator *self, size_t bytes, struct cow_data_ptr *ret)
{
	struct cow__cu_stream *stream;
	struct cow__cuda_block *b;
	struct cow__cuda *d;
	int r = cow__cuda_get(self->device.index, &d);

	if (cow__unlikely(r < 0))
		return r;
	stream = cow__cuda_stream(d);
	b = cow__cuda_take_cached(d, bytes, stream);
	if (cow__unlikely(!b)) {
		r = cow__cuda_enter(d);
		if (r < 0)
			return r;
		r = cow__cuda_take(d, bytes, stream, &b);
		cow__cuda_leave(d);
		if (r < 0)
			return r;
	}
	return pointer_on(d, b, ret);
}

/* ---- One piece of its own ---------------------------------------------------------- */

struct single {
	struct cow__cuda *device;
	struct cow__cuda_piece *piece;
	cow__cu_ptr ptr;
	size_t bytes;
};

static struct cow__pool singles = { .object_bytes = sizeof(struct single) };

static void
count_single(struct single *s, int sign)
{
	struct cow_cuda_stats *stats = &s->device->memory->stats;

	cow__cuda_stat(stats->segment, COW_CUDA_LARGE, sign);
	if (sign < 0)
		return;
	cow__cuda_stat(stats->reserved_bytes, COW_CUDA_LARGE, (int64_t)s->bytes);
	stats->device_alloc++;
}

/* Drops the block's reference to its piece. If the piece was sent, data may keep it; from then
 * on it counts as theirs. Locked. */
static void
hand_on(struct single *s)
{
	s->device->memory->data.reserved += s->bytes;
	__atomic_store_n(&s->piece->counted, true, __ATOMIC_RELAXED);
	cow__cuda_piece_unref_locked(s->piece);
	s->piece = NULL;
}

/* Entered. */
static bool
single_end(struct single *s)
{
	if (s->ptr && cow__cuda_range_unmap(s->device, s->ptr, s->bytes) < 0)
		return false;
	if (s->ptr)
		cow__cuda_range_free(s->device, s->ptr, s->bytes);
	cow__cuda_piece_unref(s->piece);
	return true;
}

static bool
single_done(void *user)
{
	struct single *s = user;
	struct cow__cuda_piece *p = s->piece;

	s->piece = NULL;
	if (!single_end(s)) {
		s->piece = p;
		return false;
	}
	s->piece = p;
	hand_on(s);
	count_single(s, -1);
	cow__pool_give(&singles, s);
	return true;
}

static int
single_new(struct cow__cuda *d, size_t bytes, struct cow__cuda_block **ret)
{
	size_t size = (bytes + d->granule - 1) / d->granule * d->granule;
	struct single *s = cow__pool_take(&singles);
	int r;

	if (!s)
		return -ENOMEM;
	*s = (struct single){ .device = d, .bytes = size };
	r = cow__cuda_piece_new(d, size, &s->piece);
	if (r == 0)
		r = cow__cuda_range_new(d, size, &s->ptr);
	if (r == 0) {
		r = cow__cuda_range_map(d, s->ptr, s->piece, true);
		if (r < 0) {
			cow__cuda_range_free(d, s->ptr, size);
			s->ptr = 0;
		}
	}
	if (r == 0)
		r = cow__cuda_block_outside(d, s->ptr, size, bytes,
		                            cow__cuda_stream(d), single_done, s,
		                            ret);
	if (r < 0) {
		(void)single_end(s);
		cow__pool_give(&singles, s);
		return r;
	}
	cow__mutex_lock(&d->memory_lock);
	count_single(s, 1);
	cow__mutex_unlock(&d->memory_lock);
	return 0;
}

static int
single_allocate(struct cow_allocator *self, size_t bytes, struct cow_data_ptr *ret)
{
	struct cow__cuda_block *b;
	struct cow__cuda *d;
	int r = cow__cuda_get(self->device.index, &d);

	if (r < 0)
		return r;
	if (!d->virtual_memory)
		return cow__error(-ENOTSUP, "a storage of one piece needs virtual "
		                            "memory, which this driver lacks");
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = single_new(d, bytes, &b);
	cow__cuda_leave(d);
	return r < 0 ? r : pointer_on(d, b, ret);
}

/* ---- Copies and zeros -------------------------------------------------------------- */

/* Notes that the calling thread's stream uses this memory, if the memory belongs to another
 * stream. */
static int
note_use(struct cow__cuda *d, const void *data, struct cow__cu_stream *stream)
{
	struct cow__cuda_block *b = cow__cuda_block_at(d, (uintptr_t)data);

	return b ? cow__cuda_block_use(b, stream) : 0;
}

/* Enters the device, unless its stream can't be used. On success the caller leaves. */
static int
enter_usable(struct cow_device device, struct cow__cuda **ret,
             struct cow__cu_stream **ret_stream)
{
	int r = cow__cuda_get(device.index, ret);

	if (r == 0)
		r = cow__cuda_enter(*ret);
	if (r < 0)
		return r;
	*ret_stream = cow__cuda_stream(*ret);
	r = cow__cuda_usable(*ret, *ret_stream);
	if (r < 0)
		cow__cuda_leave(*ret);
	return r;
}

static int
copy_data(struct cow_allocator *self, void *dst, const void *src, size_t bytes)
{
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r = enter_usable(self->device, &d, &stream);

	if (r < 0)
		return r;
	r = note_use(d, src, stream);
	if (r == 0)
		r = note_use(d, dst, stream);
	if (r == 0)
		r = cow__cu_error(d->cu->copy_within((uintptr_t)dst,
		                                     (uintptr_t)src, bytes,
		                                     stream),
		                  "copying device memory");
	cow__cuda_leave(d);
	return r;
}

static int
zero(struct cow_device device, void *data, size_t bytes)
{
	struct cow__cu_stream *stream;
	struct cow__cuda *d;
	int r = enter_usable(device, &d, &stream);

	if (r < 0)
		return r;
	r = cow__cu_error(d->cu->set_8((uintptr_t)data, 0, bytes, stream),
	                  "clearing device memory");
	cow__cuda_leave(d);
	return r;
}

/* ---- Registered -------------------------------------------------------------------- */

struct cow_allocator *
cow__cuda_allocator(struct cow__cuda *d, bool single)
{
	return single ? &d->memory->single : &d->memory->cached;
}

int
cow__cuda_allocators_set(struct cow__cuda *devices, int count)
{
	int r = 0;

	for (int i = 0; i < count && r == 0; i++)
		r = cow__cuda_memory_new(&devices[i]);
	cow__zero[COW_DEVICE_CUDA] = zero;
	for (int i = 0; i < count && r >= 0; i++) {
		struct cow__cuda_memory *m = devices[i].memory;
		struct cow_device device = { COW_DEVICE_CUDA, (int16_t)i };

		m->cached = (struct cow_allocator){
			.size = sizeof(m->cached),
			.name = "cuda",
			.device = device,
			.allocate = cached_allocate,
			.copy_data = copy_data,
		};
		m->single = m->cached;
		m->single.allocate = single_allocate;
		r = cow_allocator_set(device, &m->cached, 0);
	}
	return r < 0 ? r : 0; /* 1: the program has set an allocator, which stays */
}

/* ---- For the program --------------------------------------------------------------- */

static int
read_options(const struct cow_cuda_options *o, struct cow_cuda_options *ret)
{
	*ret = (struct cow_cuda_options){ .size = sizeof(*ret) };
	if (!o)
		return 0;
	if (o->size < offsetof(struct cow_cuda_options, piece))
		return cow__error(-EINVAL, "cow_cuda_options: size is not set");
	for (size_t i = sizeof(*o); i < o->size; i++)
		if (((const char *)o)[i])
			return cow__error(-E2BIG, "cow_cuda_options: has members "
			                          "that this library does not "
			                          "know");
	memcpy(ret, o, cow__min(o->size, sizeof(*o)));
	if (ret->backing > COW_CUDA_PIECES)
		return cow__error(-EINVAL, "cow_cuda_options: no such backing");
	if (ret->flags & ~(uint32_t)COW_STORAGE_ZERO)
		return cow__error(-EINVAL, "cow_cuda_options: unknown flags");
	return 0;
}

COW_EXPORT int
cow_cuda_storage_new(int device, size_t bytes,
                     const struct cow_cuda_options *options,
                     struct cow_storage **ret)
{
	struct cow_storage_options storage = { .size = sizeof(storage) };
	struct cow_cuda_options o;
	struct cow__cuda *d;
	int r = read_options(options, &o);

	if (r == 0)
		r = cow__cuda_get(device, &d);
	if (r < 0)
		return r;
	if (o.backing == COW_CUDA_PIECES && bytes)
		return cow__cuda_pieces_new(d, bytes, &o, ret);
	storage.flags = o.flags;
	storage.allocator = cow__cuda_allocator(d, o.backing == COW_CUDA_SINGLE);
	return cow_storage_new(bytes, &storage, ret);
}

struct cow__cuda_block *
cow__cuda_block_of(const struct cow_storage *s)
{
	const struct cow__allocation *a = s->data;

	if (a->kind != COW__AT_FOREIGN && a->kind != COW__AT_EXTERNAL)
		return NULL;
	return cow_data_ptr_cast(&a->ptr, cow__cuda_give_context);
}

COW_EXPORT int
cow_cuda_record_stream(struct cow_storage *storage, cow_cuda_stream stream)
{
	struct cow__cuda_data *data;
	struct cow__cuda_block *b;
	struct cow__cuda *d;
	int r;

	if (!storage)
		return cow__error(-EINVAL, "cow_cuda_record_stream: NULL");
	data = cow__cuda_data_of(storage);
	if (data) {
		r = cow__cuda_get(data->device->index, &d);
		if (r == 0)
			r = cow__cuda_data_use(data, stream);
		return r < 0 ? cow__error_from(r, "cow_cuda_record_stream") : 0;
	}
	b = cow__cuda_block_of(storage);
	if (!b)
		return 0;
	r = cow__cuda_get(b->segment->device->index, &d); /* after a fork: no */
	if (r < 0)
		return r;
	r = cow__cuda_block_use(b, stream);
	return r < 0 ? cow__error_from(r, "cow_cuda_record_stream") : 0;
}

struct cow__cuda_piece *
cow__cuda_block_piece(const struct cow__cuda_block *b)
{
	const struct cow__cuda_segment *s = b->segment;

	return s->done == single_done ? ((struct single *)s->done_user)->piece : NULL;
}

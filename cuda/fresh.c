/* SPDX-License-Identifier: MIT */
/*
 * Device data: makes storages on them
 *
 * A fresh storage gets all its pieces at once. cuda/parcel.c and cuda/parcel_in.c make the
 * data of storages that are sent and received, and their storages are made here.
 */
#include "core/base/error.h"
#include "core/base/profile.h"
#include "cuda/data.h"
#include "cuda/stream.h"

int
cow__cuda_data_storage(struct cow__cuda_data *data, size_t bytes,
                       struct cow_storage **ret)
{
	struct cow_device device = { COW_DEVICE_CUDA,
		                     (int16_t)data->device->index };
	struct cow_storage like = { .device = device };
	struct cow__allocation *a;
	int r;

	/* The allocator for new bytes, when it is resized. */
	if (cow_allocator_get(device, &like.allocator) == 0)
		like.resizable = !data->alias;
	r = cow__allocation_other((void *)(uintptr_t)data->at, bytes, data,
	                          &cow__cuda_data_ops, &a);
	if (r < 0)
		return r;
	r = cow__storage_on(a, bytes, &like, ret);
	if (r < 0) {
		/* The data are still the caller's. */
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
	int r;

	if (from == all)
		return 0;
	r = cow__cuda_usable(data->device, data->stream);
	if (r < 0)
		return r;
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
		return cow__error(-ENOTSUP, "a storage of many pieces needs virtual "
		                            "memory, which this driver lacks");
	if (piece % d->granule || piece > (size_t)INT64_MAX / 2 ||
	    bytes > (size_t)INT64_MAX / 2)
		return cow__error_number(-EINVAL, "cow_cuda_options: the piece is no "
		                                  "multiple of # bytes, or a size is "
		                                  "too large", d->granule);
	r = cow__cuda_enter(d);
	if (r < 0)
		return r;
	r = cow__cuda_data_fresh(d, bytes, piece, o->flags & COW_STORAGE_ZERO, ret);
	cow__cuda_leave(d);
	return r < 0 ? cow__error_from(r, "cow_cuda_storage_new") : 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Questions about a tensor: its type, sizes, strides, storage and bits; its data
 */
#include "core/base/error.h"
#include "core/storage/storage.h"
#include "tensor/say.h"
#include "tensor/tensor.h"

COW_EXPORT enum cow_dtype
cow_tensor_dtype(const struct cow_tensor *t)
{
	return (enum cow_dtype)t->dtype;
}

COW_EXPORT int
cow_tensor_dims(const struct cow_tensor *t)
{
	return t->dims;
}

COW_EXPORT const int64_t *
cow_tensor_sizes(const struct cow_tensor *t)
{
	return t->sizes;
}

COW_EXPORT const int64_t *
cow_tensor_strides(const struct cow_tensor *t)
{
	return t->strides;
}

COW_EXPORT int64_t
cow_tensor_offset(const struct cow_tensor *t)
{
	return t->offset;
}

COW_EXPORT int64_t
cow_tensor_numel(const struct cow_tensor *t)
{
	return t->numel;
}

COW_EXPORT struct cow_device
cow_tensor_device(const struct cow_tensor *t)
{
	return cow_storage_device(t->storage);
}

COW_EXPORT bool
cow_tensor_is_conj(const struct cow_tensor *t)
{
	return t->conj;
}

COW_EXPORT bool
cow_tensor_is_neg(const struct cow_tensor *t)
{
	return t->neg;
}

COW_EXPORT struct cow_storage *
cow_tensor_storage(const struct cow_tensor *t)
{
	return t->storage;
}

/* ---- Data -------------------------------------------------------------------- */

void
cow__tensor_range(const struct cow_tensor *t, size_t *ret_offset,
                  size_t *ret_bytes)
{
	size_t item = cow_dtype_bytes((enum cow_dtype)t->dtype);
	int64_t last = 0;

	*ret_offset = *ret_bytes = 0;
	if (t->numel == 0)
		return;
	for (int i = 0; i < t->dims; i++)
		last += (t->sizes[i] - 1) * t->strides[i];
	*ret_offset = (size_t)t->offset * item;
	*ret_bytes = (size_t)(last + 1) * item;
}

int
cow__tensor_there(const struct cow_tensor *t)
{
	size_t offset, bytes, all = cow_storage_bytes(t->storage);

	cow__tensor_range(t, &offset, &bytes);
	if (cow__likely(offset + bytes <= all))
		return 0;
	return cow__say(-ERANGE, "#t: its storage shrank to #d bytes", t,
	                (int64_t)all);
}

int
cow__tensor_readable(const struct cow_tensor *t)
{
	size_t offset, bytes;
	int r;

	cow__tensor_range(t, &offset, &bytes);
	if (cow__unlikely(offset + bytes > cow_storage_bytes(t->storage)))
		return cow__tensor_there(t);
	r = cow__allocation_readable(t->storage->data, offset, bytes);
	return cow__unlikely(r < 0) ? cow__say(r, "#t: the program unmapped or "
	                                          "protected a part of it", t)
	                            : 0;
}

COW_EXPORT const void *
cow_tensor_data(const struct cow_tensor *t)
{
	size_t item;

	if (!t || t->numel == 0 ||
	    cow_storage_device(t->storage).type != COW_DEVICE_CPU ||
	    cow__tensor_there(t) < 0)
		return NULL;
	item = cow_dtype_bytes((enum cow_dtype)t->dtype);
	return (const char *)cow_storage_data(t->storage) +
	       (size_t)t->offset * item;
}

/* The bytes in the gaps between a tensor's elements are not its own. So the hint that all is
 * written must not reach the storage for a tensor with gaps. */
COW_EXPORT int
cow_tensor_data_mut(struct cow_tensor *t, enum cow_write_hint hint, void **ret)
{
	size_t offset, bytes;
	struct cow_device device;
	void *data;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_data_mut: NULL");
	device = cow_storage_device(t->storage);
	if (device.type != COW_DEVICE_CPU)
		return cow__say(-ENODEV, "cow_tensor_data_mut: #t is on #v, "
		                         "not in host memory", t, &device);
	if (t->numel == 0) {
		*ret = NULL;
		return 0;
	}
	r = cow__tensor_there(t);
	if (r < 0)
		return r;
	if (hint == COW_WRITE_ALL && !cow_tensor_is_dense(t))
		hint = COW_WRITE_AUTO;
	cow__tensor_range(t, &offset, &bytes);
	r = cow_storage_data_mut_range(t->storage, offset, bytes, hint, &data);
	if (r < 0)
		return r;
	*ret = (char *)data + offset;
	return 0;
}

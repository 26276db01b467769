/* SPDX-License-Identifier: MIT */
/*
 * Questions about a tensor: its type, sizes, strides, storage and bits
 */
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

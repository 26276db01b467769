/* SPDX-License-Identifier: MIT */
/*
 * Tensors and shapes: made, counted, freed. See the header; birth.c checks what a program says.
 */
#include "tensor/tensor.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "tensor/quantizer.h"

static struct cow__pool tensors = {
	.object_bytes = sizeof(struct cow_tensor)
};
static struct cow__pool pieces = {
	.object_bytes = 2 * COW_DIMS_MAX * sizeof(int64_t)
};

/* ---- Shapes ------------------------------------------------------------------ */

void
cow__shape_of(const struct cow_tensor *t, struct cow__shape *ret)
{
	ret->dims = t->dims;
	memcpy(ret->sizes, t->sizes, t->dims * sizeof(int64_t));
	memcpy(ret->strides, t->strides, t->dims * sizeof(int64_t));
}

int
cow__shape_numel(const struct cow__shape *shape, enum cow_dtype dtype,
                 int64_t *ret)
{
	int64_t all = (int64_t)cow_dtype_bytes(dtype), n = 1;

	for (int i = 0; i < shape->dims; i++) {
		int64_t size = shape->sizes[i];

		if (size < 0 ||
		    __builtin_mul_overflow(all, size ? size : 1, &all))
			return -EINVAL;
		n = size ? n * size : 0;
	}
	*ret = n;
	return 0;
}

int
cow__shape_extent(const struct cow__shape *shape, int64_t *ret)
{
	int64_t last = 0, step;

	for (int i = 0; i < shape->dims; i++) {
		if (shape->sizes[i] == 0) {
			*ret = 0;
			return 0;
		}
		if (__builtin_mul_overflow(shape->sizes[i] - 1,
		                           shape->strides[i], &step) ||
		    __builtin_add_overflow(last, step, &last))
			return -EINVAL;
	}
	*ret = last;
	return 0;
}

/* ---- Birth and death ------------------------------------------------------------ */

int
cow__tensor_make(struct cow_storage *storage, enum cow_dtype dtype,
                 const struct cow__shape *shape, int64_t offset,
                 enum cow_format format, struct cow_tensor **ret)
{
	size_t bytes = (size_t)shape->dims * sizeof(int64_t);
	struct cow_tensor *t = cow__pool_take(&tensors);

	if (!t)
		return -ENOMEM;
	*t = (struct cow_tensor){
		.refs = 1,
		.storage = storage,
		.offset = offset,
		.sizes = t->inside,
		.strides = t->inside + COW__DIMS_INSIDE,
		.dtype = (uint8_t)dtype,
		.dims = (uint8_t)shape->dims,
		.format = (uint8_t)format,
	};
	if (shape->dims > COW__DIMS_INSIDE) {
		t->sizes = cow__pool_take(&pieces);
		if (!t->sizes) {
			cow__pool_give(&tensors, t);
			return -ENOMEM;
		}
		t->strides = t->sizes + COW_DIMS_MAX;
		t->large = true;
	}
	memcpy(t->sizes, shape->sizes, bytes);
	memcpy(t->strides, shape->strides, bytes);
	(void)cow__shape_numel(shape, dtype, &t->numel);
	*ret = t;
	return 0;
}

void
cow__tensor_share_quantizer(struct cow_tensor *to, const struct cow_tensor *from)
{
	struct cow__quantizer *old = to->quantizer;

	if (from->quantizer)
		__atomic_fetch_add(&from->quantizer->refs, 1, __ATOMIC_RELAXED);
	to->quantizer = from->quantizer;
	to->axis = from->axis;
	if (old)
		cow__quantizer_unref(old);
}

int
cow__tensor_view(const struct cow_tensor *like, const struct cow__shape *shape,
                 int64_t offset, struct cow_tensor **ret)
{
	struct cow_tensor *t;
	int r = cow__tensor_make(like->storage, (enum cow_dtype)like->dtype,
	                         shape, offset, (enum cow_format)like->format,
	                         &t);

	if (r < 0)
		return cow__error_from(r, "a view of a tensor");
	cow_storage_ref(t->storage);
	t->conj = like->conj;
	t->neg = like->neg;
	cow__tensor_share_quantizer(t, like);
	*ret = t;
	return 0;
}

COW_EXPORT struct cow_tensor *
cow_tensor_ref(struct cow_tensor *t)
{
	if (t)
		__atomic_fetch_add(&t->refs, 1, __ATOMIC_RELAXED);
	return t;
}

COW_EXPORT struct cow_tensor *
cow_tensor_unref(struct cow_tensor *t)
{
	uint64_t before;

	if (!t)
		return NULL;
	before = __atomic_fetch_sub(&t->refs, 1, __ATOMIC_ACQ_REL);
	cow__require(before > 0);
	if (before > 1)
		return NULL;
	(void)cow_storage_unref(t->storage);
	if (t->quantizer)
		cow__quantizer_unref(t->quantizer);
	if (t->large)
		cow__pool_give(&pieces, t->sizes);
	cow__pool_give(&tensors, t);
	return NULL;
}

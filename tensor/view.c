/* SPDX-License-Identifier: MIT */
/*
 * Views: other tensors on the same storage
 *
 * A view reaches only elements of its tensor, so only the arguments need checks.
 * as_strided is the exception: it checks that its elements lie in the storage. A view
 * without elements may have any strides; nothing is computed with them.
 */
#include "core/base/error.h"
#include "tensor/dtype.h"
#include "tensor/quantized.h"
#include "tensor/say.h"

/* The number of a dimension, from 0 on; -1 is the last. `extra`: how many more there may be. */
static int
dim_of(const char *who, const struct cow_tensor *t, int dim, int extra,
       int *ret)
{
	int dims = t->dims + extra;

	if (dim < -dims || dim >= dims)
		return cow__say(-EINVAL, "#s: no dimension #d in #t", who,
		                (int64_t)dim, t);
	*ret = dim < 0 ? dim + dims : dim;
	return 0;
}

/* Sets the view's axis, if the tensor is quantized by channel, and returns the view. */
static int
with_axis(struct cow_tensor *view, int axis, struct cow_tensor **ret)
{
	if (cow__by_channel(view))
		view->axis = (int8_t)axis;
	*ret = view;
	return 0;
}

/* Gives the view a part of its channels, and returns it: see cow__quantized_pick(). */
static int
with_channels(struct cow_tensor *view, int axis, int64_t first, int64_t step,
              int64_t n, struct cow_tensor **ret)
{
	int r = cow__quantized_pick(view, axis, first, step, n);

	if (r == 0)
		*ret = view;
	return r;
}

/* A view whose first element lies `steps` times `stride` further on. */
static int
view_at(struct cow_tensor *t, const struct cow__shape *shape, int64_t steps,
        int64_t stride, struct cow_tensor **ret)
{
	int64_t numel = 0;

	(void)cow__shape_numel(shape, (enum cow_dtype)t->dtype, &numel);
	return cow__tensor_view(t, shape,
	                        t->offset + (numel ? steps * stride : 0), ret);
}

static int64_t
clamp(int64_t at, int64_t size)
{
	if (at < 0)
		at = at < -size ? 0 : at + size;
	return at > size ? size : at;
}

COW_EXPORT int
cow_tensor_slice(struct cow_tensor *t, int dim, int64_t start, int64_t end,
                 int64_t step, struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	int64_t stride;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_slice: NULL");
	r = dim_of("cow_tensor_slice", t, dim, 0, &dim);
	if (r < 0)
		return r;
	if (step <= 0)
		return cow__say(-EINVAL, "cow_tensor_slice: the step #d is not "
		                         "positive", step);
	cow__shape_of(t, &shape);
	start = clamp(start, shape.sizes[dim]);
	end = clamp(end, shape.sizes[dim]);
	stride = shape.strides[dim];
	shape.sizes[dim] = end > start ? (end - start - 1) / step + 1 : 0;
	/* A step beyond the end leaves one element, whose stride is never used. */
	if (shape.sizes[dim] > 1)
		shape.strides[dim] = cow__stride_times(stride, step);
	r = view_at(t, &shape, start, stride, &view);
	if (r < 0)
		return r;
	if (dim == t->axis)
		return with_channels(view, dim, start, step, shape.sizes[dim],
		                     ret);
	*ret = view;
	return 0;
}

static void
dim_remove(struct cow__shape *shape, int dim)
{
	size_t n = (size_t)(--shape->dims - dim) * sizeof(int64_t);

	memmove(shape->sizes + dim, shape->sizes + dim + 1, n);
	memmove(shape->strides + dim, shape->strides + dim + 1, n);
}

COW_EXPORT int
cow_tensor_select(struct cow_tensor *t, int dim, int64_t index,
                  struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	int64_t size, stride;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_select: NULL");
	r = dim_of("cow_tensor_select", t, dim, 0, &dim);
	if (r < 0)
		return r;
	cow__shape_of(t, &shape);
	size = shape.sizes[dim];
	stride = shape.strides[dim];
	if (index < -size || index >= size)
		return cow__say(-EINVAL, "cow_tensor_select: no index #d in "
		                         "dimension #d of #t", index,
		                (int64_t)dim, t);
	dim_remove(&shape, dim);
	if (index < 0)
		index += size;
	r = view_at(t, &shape, index, stride, &view);
	if (r < 0)
		return r;
	if (dim == t->axis)
		return with_channels(view, -1, index, 1, 1, ret);
	return with_axis(view, t->axis - (dim < t->axis), ret);
}

COW_EXPORT int
cow_tensor_permute(struct cow_tensor *t, const int *dims,
                   struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	uint64_t seen = 0;
	int axis = 0, r;

	if (!t || !ret || (t->dims && !dims))
		return cow__error(-EINVAL, "cow_tensor_permute: NULL");
	shape.dims = t->dims;
	for (int i = 0; i < t->dims; i++) {
		int d = 0;

		r = dim_of("cow_tensor_permute", t, dims[i], 0, &d);
		if (r < 0)
			return r;
		if (seen & (uint64_t)1 << d)
			return cow__say(-EINVAL, "cow_tensor_permute: dimension "
			                         "#d of #t appears twice",
			                (int64_t)d, t);
		seen |= (uint64_t)1 << d;
		shape.sizes[i] = t->sizes[d];
		shape.strides[i] = t->strides[d];
		if (d == t->axis)
			axis = i;
	}
	r = cow__tensor_view(t, &shape, t->offset, &view);
	return r < 0 ? r : with_axis(view, axis, ret);
}

COW_EXPORT int
cow_tensor_transpose(struct cow_tensor *t, int dim0, int dim1,
                     struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_transpose: NULL");
	r = dim_of("cow_tensor_transpose", t, dim0, 0, &dim0);
	if (r == 0)
		r = dim_of("cow_tensor_transpose", t, dim1, 0, &dim1);
	if (r < 0)
		return r;
	cow__shape_of(t, &shape);
	shape.sizes[dim0] = t->sizes[dim1];
	shape.sizes[dim1] = t->sizes[dim0];
	shape.strides[dim0] = t->strides[dim1];
	shape.strides[dim1] = t->strides[dim0];
	r = cow__tensor_view(t, &shape, t->offset, &view);
	if (r < 0)
		return r;
	return with_axis(view, t->axis == dim0   ? dim1
	                       : t->axis == dim1 ? dim0
	                                         : t->axis, ret);
}

COW_EXPORT int
cow_tensor_expand(struct cow_tensor *t, int dims, const int64_t *sizes,
                  struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	int64_t numel;
	int fresh, axis, r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_expand: NULL");
	if (dims > COW_DIMS_MAX || dims < t->dims || (dims && !sizes))
		return cow__say(-EINVAL, "cow_tensor_expand: #t can't get #d "
		                         "dimensions", t, (int64_t)dims);
	fresh = dims - t->dims;
	shape.dims = dims;
	if (dims)
		memcpy(shape.sizes, sizes, (size_t)dims * sizeof(int64_t));
	for (int i = 0; i < dims; i++) {
		int64_t had = i < fresh ? 1 : t->sizes[i - fresh];

		if (sizes[i] == -1 && i >= fresh)
			shape.sizes[i] = had;
		if (shape.sizes[i] < 0 || (had != 1 && shape.sizes[i] != had))
			return cow__say(-EINVAL, "cow_tensor_expand: #t can't "
			                         "become #z", t, &shape);
		shape.strides[i] = i < fresh || shape.sizes[i] != had
		                           ? 0
		                           : t->strides[i - fresh];
	}
	if (cow__shape_numel(&shape, (enum cow_dtype)t->dtype, &numel) < 0)
		return cow__say(-EINVAL, "cow_tensor_expand: sizes #z: too many "
		                         "bytes", &shape);
	r = cow__tensor_view(t, &shape, t->offset, &view);
	if (r < 0)
		return r;
	/* A single channel that is repeated becomes that of all. */
	axis = t->axis + fresh;
	if (cow__by_channel(t) && shape.sizes[axis] != t->sizes[t->axis])
		return with_channels(view, axis, 0, 0, shape.sizes[axis], ret);
	return with_axis(view, axis, ret);
}

COW_EXPORT int
cow_tensor_unsqueeze(struct cow_tensor *t, int dim, struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	size_t n;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_unsqueeze: NULL");
	r = dim_of("cow_tensor_unsqueeze", t, dim, 1, &dim);
	if (r < 0)
		return r;
	if (t->dims == COW_DIMS_MAX)
		return cow__say(-EINVAL, "cow_tensor_unsqueeze: #t has as many "
		                         "dimensions as there can be", t);
	cow__shape_of(t, &shape);
	n = (size_t)(shape.dims++ - dim) * sizeof(int64_t);
	memmove(shape.sizes + dim + 1, shape.sizes + dim, n);
	memmove(shape.strides + dim + 1, shape.strides + dim, n);
	shape.sizes[dim] = 1;
	shape.strides[dim] = 1;
	/* A stride that a contiguous tensor would have, for programs that look at it. */
	if (t->numel && dim + 1 < shape.dims)
		shape.strides[dim] = cow__stride_times(shape.strides[dim + 1],
		                                       shape.sizes[dim + 1]);
	r = cow__tensor_view(t, &shape, t->offset, &view);
	return r < 0 ? r : with_axis(view, t->axis + (dim <= t->axis), ret);
}

/* If the dimension's size is not 1, returns the tensor itself. */
COW_EXPORT int
cow_tensor_squeeze(struct cow_tensor *t, int dim, struct cow_tensor **ret)
{
	struct cow_tensor *view;
	struct cow__shape shape;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_squeeze: NULL");
	r = dim_of("cow_tensor_squeeze", t, dim, 0, &dim);
	if (r < 0)
		return r;
	cow__shape_of(t, &shape);
	if (shape.sizes[dim] == 1)
		dim_remove(&shape, dim);
	r = cow__tensor_view(t, &shape, t->offset, &view);
	if (r < 0)
		return r;
	if (shape.dims < t->dims && dim == t->axis)
		return with_channels(view, -1, 0, 1, 1, ret);
	return with_axis(view, t->axis - (shape.dims < t->dims &&
	                                  dim < t->axis), ret);
}

COW_EXPORT int
cow_tensor_as_strided(struct cow_tensor *t, int dims, const int64_t *sizes,
                      const int64_t *strides, int64_t offset,
                      struct cow_tensor **ret)
{
	struct cow_tensor *view;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_as_strided: NULL");
	if (cow__by_channel(t))
		return cow__say(-EINVAL, "cow_tensor_as_strided: #t is quantized "
		                         "by channel, and its channels would be "
		                         "no dimension of the view", t);
	r = cow__tensor_on("cow_tensor_as_strided", t->storage,
	                   (enum cow_dtype)t->dtype, dims, sizes, strides,
	                   offset, &view);
	if (r < 0)
		return r;
	view->conj = t->conj;
	view->neg = t->neg;
	cow__tensor_share_quantizer(view, t);
	view->format = t->format;
	*ret = view;
	return 0;
}

static int
flip(struct cow_tensor *t, bool conj, struct cow_tensor **ret)
{
	struct cow__shape shape;
	struct cow_tensor *view;
	int r;

	cow__shape_of(t, &shape);
	r = cow__tensor_view(t, &shape, t->offset, &view);
	if (r < 0)
		return r;
	view->conj ^= conj;
	view->neg ^= !conj;
	*ret = view;
	return 0;
}

COW_EXPORT int
cow_tensor_conj(struct cow_tensor *t, struct cow_tensor **ret)
{
	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_conj: NULL");
	if (!cow_dtype_is_complex((enum cow_dtype)t->dtype)) {
		*ret = cow_tensor_ref(t);
		return 0;
	}
	return flip(t, true, ret);
}

COW_EXPORT int
cow_tensor_neg(struct cow_tensor *t, struct cow_tensor **ret)
{
	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_neg: NULL");
	if (t->dtype == COW_BOOL || t->quantizer)
		return cow__say(-EINVAL, "cow_tensor_neg: #t can't be negated",
		                t);
	return flip(t, false, ret);
}

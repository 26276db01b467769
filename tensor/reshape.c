/* SPDX-License-Identifier: MIT */
/*
 * Other sizes for the same elements
 *
 * The dimensions form runs. A run is one piece in memory: its last dimension is the densest,
 * and each other one steps over the whole of the next. The new sizes must fill the runs one
 * by one, so that each new dimension lies inside one run.
 *
 *      sizes   [2, 3, 4]  strides [24, 4, 1]     runs: 2 | 3*4
 *      view as [2, 6, 2]                         strides [24, 2, 1]
 *      view as [6, 4]                            needs a copy
 */
#include "core/base/error.h"
#include "tensor/quantized.h"
#include "tensor/say.h"

/* Finds the size that is -1 from the others. */
static int
infer(const char *who, const struct cow_tensor *t, struct cow__shape *shape)
{
	int64_t n = 1;
	int at = -1;

	for (int i = 0; i < shape->dims; i++) {
		int64_t size = shape->sizes[i];

		if (size == -1 && at < 0)
			at = i;
		else if (size < 0 || __builtin_mul_overflow(n, size, &n))
			return cow__say(-EINVAL, "#s: #t can't become #z", who,
			                t, shape);
	}
	if (at >= 0 && n > 0 && t->numel % n == 0)
		shape->sizes[at] = t->numel / n;
	else if (at >= 0 && n == 0 && t->numel == 0)
		return cow__say(-EINVAL, "#s: #t can't become #z: beside a size "
		                         "of 0, -1 can be any number", who, t,
		                shape);
	else if (at >= 0 || n != t->numel)
		return cow__say(-EINVAL, "#s: #t can't become #z: the number of "
		                         "elements differs", who, t, shape);
	return 0;
}

static bool
same_sizes(const struct cow_tensor *t, const struct cow__shape *shape)
{
	return shape->dims == t->dims &&
	       memcmp(shape->sizes, t->sizes,
	              (size_t)t->dims * sizeof(int64_t)) == 0;
}

/* Finds the strides of a view with these sizes. False: the sizes need a copy. */
static bool
strides_of(const struct cow_tensor *t, struct cow__shape *shape)
{
	int at = shape->dims - 1;
	int64_t run = 1, dense = t->dims ? t->strides[t->dims - 1] : 1;

	if (same_sizes(t, shape)) {
		memcpy(shape->strides, t->strides,
		       (size_t)t->dims * sizeof(int64_t));
		return true;
	}
	if (t->numel == 0) {
		(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, shape);
		return true;
	}
	for (int i = t->dims - 1; i >= 0; i--) {
		int64_t filled = 1;

		run *= t->sizes[i];
		if (i > 0 && (t->sizes[i - 1] == 1 ||
		              t->strides[i - 1] ==
		                      cow__stride_times(dense, run)))
			continue; /* the run goes on */
		for (; at >= 0 && (filled < run || shape->sizes[at] == 1);
		     at--) {
			shape->strides[at] = cow__stride_times(dense, filled);
			filled *= shape->sizes[at];
		}
		if (filled != run)
			return false;
		run = 1;
		dense = i > 0 ? t->strides[i - 1] : 1;
	}
	for (; at >= 0; at--) /* sizes of 1 for a tensor without dimensions */
		shape->strides[at] = 1;
	return true;
}

static int
read_sizes(const char *who, const struct cow_tensor *t, int dims,
           const int64_t *sizes, struct cow__shape *ret)
{
	if (dims < 0 || dims > COW_DIMS_MAX || (dims && !sizes))
		return cow__say(-EINVAL, "#s: #d is not a number of dimensions "
		                         "from 0 to #d, or sizes is NULL", who,
		                (int64_t)dims, (int64_t)COW_DIMS_MAX);
	ret->dims = dims;
	if (dims)
		memcpy(ret->sizes, sizes, (size_t)dims * sizeof(int64_t));
	return infer(who, t, ret);
}

static int64_t
product(const int64_t *sizes, int n)
{
	int64_t p = 1;

	for (int i = 0; i < n; i++)
		p *= sizes[i] > 1 ? sizes[i] : 1;
	return p;
}

/* The dimension of these sizes that is the channels of `t`. -1: there is none; 0: `t` is not
 * quantized by channel. */
static int
axis_of(const struct cow_tensor *t, const struct cow__shape *shape)
{
	int64_t before;

	if (!cow__by_channel(t))
		return 0;
	before = product(t->sizes, t->axis);
	for (int i = 0; i < shape->dims; i++)
		if (shape->sizes[i] == t->sizes[t->axis] &&
		    product(shape->sizes, i) == before)
			return i;
	return -1;
}

COW_EXPORT int
cow_tensor_view(struct cow_tensor *t, int dims, const int64_t *sizes,
                struct cow_tensor **ret)
{
	struct cow__shape shape;
	int64_t numel;
	int axis, r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_view: NULL");
	r = read_sizes("cow_tensor_view", t, dims, sizes, &shape);
	if (r < 0)
		return r;
	/* Without elements the sizes beside the 0 may be of any value. */
	if (cow__shape_numel(&shape, (enum cow_dtype)t->dtype, &numel) < 0)
		return cow__say(-EINVAL, "cow_tensor_view: sizes #z: too many "
		                         "bytes", &shape);
	axis = axis_of(t, &shape);
	if (axis < 0)
		return cow__say(-EINVAL, "cow_tensor_view: #t is quantized by "
		                         "channel, and #z has no dimension of "
		                         "its channels", t, &shape);
	if (!strides_of(t, &shape))
		return cow__say(-EXDEV, "cow_tensor_view: as #t lies in memory, "
		                        "only a copy of it can become #z", t,
		                &shape);
	r = cow__tensor_view(t, &shape, t->offset, ret);
	if (r == 0 && cow__by_channel(t))
		(*ret)->axis = (int8_t)axis;
	return r;
}

COW_EXPORT int
cow_tensor_reshape(struct cow_tensor *t, int dims, const int64_t *sizes,
                   uint32_t flags, struct cow_tensor **ret)
{
	struct cow_tensor *mine, *view;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_reshape: NULL");
	if (flags & ~(uint32_t)COW_COPY_LAZY)
		return cow__error(-EINVAL, "cow_tensor_reshape: the only flag is "
		                           "COW_COPY_LAZY");
	r = cow_tensor_view(t, dims, sizes, &view);
	if (r == 0 && (flags & COW_COPY_LAZY)) {
		r = cow_tensor_lazy_clone(view, &mine);
		(void)cow_tensor_unref(view);
		view = mine;
	} else if (r == -EXDEV) {
		r = cow_tensor_clone(t, COW_FORMAT_CONTIGUOUS, &mine);
		if (r == 0) {
			r = cow_tensor_view(mine, dims, sizes, &view);
			(void)cow_tensor_unref(mine);
		}
	}
	if (r < 0)
		return r;
	*ret = view;
	return 0;
}

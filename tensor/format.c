/* SPDX-License-Identifier: MIT */
/*
 * Memory formats: the strides of a format, and the formats that strides fit
 *
 * A format is an order of dimensions, the densest last. Whether strides fit a format does
 * not depend on dimensions of size 1; without elements all strides fit. So strides may fit
 * several formats (sizes [N, 1, 1, 1]). A tensor keeps the format that was asked for as long
 * as its strides fit that one.
 */
#include "tensor/tensor.h"

/* The order of dimensions, from the outermost to the densest. NULL: the format is not for
 * this number of dimensions. */
static const uint8_t *
order_of(enum cow_format format, int dims)
{
	static const uint8_t last[] = { 0, 2, 3, 1 };
	static const uint8_t last_3d[] = { 0, 2, 3, 4, 1 };

	if (format == COW_FORMAT_CHANNELS_LAST && dims == 4)
		return last;
	if (format == COW_FORMAT_CHANNELS_LAST_3D && dims == 5)
		return last_3d;
	return NULL;
}

int
cow__format_strides(enum cow_format format, struct cow__shape *shape)
{
	const uint8_t *order = order_of(format, shape->dims);
	int64_t stride = 1;

	if (!order && format != COW_FORMAT_CONTIGUOUS)
		return -EINVAL;
	for (int i = shape->dims - 1; i >= 0; i--) {
		int d = order ? order[i] : i;

		shape->strides[d] = stride;
		stride *= shape->sizes[d] > 1 ? shape->sizes[d] : 1;
	}
	return 0;
}

static bool
empty(const struct cow__shape *shape)
{
	for (int i = 0; i < shape->dims; i++)
		if (shape->sizes[i] == 0)
			return true;
	return false;
}

bool
cow__format_fits(enum cow_format format, const struct cow__shape *shape)
{
	struct cow__shape right;

	if (format == COW_FORMAT_NONE)
		return true;
	right.dims = shape->dims;
	memcpy(right.sizes, shape->sizes,
	       (size_t)shape->dims * sizeof(int64_t));
	if (cow__format_strides(format, &right) < 0)
		return false;
	if (empty(shape))
		return true;
	for (int i = 0; i < shape->dims; i++)
		if (shape->sizes[i] != 1 &&
		    shape->strides[i] != right.strides[i])
			return false;
	return true;
}

/* Sorts dimensions by stride, the largest first. Dimensions of equal stride stay in order, so
 * there is one result. */
static void
sort_by_stride(const struct cow__shape *shape, uint8_t *ret)
{
	for (int i = 0; i < shape->dims; i++) {
		int j = i;

		for (; j > 0 && shape->strides[ret[j - 1]] < shape->strides[i];
		     j--)
			ret[j] = ret[j - 1];
		ret[j] = (uint8_t)i;
	}
}

bool
cow__shape_dense(const struct cow__shape *shape)
{
	uint8_t order[COW_DIMS_MAX];
	int64_t stride = 1;

	if (empty(shape))
		return true;
	sort_by_stride(shape, order);
	for (int i = shape->dims - 1; i >= 0; i--) {
		int d = order[i];

		if (shape->sizes[d] == 1)
			continue;
		if (shape->strides[d] != stride)
			return false;
		stride *= shape->sizes[d];
	}
	return true;
}

/* Must dimension `a` lie further out than `b`? 1: yes; -1: the other way round; 0: both are
 * possible. A repeated dimension (stride 0) has no place of its own. */
static int
further_out(const struct cow__shape *shape, int a, int b)
{
	int64_t x = shape->strides[a], y = shape->strides[b];

	if (x == 0 || y == 0)
		return 0;
	if (x != y)
		return x > y ? 1 : -1;
	return shape->sizes[a] > shape->sizes[b];
}

/* From the last dimension on, each moves inwards past those that must lie further out. It
 * passes a dimension for which both orders are possible only on the way to such a one.
 * PyTorch does it in this order, so results lie as they do there. */
void
cow__shape_order(const struct cow__shape *like, struct cow__shape *shape)
{
	uint8_t order[COW_DIMS_MAX]; /* the densest first */
	int64_t stride = 1;

	for (int i = 0; i < like->dims; i++) {
		int at = i;

		order[i] = (uint8_t)(like->dims - 1 - i);
		for (int k = i - 1; k >= 0; k--) {
			int way = further_out(like, order[k], order[at]);
			uint8_t moved = order[k];

			if (way < 0)
				break;
			if (way == 0)
				continue;
			order[k] = order[at];
			order[at] = moved;
			at = k;
		}
	}
	for (int i = 0; i < like->dims; i++) {
		int d = order[i];

		shape->strides[d] = stride;
		stride *= shape->sizes[d] > 1 ? shape->sizes[d] : 1;
	}
}

COW_EXPORT enum cow_format
cow_tensor_format(const struct cow_tensor *t)
{
	static const enum cow_format formats[] = {
		COW_FORMAT_CONTIGUOUS,
		COW_FORMAT_CHANNELS_LAST,
		COW_FORMAT_CHANNELS_LAST_3D,
	};
	struct cow__shape shape;

	if (!t)
		return COW_FORMAT_NONE;
	cow__shape_of(t, &shape);
	if (cow__format_fits((enum cow_format)t->format, &shape))
		return (enum cow_format)t->format;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (cow__format_fits(formats[i], &shape))
			return formats[i];
	return COW_FORMAT_NONE;
}

COW_EXPORT bool
cow_tensor_is_contiguous(const struct cow_tensor *t, enum cow_format format)
{
	struct cow__shape shape;

	if (!t || (unsigned)format > COW_FORMAT_PRESERVE)
		return false;
	if (format == COW_FORMAT_PRESERVE)
		return true; /* strides always fit the tensor's own format */
	cow__shape_of(t, &shape);
	return cow__format_fits(format, &shape);
}

/* Is it contiguous, as most tensors are? */
static bool
in_order(const struct cow_tensor *t)
{
	int64_t stride = 1;

	for (int i = t->dims; i-- > 0;) {
		if (t->sizes[i] == 1)
			continue;
		if (t->strides[i] != stride)
			return false;
		stride *= t->sizes[i];
	}
	return true;
}

COW_EXPORT bool
cow_tensor_is_dense(const struct cow_tensor *t)
{
	struct cow__shape shape;

	if (!t)
		return false;
	if (in_order(t))
		return true;
	cow__shape_of(t, &shape);
	return cow__shape_dense(&shape);
}

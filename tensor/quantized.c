/* SPDX-License-Identifier: MIT */
/*
 * Tensors that have a quantizer: views of them, and new ones. See the header.
 */
#include "tensor/quantized.h"
#include "core/base/error.h"
#include "tensor/dtype.h"
#include "tensor/say.h"

int
cow__quantized_pick(struct cow_tensor *view, int axis, int64_t first,
                    int64_t step, int64_t n)
{
	struct cow__quantizer *old = view->quantizer, *q;
	int r;

	if (!cow__by_channel(view))
		return 0;
	view->axis = (int8_t)(axis < 0 ? 0 : axis);
	if (axis >= 0 && first == 0 && step == 1 && n == old->channels)
		return 0;
	r = cow__quantizer_new(axis < 0 ? COW_QSCHEME_PER_TENSOR
	                           : COW_QSCHEME_PER_CHANNEL, n, &q);
	if (r < 0) {
		(void)cow_tensor_unref(view);
		return cow__error_from(r, "a view of a quantized tensor");
	}
	for (int64_t i = 0; i < n; i++) {
		q->scales[i] = old->scales[first + i * step];
		q->zero_points[i] = old->zero_points[first + i * step];
	}
	view->quantizer = q;
	cow__quantizer_unref(old);
	return 0;
}

bool
cow__quantized_equal(const struct cow_tensor *a, const struct cow_tensor *b)
{
	const struct cow__quantizer *p = a->quantizer, *q = b->quantizer;

	if (p == q)
		return !cow__by_channel(a) || a->axis == b->axis;
	if (!p || !q || p->scheme != q->scheme || p->channels != q->channels ||
	    (cow__by_channel(a) && a->axis != b->axis))
		return false;
	for (int64_t i = 0; i < p->channels; i++)
		if (p->scales[i] != q->scales[i] ||
		    p->zero_points[i] != q->zero_points[i])
			return false;
	return true;
}

int
cow__tensor_plain(struct cow_tensor *t, struct cow_tensor **ret)
{
	static const enum cow_dtype integer[] = {
		[COW_QUINT8 - COW__PLAIN_DTYPES] = COW_UINT8,
		[COW_QINT8 - COW__PLAIN_DTYPES] = COW_INT8,
		[COW_QINT32 - COW__PLAIN_DTYPES] = COW_INT32,
	};
	struct cow__shape shape;
	int r;

	if (!t->quantizer) {
		*ret = cow_tensor_ref(t);
		return 0;
	}
	cow__shape_of(t, &shape);
	r = cow__tensor_make(t->storage, integer[t->dtype - COW__PLAIN_DTYPES],
	                     &shape, t->offset, (enum cow_format)t->format, ret);
	if (r < 0)
		return cow__error_from(r, "the integers of a quantized tensor");
	cow_storage_ref(t->storage);
	return 0;
}

/* ---- From an argument ----------------------------------------------------------- */

/* The scale must be positive, and normal in float32, as its reciprocal, too: numbers are
 * multiplied by that. */
static bool
usable(double scale)
{
	float s = (float)scale;

	return scale > 0 && s >= 0x1p-126f && s <= 0x1p126f;
}

static int
channel_check(const char *who, enum cow_dtype dtype, double scale, int64_t zero,
              int64_t channel)
{
	int64_t least = dtype == COW_QUINT8  ? 0
	                : dtype == COW_QINT8 ? INT8_MIN
	                                     : INT32_MIN;
	int64_t most = dtype == COW_QUINT8  ? UINT8_MAX
	               : dtype == COW_QINT8 ? INT8_MAX
	                                    : INT32_MAX;

	if (!usable(scale))
		return cow__say(-EINVAL, "#s: the scale of channel #d is not "
		                         "positive, or it or its reciprocal is "
		                         "no normal float32", who, channel);
	if (zero < least || zero > most)
		return cow__say(-EINVAL, "#s: the zero point #d of channel #d is "
		                         "not in the range of #y", who, zero,
		                channel, dtype);
	return 0;
}

static int
quantizer_check(const char *who, enum cow_dtype dtype, int dims,
                const int64_t *sizes, const struct cow_quantizer *from)
{
	int r = 0;

	if (!cow__dtype_quantized(dtype))
		return cow__say(-EINVAL, "#s: #y is not a quantized type", who,
		                cow_dtype_name(dtype) ? dtype : COW_DTYPES);
	if (!from || from->size < sizeof(*from) || !from->scales ||
	    !from->zero_points)
		return cow__say(-EINVAL, "#s: the quantizer is NULL, or lacks "
		                         "its size, scales or zero points", who);
	if (from->scheme != COW_QSCHEME_PER_TENSOR &&
	    from->scheme != COW_QSCHEME_PER_CHANNEL)
		return cow__say(-EINVAL, "#s: no scheme has the number #d", who,
		                (int64_t)from->scheme);
	if (from->scheme == COW_QSCHEME_PER_TENSOR && from->channels != 1)
		return cow__say(-EINVAL, "#s: #d channels; a whole tensor has 1",
		                who, from->channels);
	if (from->scheme == COW_QSCHEME_PER_CHANNEL &&
	    (from->axis < 0 || from->axis >= dims))
		return cow__say(-EINVAL, "#s: no axis #d in #d dimensions", who,
		                (int64_t)from->axis, (int64_t)dims);
	if (from->scheme == COW_QSCHEME_PER_CHANNEL &&
	    from->channels != sizes[from->axis])
		return cow__say(-EINVAL, "#s: #d channels for a dimension of "
		                         "size #d", who, from->channels,
		                sizes[from->axis]);
	for (int64_t i = 0; r == 0 && i < from->channels; i++)
		r = channel_check(who, dtype, from->scales[i],
		                  from->zero_points[i], i);
	return r;
}

static int
arguments_check(const char *who, enum cow_dtype dtype, int dims,
                const int64_t *sizes, const struct cow_quantizer *from,
                struct cow_tensor **ret)
{
	struct cow__shape shape;
	int64_t numel;
	int r = cow__shape_read(who, dtype, dims, sizes, &shape, &numel);

	if (!ret)
		return cow__say(-EINVAL, "#s: ret is NULL", who);
	return r < 0 ? r : quantizer_check(who, dtype, dims, sizes, from);
}

/* Gives the tensor a quantizer. Takes the reference to the tensor over; a failure drops it. */
static int
quantizer_give(const char *who, struct cow_tensor *t,
               const struct cow_quantizer *from, struct cow_tensor **ret)
{
	int r = cow__quantizer_new(from->scheme, from->channels, &t->quantizer);

	if (r < 0) {
		(void)cow_tensor_unref(t);
		return cow__error_from(r, who);
	}
	for (int64_t i = 0; i < from->channels; i++) {
		t->quantizer->scales[i] = from->scales[i];
		t->quantizer->zero_points[i] = from->zero_points[i];
	}
	t->axis = (int8_t)(cow__by_channel(t) ? from->axis : 0);
	*ret = t;
	return 0;
}

COW_EXPORT int
cow_tensor_new_quantized(enum cow_dtype dtype, int dims, const int64_t *sizes,
                         const struct cow_quantizer *quantizer,
                         const struct cow_tensor_options *options,
                         struct cow_tensor **ret)
{
	const char *who = "cow_tensor_new_quantized";
	struct cow_tensor *t;
	int r = arguments_check(who, dtype, dims, sizes, quantizer, ret);

	if (r == 0)
		r = cow__tensor_new(who, dtype, dims, sizes, options, &t);
	return r < 0 ? r : quantizer_give(who, t, quantizer, ret);
}

COW_EXPORT int
cow_tensor_on_quantized(struct cow_storage *storage, enum cow_dtype dtype,
                        int dims, const int64_t *sizes, const int64_t *strides,
                        int64_t offset, const struct cow_quantizer *quantizer,
                        struct cow_tensor **ret)
{
	const char *who = "cow_tensor_on_quantized";
	struct cow_tensor *t;
	int r = arguments_check(who, dtype, dims, sizes, quantizer, ret);

	if (r == 0)
		r = cow__tensor_on(who, storage, dtype, dims, sizes, strides,
		                   offset, &t);
	return r < 0 ? r : quantizer_give(who, t, quantizer, ret);
}

COW_EXPORT int
cow_tensor_get_quantizer(const struct cow_tensor *t, struct cow_quantizer *ret)
{
	if (!t || !ret || ret->size < sizeof(*ret))
		return cow__error(-EINVAL, "cow_tensor_get_quantizer: NULL, or "
		                           "size is not set");
	if (!t->quantizer)
		return cow__say(-ENODATA, "cow_tensor_get_quantizer: #t is not "
		                          "quantized", t);
	ret->scheme = t->quantizer->scheme;
	ret->axis = t->axis;
	ret->channels = t->quantizer->channels;
	ret->scales = t->quantizer->scales;
	ret->zero_points = t->quantizer->zero_points;
	return 0;
}

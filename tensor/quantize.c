/* SPDX-License-Identifier: MIT */
/*
 * Quantizing, dequantizing, and which copies of quantized tensors are allowed
 *
 *   quantized from float32     each number is divided by its scale and rounded
 *   quantized from quantized   the bytes and the quantizer are copied, so type and
 *                              scheme must be the same
 *   others from quantized      never by a copy: see cow_tensor_dequantize()
 *
 * The arithmetic is PyTorch's, in float, so the results have the same bits: times the
 * reciprocal of the scale, plus the zero point, to the nearest integer (ties to even).
 * The product is rounded before the sum. PyTorch's vectors fuse the two where the
 * processor can, so PyTorch may differ by one near a tie. Here all machines give the same.
 */
#include "core/base/error.h"
#include "tensor/copy.h"
#include "tensor/dtype.h"
#include "tensor/quantized.h"
#include "tensor/say.h"
#include "core/memory/workers.h"

/* Makes vectors, also of comparisons, and no fused products on processors that have them. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define WIDE
#else
#define WIDE                                                                   \
	__attribute__((optimize("O3", "fp-contract=off", "no-trapping-math")))
#endif

static const struct cow_device host = { COW_DEVICE_CPU, 0 };

/* ---- Rows of one scale -------------------------------------------------------------- */

/* A sum with it has no bits left for a fraction. */
#define ROUNDER 0x1.8p23f
/* Larger than all numbers of 8 bits, and small enough for ROUNDER. */
#define FAR 0x1p20f

#define QUANTIZE_ROW(type, least, most)                                        \
	WIDE static void quantize_##type(type *to, const float *from, int64_t n, \
	                                 float inverse, float zero)            \
	{                                                                      \
		for (int64_t i = 0; i < n; i++) {                              \
			float v = from[i] * inverse + zero;                    \
                                                                               \
			v = v == v ? v : FAR;                                  \
			v = v < -FAR ? -FAR : v;                               \
			v = v > FAR ? FAR : v;                                 \
			v = (v + ROUNDER) - ROUNDER;                           \
			v = v < least ? least : v;                             \
			v = v > most ? most : v;                               \
			to[i] = (type)(int32_t)v;                              \
		}                                                              \
	}
QUANTIZE_ROW(uint8_t, 0.0f, 255.0f)
QUANTIZE_ROW(int8_t, -128.0f, 127.0f)

WIDE static void
quantize_int32(int32_t *to, const float *from, int64_t n, float inverse,
               float zero)
{
	for (int64_t i = 0; i < n; i++) {
		float v = from[i] * inverse + zero;

		if (v > -0x1p22f && v < 0x1p22f)
			v = (v + ROUNDER) - ROUNDER;
		else if (v > -0x1p23f && v < 0x1p23f)
			v = v < 0 ? (v - 0x1p23f) + 0x1p23f
			          : (v + 0x1p23f) - 0x1p23f;
		to[i] = v >= 0x1p31f    ? INT32_MAX
		        : v >= -0x1p31f ? (int32_t)v
		                        : INT32_MIN; /* NaN, too */
	}
}

/* The difference fits `wide`. PyTorch takes the scale of a whole tensor as a float, but those
 * of channels as doubles. */
#define DEQUANTIZE_ROW(name, type, wide, real)                                 \
	WIDE static void name(float *to, const type *from, int64_t n,          \
	                      double scale, int64_t zero_point)                \
	{                                                                      \
		real s = (real)scale;                                          \
		wide zero = (wide)zero_point;                                  \
                                                                               \
		for (int64_t i = 0; i < n; i++)                                \
			to[i] = (float)(s * (float)((wide)from[i] - zero));    \
	}
DEQUANTIZE_ROW(whole_uint8, uint8_t, int32_t, float)
DEQUANTIZE_ROW(whole_int8, int8_t, int32_t, float)
DEQUANTIZE_ROW(whole_int32, int32_t, int64_t, float)
DEQUANTIZE_ROW(channel_uint8, uint8_t, int32_t, double)
DEQUANTIZE_ROW(channel_int8, int8_t, int32_t, double)
DEQUANTIZE_ROW(channel_int32, int32_t, int64_t, double)

/* ---- All rows, by several threads ------------------------------------------------- */

struct job {
	enum cow_dtype dtype; /* the quantized one */
	bool back;
	char *to;
	const char *from;
	int64_t inner, channels; /* elements of a row; rows go through the channels in turn */
	const struct cow__quantizer *q;
};

static void
quantize_row(const struct job *j, int64_t first, int64_t n, int64_t channel)
{
	const float *from = (const float *)(const void *)j->from + first;
	float inverse = 1 / (float)j->q->scales[channel];
	float zero = (float)j->q->zero_points[channel];
	void *to = j->to + first * (int64_t)cow_dtype_bytes(j->dtype);

	if (j->dtype == COW_QUINT8)
		quantize_uint8_t(to, from, n, inverse, zero);
	else if (j->dtype == COW_QINT8)
		quantize_int8_t(to, from, n, inverse, zero);
	else
		quantize_int32(to, from, n, inverse, zero);
}

static void
dequantize_row(const struct job *j, int64_t first, int64_t n, int64_t channel)
{
	bool whole = j->q->scheme == COW_QSCHEME_PER_TENSOR;
	const void *from = j->from + first * (int64_t)cow_dtype_bytes(j->dtype);
	float *to = (float *)(void *)j->to + first;
	double scale = j->q->scales[channel];
	int64_t zero = j->q->zero_points[channel];

	if (j->dtype == COW_QUINT8)
		(whole ? whole_uint8 : channel_uint8)(to, from, n, scale, zero);
	else if (j->dtype == COW_QINT8)
		(whole ? whole_int8 : channel_int8)(to, from, n, scale, zero);
	else
		(whole ? whole_int32 : channel_int32)(to, from, n, scale, zero);
}

/* Elements [first, last). */
static void
quantize_part(void *arg, int64_t first, int64_t last)
{
	const struct job *j = arg;

	while (first < last) {
		int64_t index = first / j->inner;
		int64_t n = cow__min(last, (index + 1) * j->inner) - first;

		(j->back ? dequantize_row : quantize_row)(j, first, n,
		                                          index % j->channels);
		first += n;
	}
}

#define GRAIN 65536

/* Computes between dense host tensors of the same strides; by channel, contiguous ones. */
static int
compute(struct cow_tensor *to, struct cow_tensor *from,
        const struct cow_tensor *quantized, bool back)
{
	struct job j = {
		.dtype = (enum cow_dtype)quantized->dtype,
		.back = back,
		.inner = to->numel,
		.channels = 1,
		.q = quantized->quantizer,
	};
	void *data;
	int r;

	if (to->numel == 0)
		return 0;
	if (cow__by_channel(quantized)) {
		j.inner = 1;
		for (int i = quantized->axis + 1; i < to->dims; i++)
			j.inner *= to->sizes[i];
		j.channels = j.q->channels;
	}
	r = cow_tensor_data_mut(to, COW_WRITE_ALL, &data);
	if (r < 0)
		return r;
	j.to = data;
	j.from = cow_tensor_data(from);
	cow__workers_run(to->numel, GRAIN, quantize_part, &j);
	return 0;
}

static bool
on_host(const struct cow_tensor *t)
{
	return cow_storage_device(t->storage).type == COW_DEVICE_CPU;
}

static bool
same_strides(const struct cow_tensor *a, const struct cow_tensor *b)
{
	for (int i = 0; i < a->dims; i++)
		if (a->sizes[i] > 1 && a->strides[i] != b->strides[i])
			return false;
	return true;
}

/* ---- Quantized from numbers ----------------------------------------------------------- */

/* Can the loops write to the destination itself? */
static bool
can_compute_into(const struct cow_tensor *to, const struct cow_tensor *from)
{
	return on_host(to) && on_host(from) && !from->neg &&
	       to->storage != from->storage && same_strides(to, from) &&
	       cow__overlap_of(to, from) == COW__OVERLAP_NONE &&
	       (cow__by_channel(to)
	                ? cow_tensor_is_contiguous(to, COW_FORMAT_CONTIGUOUS)
	                : cow_tensor_is_dense(to));
}

/* Quantizes contiguous numbers to a contiguous temporary, and copies that. */
static int
quantize_staged(struct cow_tensor *to, struct cow_tensor *plain,
                struct cow_tensor *from, uint32_t flags)
{
	const struct cow_to here = {
		.size = sizeof(here),
		.dtype = -1,
		.device = host,
		.set_device = true,
		.copy = !cow_tensor_is_contiguous(from, COW_FORMAT_CONTIGUOUS) ||
		        from->neg,
		.format = COW_FORMAT_CONTIGUOUS,
	};
	struct cow_tensor *numbers, *bytes;
	struct cow__shape shape;
	int r = cow_tensor_to(from, &here, &numbers);

	if (r < 0)
		return r;
	cow__shape_of(to, &shape);
	(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, &shape);
	r = cow__tensor_fresh((enum cow_dtype)plain->dtype, &shape,
	                      COW_FORMAT_CONTIGUOUS, host, NULL, &bytes);
	if (r == 0) {
		r = compute(bytes, numbers, to, false);
		if (r == 0)
			r = cow_tensor_copy(plain, bytes, flags);
		(void)cow_tensor_unref(bytes);
	}
	(void)cow_tensor_unref(numbers);
	return r;
}

static int
from_numbers(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags)
{
	struct cow_tensor *plain;
	int r;

	if (cow_storage_device(from->storage).type == COW_DEVICE_META)
		return cow__say(-ENODATA, "cow_tensor_copy: #t is a meta tensor, "
		                          "which has no bytes to copy from",
		                from);
	r = cow__tensor_readable(from);
	if (r < 0)
		return r;
	if (can_compute_into(to, from))
		return compute(to, from, to, false);
	r = cow__tensor_plain(to, &plain);
	if (r < 0)
		return r;
	/* The temporary overlaps nothing; the destination may overlap itself. */
	r = quantize_staged(to, plain, from,
	                    flags & COW_COPY_IGNORE_OVERLAP);
	(void)cow_tensor_unref(plain);
	return r;
}

/* ---- Quantized from quantized ------------------------------------------------------ */

static int
from_quantized(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags,
               struct cow_work *work)
{
	struct cow_tensor *a, *b;
	int r;

	if (to->dtype != from->dtype)
		return cow__say(-EINVAL, "cow_tensor_copy: #t can't be copied to "
		                         "#t: dequantize it first", from, to);
	if (to->quantizer->scheme != from->quantizer->scheme)
		return cow__say(-EINVAL, "cow_tensor_copy: #t is quantized #s, "
		                         "#t #s: dequantize one first", from,
		                cow__by_channel(from) ? "by channel" : "as a whole",
		                to, cow__by_channel(to) ? "by channel" : "as a whole");
	r = cow__tensor_plain(to, &a);
	if (r < 0)
		return r;
	r = cow__tensor_plain(from, &b);
	if (r == 0) {
		r = cow__tensor_copy(a, b, flags, work);
		if (r == 0)
			cow__tensor_share_quantizer(to, from);
		(void)cow_tensor_unref(b);
	}
	(void)cow_tensor_unref(a);
	return r;
}

static int
copy_expanded(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags,
              struct cow_work *work)
{
	if (from->quantizer)
		return from_quantized(to, from, flags, work);
	if (from->dtype != COW_FLOAT32)
		return cow__say(-EINVAL, "cow_tensor_copy: #t can be quantized "
		                         "only from float32, not from #t", to,
		                from);
	if (to->numel == 0 ||
	    cow_storage_device(to->storage).type == COW_DEVICE_META)
		return 0;
	return from_numbers(to, from, flags);
}

int
cow__copy_quantized(struct cow_tensor *to, struct cow_tensor *from,
                    uint32_t flags, struct cow_work *work)
{
	struct cow_tensor *source;
	int r;

	if (to == from)
		return 0;
	if (!to->quantizer)
		return cow__say(-EINVAL, "cow_tensor_copy: #t can't be copied to "
		                         "#t; cow_tensor_dequantize() makes "
		                         "float32 of it", from, to);
	r = cow__tensor_broadcast(to, from, &source);
	if (r < 0)
		return r;
	r = copy_expanded(to, source, flags, work);
	(void)cow_tensor_unref(source);
	return r;
}

/* ---- By themselves --------------------------------------------------------------------- */

COW_EXPORT int
cow_tensor_quantize(struct cow_tensor *t, enum cow_dtype dtype,
                    const struct cow_quantizer *quantizer,
                    struct cow_tensor **ret)
{
	struct cow_tensor_options o = { .size = sizeof(o) };
	struct cow_tensor *fresh;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_quantize: NULL");
	o.device = cow_storage_device(t->storage);
	o.format = cow_tensor_format(t);
	if (o.format == COW_FORMAT_NONE)
		o.format = COW_FORMAT_CONTIGUOUS;
	r = cow_tensor_new_quantized(dtype, t->dims, t->sizes, quantizer, &o,
	                             &fresh);
	if (r < 0)
		return r;
	r = cow_tensor_copy(fresh, t, 0);
	if (r < 0) {
		(void)cow_tensor_unref(fresh);
		return r;
	}
	*ret = fresh;
	return 0;
}

/* Dequantizes to host memory; the result lies as a dense tensor does, else is contiguous. */
static int
dequantize_here(struct cow_tensor *t, struct cow_tensor *plain,
                struct cow_tensor **ret)
{
	bool as_it_lies = !cow__by_channel(t) && cow_tensor_is_dense(t);
	struct cow_to here = {
		.size = sizeof(here),
		.dtype = -1,
		.device = host,
		.set_device = true,
		.format = as_it_lies ? COW_FORMAT_PRESERVE
		                     : COW_FORMAT_CONTIGUOUS,
	};
	struct cow_tensor *bytes, *numbers;
	struct cow__shape shape;
	int r = cow_tensor_to(plain, &here, &bytes);

	if (r < 0)
		return r;
	cow__shape_of(bytes, &shape);
	r = cow__tensor_fresh(COW_FLOAT32, &shape, (enum cow_format)t->format,
	                      host, NULL, &numbers);
	if (r == 0) {
		r = compute(numbers, bytes, t, true);
		if (r < 0)
			(void)cow_tensor_unref(numbers);
		else
			*ret = numbers;
	}
	(void)cow_tensor_unref(bytes);
	return r;
}

COW_EXPORT int
cow_tensor_dequantize(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_to there = {
		.size = sizeof(there),
		.dtype = -1,
		.set_device = true,
		.format = COW_FORMAT_PRESERVE,
	};
	struct cow_tensor *plain, *numbers;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_dequantize: NULL");
	if (!t->quantizer)
		return cow__say(-EINVAL, "cow_tensor_dequantize: #t is not "
		                         "quantized", t);
	there.device = cow_storage_device(t->storage);
	r = cow__tensor_readable(t);
	if (r == 0)
		r = cow__tensor_plain(t, &plain);
	if (r < 0)
		return r;
	r = dequantize_here(t, plain, &numbers);
	(void)cow_tensor_unref(plain);
	if (r < 0)
		return r;
	r = cow_tensor_to(numbers, &there, ret);
	(void)cow_tensor_unref(numbers);
	return r;
}

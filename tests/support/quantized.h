/* SPDX-License-Identifier: MIT */
/*
 * Test support: quantized tensors
 */
#ifndef COWSHED_TESTS_QUANTIZED_H
#define COWSHED_TESTS_QUANTIZED_H

#include "tests/support/tensors.h"

#include <string.h>

static const double three_scales[] = { 0.5, 1.0, 2.0 };
static const int64_t three_zeros[] = { 0, 10, 200 };

static inline struct cow_quantizer one_pair(const double *scale, const int64_t *zero)
{
	return (struct cow_quantizer){
		.size = sizeof(struct cow_quantizer),
		.scheme = COW_QSCHEME_PER_TENSOR,
		.channels = 1,
		.scales = scale,
		.zero_points = zero,
	};
}

static inline struct cow_quantizer by_channel(int axis)
{
	return (struct cow_quantizer){
		.size = sizeof(struct cow_quantizer),
		.scheme = COW_QSCHEME_PER_CHANNEL,
		.axis = axis,
		.channels = 3,
		.scales = three_scales,
		.zero_points = three_zeros,
	};
}

static inline struct cow_quantizer quantizer_of(const struct cow_tensor *t)
{
	struct cow_quantizer q = { .size = sizeof(q) };

	ok(cow_tensor_get_quantizer(t, &q));
	return q;
}

static inline struct cow_tensor *floats(int dims, const int64_t *sizes, float step)
{
	struct cow_tensor *t = tensor_new(COW_FLOAT32, dims, sizes,
	                                  COW_FORMAT_CONTIGUOUS);
	void *p;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	for (int64_t i = 0; i < cow_tensor_numel(t); i++)
		((float *)p)[i] = step * (float)i;
	return t;
}

/* quint8 [2, 3, 4] of 0, 1, 2, ... with channels on dimension 1. */
static inline struct cow_tensor *channels(void)
{
	struct cow_quantizer q = by_channel(1);
	struct cow_tensor *t;
	unsigned char *p;

	ok(cow_tensor_new_quantized(COW_QUINT8, 3, SIZES(2, 3, 4), &q, NULL, &t));
	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, (void **)&p));
	for (int i = 0; i < 24; i++)
		p[i] = (unsigned char)i;
	return t;
}

static inline struct cow_tensor *whole(enum cow_dtype dtype, double scale, int64_t zero,
                                const char *bytes, int64_t n)
{
	struct cow_quantizer q = one_pair(&scale, &zero);
	struct cow_tensor *t;
	void *p;

	ok(cow_tensor_new_quantized(dtype, 1, &n, &q, NULL, &t));
	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	memcpy(p, bytes, (size_t)n * cow_dtype_bytes(dtype));
	return t;
}

static inline void ck_floats(struct cow_tensor *t, int n, const float *want)
{
	struct cow_tensor *c;

	ok(cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, 0, &c));
	ck_assert_int_eq(cow_tensor_numel(c), n);
	for (int i = 0; i < n; i++)
		ck_assert_msg(((const float *)cow_tensor_data(c))[i] == want[i],
		              "element %d is %g, not %g", i,
		              (double)((const float *)cow_tensor_data(c))[i],
		              (double)want[i]);
	cow_tensor_unref(c);
}

/* What each element of a tensor on `channels()` stands for, told by its byte. */
static inline void ck_meaning(struct cow_tensor *t)
{
	struct cow_tensor *d, *c;
	const unsigned char *bytes;
	const float *f;

	ok(cow_tensor_dequantize(t, &d));
	ok(cow_tensor_contiguous(d, COW_FORMAT_CONTIGUOUS, 0, &c));
	cow_tensor_unref(d);
	ok(cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, 0, &d));
	bytes = cow_tensor_data(d);
	f = cow_tensor_data(c);
	for (int64_t i = 0; i < cow_tensor_numel(t); i++) {
		int k = bytes[i] / 4 % 3;

		ck_assert_msg(f[i] == (float)(three_scales[k] *
		                              (bytes[i] - (double)three_zeros[k])),
		              "byte %d stands for %g", bytes[i], (double)f[i]);
	}
	cow_tensor_unref(c);
	cow_tensor_unref(d);
}

static inline void ck_axis(struct cow_tensor *t, int axis, int64_t n, double first)
{
	struct cow_quantizer q = quantizer_of(t);

	ck_assert_int_eq(q.scheme, axis < 0 ? COW_QSCHEME_PER_TENSOR
	                                    : COW_QSCHEME_PER_CHANNEL);
	if (axis >= 0)
		ck_assert_int_eq(q.axis, axis);
	ck_assert_int_eq(q.channels, n);
	must(q.scales[0] == first);
	ck_meaning(t);
}

#endif

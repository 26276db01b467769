/* SPDX-License-Identifier: MIT */
/*
 * Quantizers: the numbers that the bytes of a quantized tensor stand for
 *
 *      number = scale * (byte - zero point)
 *
 * All elements have one scale and one zero point; or each index of one dimension, the
 * *axis*, has its own. A quantizer never changes, so views share it by a reference count.
 * The axis belongs to the tensor: a permuted view has the same quantizer on another
 * dimension.
 */
#ifndef COW_TENSOR_QUANTIZER_H
#define COW_TENSOR_QUANTIZER_H

#include "cowshed-tensor.h"

struct cow__quantizer {
	uint64_t refs;
	uint32_t scheme; /* enum cow_qscheme */
	int64_t channels;
	double *scales;
	int64_t *zero_points;
	struct cow_storage *table; /* has the scales and zero points; NULL: they are in `one` */
	struct {
		double scale;
		int64_t zero_point;
	} one;
};

/* With room for the scales and zero points, which the caller fills in. */
int cow__quantizer_new(uint32_t scheme, int64_t channels, struct cow__quantizer **ret);

void cow__quantizer_unref(struct cow__quantizer *q);

#endif

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
 *
 * The layers below the copy rules (tensor/copy.h) know no quantizers. They move the bytes
 * as plain integers (cow__tensor_plain()).
 */
#ifndef COW_TENSOR_QUANTIZER_H
#define COW_TENSOR_QUANTIZER_H

#include "tensor/tensor.h"

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

void cow__quantizer_unref(struct cow__quantizer *q);

/* Gives the quantizer and axis of `from` to a tensor of the same sizes. Does nothing if
 * `from` has none. */
void cow__quantizer_share(struct cow_tensor *to, const struct cow_tensor *from);

/*
 * Gives a view that was just made the channels first, first + step, ... of its quantizer,
 * `n` in all, on dimension `axis`. `axis` -1: one channel for the whole tensor. Does
 * nothing for tensors that are not quantized by channel. A failure drops the view's
 * reference.
 */
int cow__quantizer_pick(struct cow_tensor *view, int axis, int64_t first,
                        int64_t step, int64_t n);

bool cow__quantizer_equal(const struct cow_tensor *a, const struct cow_tensor *b);

static inline bool
cow__by_channel(const struct cow_tensor *t)
{
	return t->quantizer &&
	       t->quantizer->scheme == COW_QSCHEME_PER_CHANNEL;
}

/* A view of the same bytes as plain integers. */
int cow__tensor_plain(struct cow_tensor *t, struct cow_tensor **ret);

struct cow_work;

/* A copy in which at least one side is quantized. copy.c has checked the flags. */
int cow__copy_quantized(struct cow_tensor *to, struct cow_tensor *from,
                        uint32_t flags, struct cow_work *work);

#endif

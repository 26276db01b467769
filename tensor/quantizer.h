/* SPDX-License-Identifier: MIT */
/*
 * What the bytes of a quantized tensor mean
 *
 *      number = scale * (byte - zero point)
 *
 * of all elements alike, or of each index of one dimension, the axis. A quantizer
 * never changes once it is made, so views share it by a count. The axis is the
 * tensor's: permuted, a view has the same quantizer on another dimension.
 *
 * Nothing below the copy rules knows of quantizers: bytes are moved as those of the
 * plain integers that they are (cow__tensor_plain()).
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
	struct cow_storage *table; /* where these lie; NULL: in `one` */
	struct {
		double scale;
		int64_t zero_point;
	} one;
};

void cow__quantizer_unref(struct cow__quantizer *q);

/* A quantized tensor's, given to another one of the same sizes. Without: nothing. */
void cow__quantizer_share(struct cow_tensor *to, const struct cow_tensor *from);

/*
 * The channels first, first + step... of a view that was just made, on dimension
 * `axis`; -1: a single one, for the whole tensor. Of tensors that are not quantized by
 * channel: nothing. On failure the view is given back.
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

/* The same bytes as the integers that they are. */
int cow__tensor_plain(struct cow_tensor *t, struct cow_tensor **ret);

struct cow_work;

/* A copy of which one side at least is quantized (copy.c has checked the flags). */
int cow__copy_quantized(struct cow_tensor *to, struct cow_tensor *from,
                        uint32_t flags, struct cow_work *work);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Tensors that have a quantizer, and their views
 *
 * The layers below the copy rules (tensor/copy.h) know no quantizers. They move the bytes
 * as plain integers (cow__tensor_plain()).
 */
#ifndef COW_TENSOR_QUANTIZED_H
#define COW_TENSOR_QUANTIZED_H

#include "tensor/quantizer.h"
#include "tensor/tensor.h"

/*
 * Gives a view that was just made the channels first, first + step, ... of its quantizer,
 * `n` in all, on dimension `axis`. `axis` -1: one channel for the whole tensor. Does
 * nothing for tensors that are not quantized by channel. A failure drops the view's
 * reference.
 */
int cow__quantized_pick(struct cow_tensor *view, int axis, int64_t first,
                        int64_t step, int64_t n);

bool cow__quantized_equal(const struct cow_tensor *a, const struct cow_tensor *b);

static inline bool
cow__by_channel(const struct cow_tensor *t)
{
	return t->quantizer &&
	       t->quantizer->scheme == COW_QSCHEME_PER_CHANNEL;
}

/* A view of the same bytes as plain integers. */
int cow__tensor_plain(struct cow_tensor *t, struct cow_tensor **ret);

#endif

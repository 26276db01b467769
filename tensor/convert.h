/* SPDX-License-Identifier: MIT */
/*
 * Conversions of rows of elements
 *
 * The rules are in cowshed-tensor.h. One function for each pair of types, in plain C;
 * the pairs that matter have vector versions besides, picked once by what the
 * processor has. All versions give the same bits, NaN payloads included where both
 * types are the same; a test compares them.
 */
#ifndef COW_TENSOR_CONVERT_H
#define COW_TENSOR_CONVERT_H

#include "cowshed-tensor.h"

enum cow__convert_bits {
	COW__CONVERT_CONJ = 1 << 0,
	COW__CONVERT_NEG = 1 << 1,
};

/* `n` elements, strides in bytes (the element's size: dense). conj and neg apply to
 * the source's value, before the conversion. */
typedef void cow__convert_fn(void *to, int64_t to_stride, const void *from,
                             int64_t from_stride, int64_t n);

/* Never NULL for types below COW_DTYPES. */
cow__convert_fn *cow__convert(enum cow_dtype to, enum cow_dtype from,
                              unsigned bits);

/* The plain one, which all others must agree with. */
cow__convert_fn *cow__convert_plain(enum cow_dtype to, enum cow_dtype from,
                                    unsigned bits);

#endif

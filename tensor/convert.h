/* SPDX-License-Identifier: MIT */
/*
 * Conversions of rows of elements
 *
 * The rules are in cowshed-tensor.h. One function for each pair of types, in plain C;
 * the pairs that matter have vector versions besides, picked once by what the
 * processor has. All versions give the same bits, NaN payloads included; a test
 * compares them.
 *
 * conj and neg change bits of the source's type. So they are a step of their own,
 * before the conversion, through a small buffer: a function for every type instead of
 * three more for every pair.
 */
#ifndef COW_TENSOR_CONVERT_H
#define COW_TENSOR_CONVERT_H

#include "cowshed-tensor.h"

enum cow__convert_bits {
	COW__CONVERT_CONJ = 1 << 0,
	COW__CONVERT_NEG = 1 << 1,
};

/* `n` elements, strides in bytes (the element's size: dense). The two rows don't
 * overlap, or are the same place with the same stride; or the caller does not mind
 * which of the old elements are there in the end. */
typedef void cow__convert_fn(void *to, int64_t to_stride, const void *from,
                             int64_t from_stride, int64_t n);

struct cow__conversion {
	cow__convert_fn *convert; /* never NULL */
	cow__convert_fn *resolve; /* conj and neg of the source; NULL: none */
	uint32_t from_bytes;      /* of an element */
};

/* For types that are numbers by themselves (tensor/dtype.h). `bits` that mean nothing to the type are ignored. */
struct cow__conversion cow__conversion(enum cow_dtype to, enum cow_dtype from,
                                       unsigned bits);

void cow__convert(const struct cow__conversion *conversion, void *to,
                  int64_t to_stride, const void *from, int64_t from_stride,
                  int64_t n);

/* The plain function of a pair, which all others must agree with. */
cow__convert_fn *cow__convert_plain(enum cow_dtype to, enum cow_dtype from);

/* The vector version of this level (0: what every processor of this kind has), or
 * NULL: no such pair, or this processor can't run it. */
#define COW__VECTOR_LEVELS 3
cow__convert_fn *cow__convert_vector(int level, enum cow_dtype to,
                                     enum cow_dtype from);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Conversions of rows of elements
 *
 * cowshed-tensor.h has the rules. Each pair of types has a function in plain C. Frequent
 * pairs have vector versions, too, which are picked once, by what the processor has. All
 * versions give the same bits, NaN payloads included; a test compares them.
 *
 * conj and neg change bits of the source's type. So they are a step of their own, before
 * the conversion, through a small buffer. This takes a function for each type, not three
 * more for each pair.
 */
#ifndef COW_TENSOR_CONVERT_H
#define COW_TENSOR_CONVERT_H

#include "tensor/vector.h"

enum cow__convert_bits {
	COW__CONVERT_CONJ = 1 << 0,
	COW__CONVERT_NEG = 1 << 1,
};

struct cow__conversion {
	cow__convert_fn *convert; /* never NULL */
	cow__convert_fn *resolve; /* conj and neg of the source; NULL: none */
	uint32_t from_bytes;      /* of an element */
};

/* For the plain types (tensor/dtype.h). `bits`: enum cow__convert_bits, of the source; those
 * that its type does not have are ignored. */
struct cow__conversion cow__conversion(enum cow_dtype to, enum cow_dtype from,
                                       unsigned bits);

void cow__convert(const struct cow__conversion *conversion, void *to,
                  int64_t to_stride, const void *from, int64_t from_stride,
                  int64_t n);

/* The plain function of a pair. All other versions must give the same bits. */
cow__convert_fn *cow__convert_plain(enum cow_dtype to, enum cow_dtype from);

/* The vector version of this level (tensor/vector.h), or NULL: no such pair, or this
 * processor can't run it. */
cow__convert_fn *cow__convert_vector(int level, enum cow_dtype to,
                                     enum cow_dtype from);

#endif

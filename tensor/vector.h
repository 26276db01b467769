/* SPDX-License-Identifier: MIT */
/*
 * Vector versions of conversions: a file for each level, all made of vector_loops.h
 */
#ifndef COW_TENSOR_VECTOR_H
#define COW_TENSOR_VECTOR_H

#include "cowshed-tensor.h"

#define COW__VECTOR_LEVELS 3

/* Converts `n` elements. Strides are in bytes; a stride of the element's size is dense. The
 * two rows don't overlap, or are the same place with the same stride. In any other overlap
 * an element may be read after it was overwritten. */
typedef void cow__convert_fn(void *to, int64_t to_stride, const void *from,
                             int64_t from_stride, int64_t n);

/* Can this processor run that level? 0: what all processors of this architecture have
 * (SSE2, NEON); 1: AVX2 with F16C; 2: AVX-512. */
bool cow__vector_can(int level);

/* NULL: there is none for this pair. The processor must be able to run the level. */
cow__convert_fn *cow__vector_base(enum cow_dtype to, enum cow_dtype from);
#if defined(__x86_64__)
cow__convert_fn *cow__vector_avx2(enum cow_dtype to, enum cow_dtype from);
cow__convert_fn *cow__vector_avx512(enum cow_dtype to, enum cow_dtype from);
#endif

#endif

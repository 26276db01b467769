/* SPDX-License-Identifier: MIT */
/*
 * Vector versions of conversions: a file for each level, all made of vector_loops.h
 */
#ifndef COW_TENSOR_VECTOR_H
#define COW_TENSOR_VECTOR_H

#include "tensor/convert.h"

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

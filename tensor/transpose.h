/* SPDX-License-Identifier: MIT */
/*
 * Small transpositions
 */
#ifndef COW_TENSOR_TRANSPOSE_H
#define COW_TENSOR_TRANSPOSE_H

#include <stdint.h>

/* Unit (i, j) of ni times nj units of `bytes` bytes: from + i * from_i + j * from_j goes
 * to to + i * to_i + j * to_j. Fast where to_i and from_j are `bytes`. */
void cow__transpose(char *to, int64_t to_i, int64_t to_j, const char *from,
                    int64_t from_i, int64_t from_j, int64_t ni, int64_t nj,
                    int64_t bytes);

/* The same where to_i and from_j are `bytes`, in vectors: of the first so many i, which
 * may be 0. With from_i of `bytes` * nj, all that lies there is of the source, and what
 * lies between rows of `to` is never touched. */
typedef int64_t cow__squares_fn(char *to, int64_t to_j, const char *from,
                                int64_t from_i, int64_t ni, int64_t nj,
                                int64_t bytes);
cow__squares_fn cow__squares_base;
#if defined(__x86_64__)
cow__squares_fn cow__squares_avx2, cow__squares_avx512;
#endif

/* The one of this level (vector.h); NULL: not on this processor. */
cow__squares_fn *cow__squares(int level);

#endif

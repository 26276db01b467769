/* SPDX-License-Identifier: MIT */
/*
 * Small transpositions
 */
#ifndef COW_TENSOR_TRANSPOSE_H
#define COW_TENSOR_TRANSPOSE_H

#include <stdint.h>

/* Copies ni times nj units of `bytes` bytes: from + i * from_i + j * from_j goes to
 * to + i * to_i + j * to_j. Fast where to_i and from_j are `bytes`. */
void cow__transpose(char *to, int64_t to_i, int64_t to_j, const char *from,
                    int64_t from_i, int64_t from_j, int64_t ni, int64_t nj,
                    int64_t bytes);

/* The same in vectors, where to_i and from_j are `bytes`. Returns how many i it has done, from
 * the first on; it may be 0. If from_i is `bytes` * nj, it may read all bytes from `from` to
 * the end of the last row. It never writes between the rows of `to`. */
typedef int64_t cow__squares_fn(char *to, int64_t to_j, const char *from,
                                int64_t from_i, int64_t ni, int64_t nj,
                                int64_t bytes);
cow__squares_fn cow__squares_base;
#if defined(__x86_64__)
cow__squares_fn cow__squares_avx2, cow__squares_avx512;
#endif

/* The function of this level (vector.h); NULL: this processor can't run it. */
cow__squares_fn *cow__squares(int level);

#endif

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

#endif

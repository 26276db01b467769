/* SPDX-License-Identifier: MIT */
/*
 * Test support: tensors in one word
 */
#ifndef COWSHED_TESTS_TENSORS_H
#define COWSHED_TESTS_TENSORS_H

#include "tests/support/support.h"

#include <cowshed-tensor.h>

#define SIZES(...) ((const int64_t[]){ __VA_ARGS__ })
#define NDIMS(...) ((int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

/* tensor(COW_INT8, 2, 3): sizes [2, 3], elements unspecified. */
#define tensor(dtype, ...)                                                     \
	tensor_new(dtype, NDIMS(__VA_ARGS__), SIZES(__VA_ARGS__),              \
	           COW_FORMAT_CONTIGUOUS)
struct cow_tensor *tensor_new(enum cow_dtype dtype, int dims,
                              const int64_t *sizes, enum cow_format format);

/* The same on another device: 0 or 1, of the fake ones. */
struct cow_tensor *tensor_on_fake(int index, enum cow_dtype dtype, int dims,
                                  const int64_t *sizes);
struct cow_tensor *tensor_on_meta(enum cow_dtype dtype, int dims,
                                  const int64_t *sizes);

/* An int32 tensor of 0, 1, 2, ... in the order of its storage. */
#define counting(...)                                                          \
	tensor_counting(NDIMS(__VA_ARGS__), SIZES(__VA_ARGS__))
struct cow_tensor *tensor_counting(int dims, const int64_t *sizes);

/* Views, each of which takes the place of its tensor, which is given back. */
struct cow_tensor *slice(struct cow_tensor *t, int dim, int64_t start,
                         int64_t end, int64_t step);
struct cow_tensor *transpose(struct cow_tensor *t, int dim0, int dim1);
#define expand(t, ...)                                                         \
	tensor_expand(t, NDIMS(__VA_ARGS__), SIZES(__VA_ARGS__))
struct cow_tensor *tensor_expand(struct cow_tensor *t, int dims,
                                 const int64_t *sizes);

/* Asserts the elements of an int32 tensor, in the order of its dimensions. */
#define ck_elements(t, ...)                                                    \
	tensor_is(t, (int)(sizeof((int32_t[]){ __VA_ARGS__ }) / 4),            \
	          (const int32_t[]){ __VA_ARGS__ })
void tensor_is(struct cow_tensor *t, int64_t n, const int32_t *elements);

/* Asserts sizes, or strides. */
#define ck_sizes(t, ...)                                                       \
	tensor_numbers(cow_tensor_sizes(t), t, NDIMS(__VA_ARGS__),             \
	               SIZES(__VA_ARGS__))
#define ck_strides(t, ...)                                                     \
	tensor_numbers(cow_tensor_strides(t), t, NDIMS(__VA_ARGS__),           \
	               SIZES(__VA_ARGS__))
void tensor_numbers(const int64_t *have, struct cow_tensor *t, int dims,
                    const int64_t *want);

#endif

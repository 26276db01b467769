/* SPDX-License-Identifier: MIT */
/*
 * What a tensor is made of
 *
 * The shape never changes after birth, so views and readers need no lock.
 */
#ifndef COW_TENSOR_TENSOR_H
#define COW_TENSOR_TENSOR_H

#include "cowshed-tensor.h"

/* Small tensors keep their shape inside; larger ones get a second piece. */
#define COW__DIMS_INSIDE 5

struct cow_tensor {
	uint64_t refs;
	struct cow_storage *storage; /* a reference */
	int64_t offset, numel;       /* elements */
	int64_t *sizes, *strides;
	uint8_t dtype, dims, format; /* as asked for: see cow_tensor_format() */
	bool conj, neg;
	int64_t inside[2 * COW__DIMS_INSIDE];
};

struct cow__shape {
	int dims;
	int64_t sizes[COW_DIMS_MAX], strides[COW_DIMS_MAX];
};

/* Strides of a format, for these sizes. -EINVAL: not for so many dimensions. */
int cow__format_strides(enum cow_format format, struct cow__shape *shape);
bool cow__format_fits(enum cow_format format, const struct cow__shape *shape);

/* A tensor with `like`'s type and bits on the same storage. */
int cow__tensor_view(const struct cow_tensor *like, const struct cow__shape *shape,
                     int64_t offset, struct cow_tensor **ret);

#endif

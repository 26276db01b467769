/* SPDX-License-Identifier: MIT */
/*
 * The copy engine: N-dimensional strided copies in host memory
 *
 *   job -> reorder dimensions by stride -> coalesce -> pick a kernel -> threads
 *
 * The engine knows addresses, sizes and strides of bytes; no tensors, storages or devices.
 * A dimension of size 1 may have any stride. Strides of the source may be 0 (broadcast);
 * strides of both sides may be negative. The two sides don't overlap, unless they are the
 * same place with the same strides.
 *
 *   kernel      when                                                limited by
 *   memcpy      same type, both sides dense after coalescing        memory
 *   rows        the inner dimension is dense on both sides          memory
 *   tiles       the dense dimensions differ (a permutation):        memory
 *               blocks that fit the cache, transposed in registers
 *   convert     types differ, or conj or neg: vectors in dense      mostly memory
 *               rows, one by one with strides
 */
#ifndef COW_TENSOR_STRIDED_H
#define COW_TENSOR_STRIDED_H

#include "cowshed-tensor.h"

struct cow__side {
	char *data; /* the engine only reads the source's */
	enum cow_dtype dtype;
	int64_t strides[COW_DIMS_MAX]; /* bytes */
};

struct cow__strided {
	int dims;
	int64_t sizes[COW_DIMS_MAX];
	struct cow__side to, from;
	bool conj, neg; /* of the source's elements: applied by the copy */
};

/* Can't fail. Without threads or vectors it is slower. */
void cow__strided_copy(const struct cow__strided *job);

/* Simplifies a job in place, as PyTorch's TensorIterator does; it copies the same elements.
 * Drops dimensions of size 1. Orders the others so that the last one is the densest of the
 * destination. Merges dimensions that are one on both sides. A job without elements gets
 * one dimension of size 0. */
void cow__strided_simplify(struct cow__strided *job);

#endif

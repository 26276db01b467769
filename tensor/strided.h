/* SPDX-License-Identifier: MIT */
/*
 * The copy engine: N-dimensional strided copies in host memory
 *
 *   job -> reorder dimensions by stride -> coalesce -> pick a kernel -> threads
 *
 * Knows no tensors, storages or devices: addresses, sizes and strides of bytes. All
 * dimensions of size 1 may have any stride. Strides of the source may be 0 (broadcast)
 * and, of either, negative; the two sides don't overlap, unless they are the same
 * place with the same strides.
 *
 *   kernel      when                                                cost
 *   memcpy      same type, both dense after coalescing              memory
 *   rows        inner dimension dense on both sides                 memory
 *   tiles       the dense dimensions differ: a permutation. Blocks  memory
 *               that fit the cache, transposed in registers
 *   convert     types differ, or conj or neg: vectorized in rows,   memory, mostly
 *               scalar with strides
 */
#ifndef COW_TENSOR_STRIDED_H
#define COW_TENSOR_STRIDED_H

#include "cowshed-tensor.h"

struct cow__side {
	char *data; /* of the source: only read */
	enum cow_dtype dtype;
	int64_t strides[COW_DIMS_MAX]; /* bytes */
};

struct cow__strided {
	int dims;
	int64_t sizes[COW_DIMS_MAX];
	struct cow__side to, from;
	bool conj, neg; /* of the elements that are read: applied when copying */
};

/* Cannot fail: without threads or vectors it is slower. */
void cow__strided_copy(const struct cow__strided *job);

/* Simplifies a job in place: drops dimensions of size 1, orders the others so that
 * the last one is the densest of the destination, merges those that are one on both
 * sides (as PyTorch's TensorIterator does). The copy is the same. A job without
 * elements: size 0 in one dimension. */
void cow__strided_simplify(struct cow__strided *job);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The kinds of data types
 */
#ifndef COW_TENSOR_DTYPE_H
#define COW_TENSOR_DTYPE_H

#include "cowshed-tensor.h"

enum cow__kind {
	COW__KIND_BOOL,
	COW__KIND_INT,
	COW__KIND_UINT,
	COW__KIND_FLOAT,
	COW__KIND_COMPLEX,
	COW__KIND_QUANTIZED,
};

/* Types below this one are *plain*: numbers without a quantizer, which convert into each
 * other. */
#define COW__PLAIN_DTYPES COW_QUINT8

bool cow__dtype_known(int64_t dtype);

/* The type must be known. */
enum cow__kind cow__dtype_kind(enum cow_dtype dtype);

static inline bool
cow__dtype_quantized(int64_t dtype)
{
	return dtype >= COW__PLAIN_DTYPES && dtype < COW_DTYPES;
}

/* An element's address must be a multiple of this. A complex element is two floats. */
size_t cow__dtype_alignment(enum cow_dtype dtype);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What a tensor is made of
 *
 * The shape never changes after birth, so views and readers need no lock.
 */
#ifndef COW_TENSOR_TENSOR_H
#define COW_TENSOR_TENSOR_H

#include "core/base/base.h"
#include "cowshed-tensor.h"

/* Small tensors keep their shape inside; larger ones get a second piece. */
#define COW__DIMS_INSIDE 5

struct cow__quantizer;

struct cow_tensor {
	uint64_t refs;
	struct cow_storage *storage; /* a reference */
	int64_t offset, numel;       /* elements */
	int64_t *sizes, *strides;
	uint8_t dtype, dims, format; /* as asked for: see cow_tensor_format() */
	bool conj, neg;
	bool large; /* the shape is a second piece */
	int8_t axis; /* of a quantizer by channel */
	struct cow__quantizer *quantizer; /* a reference; NULL: not quantized */
	int64_t inside[2 * COW__DIMS_INSIDE];
};

struct cow__shape {
	int dims;
	int64_t sizes[COW_DIMS_MAX], strides[COW_DIMS_MAX];
};

/* A stride times a size or a step. INT64_MAX if an int64 can't hold it: only of what
 * has no elements, or one, is that somebody's stride. */
static inline int64_t
cow__stride_times(int64_t stride, int64_t by)
{
	int64_t all;

	return __builtin_mul_overflow(stride, by, &all) ? INT64_MAX : all;
}

/* Strides of a format, for these sizes. -EINVAL: not for so many dimensions. */
int cow__format_strides(enum cow_format format, struct cow__shape *shape);
bool cow__format_fits(enum cow_format format, const struct cow__shape *shape);

/* Sizes and strides of a tensor, to be changed. */
void cow__shape_of(const struct cow_tensor *tensor, struct cow__shape *ret);

/* How many elements. -EINVAL: a negative size, or more bytes than an int64 counts,
 * also of what would be there were empty dimensions not empty. */
int cow__shape_numel(const struct cow__shape *shape, enum cow_dtype dtype,
                     int64_t *ret);

/* Sizes, from an argument, and how many elements: for public functions, whose name
 * is `who`. Says what is wrong. */
int cow__shape_read(const char *who, enum cow_dtype dtype, int dims,
                    const int64_t *sizes, struct cow__shape *ret,
                    int64_t *ret_numel);

/* The distance from the first element to the last one, in elements. -EINVAL: more
 * than an int64 counts. Strides are not negative. */
int cow__shape_extent(const struct cow__shape *shape, int64_t *ret);
bool cow__shape_dense(const struct cow__shape *shape);

/* The strides of a dense tensor whose dimensions lie in the same order. */
void cow__shape_order(const struct cow__shape *like, struct cow__shape *shape);

/* Bytes of the storage from the first to behind the last element; 0, 0 for none. */
void cow__tensor_range(const struct cow_tensor *tensor, size_t *ret_offset,
                       size_t *ret_bytes);

/* -ERANGE, and a sentence: the storage shrank since the tensor was made, and no longer
 * holds all elements. */
int cow__tensor_there(const struct cow_tensor *tensor);

/* A fresh tensor with these strides, which are dense. The format is what it was
 * asked for as. `like`, if it is on that device, says whose memory it gets. */
int cow__tensor_fresh(enum cow_dtype dtype, const struct cow__shape *shape,
                      enum cow_format format, struct cow_device device,
                      const struct cow_tensor *like, struct cow_tensor **ret);

/* As cow_tensor_new() and cow_tensor_on(), of quantized types, too: the caller gives
 * the tensor its quantizer. `who` is the public function. */
int cow__tensor_new(const char *who, enum cow_dtype dtype, int dims,
                    const int64_t *sizes,
                    const struct cow_tensor_options *options,
                    struct cow_tensor **ret);
int cow__tensor_on(const char *who, struct cow_storage *storage,
                   enum cow_dtype dtype, int dims, const int64_t *sizes,
                   const int64_t *strides, int64_t offset,
                   struct cow_tensor **ret);

/* The tensor on a storage, whose reference it takes over on success. No checks of
 * where the elements are. */
int cow__tensor_make(struct cow_storage *storage, enum cow_dtype dtype,
                     const struct cow__shape *shape, int64_t offset,
                     enum cow_format format, struct cow_tensor **ret);

/* A tensor with `like`'s type, bits and quantizer on the same storage. */
int cow__tensor_view(const struct cow_tensor *like, const struct cow__shape *shape,
                     int64_t offset, struct cow_tensor **ret);

#endif

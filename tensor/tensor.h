/* SPDX-License-Identifier: MIT */
/*
 * Tensors and shapes
 *
 * A tensor's shape never changes after it was made, so views and readers need no lock.
 */
#ifndef COW_TENSOR_TENSOR_H
#define COW_TENSOR_TENSOR_H

#include "core/base/base.h"
#include "cowshed-tensor.h"

/* Tensors of up to so many dimensions keep their shape inside; others have a second object
 * for it. */
#define COW__DIMS_INSIDE 5

struct cow__quantizer;

struct cow_tensor {
	uint64_t refs;
	struct cow_storage *storage; /* a reference */
	int64_t offset, numel;       /* elements */
	int64_t *sizes, *strides;
	uint8_t dtype, dims;
	uint8_t format; /* that was asked for: see cow_tensor_format() */
	bool conj, neg;
	bool large; /* the shape is a second object */
	int8_t axis; /* of a quantizer by channel */
	struct cow__quantizer *quantizer; /* a reference; NULL: not quantized */
	int64_t inside[2 * COW__DIMS_INSIDE];
};

struct cow__shape {
	int dims;
	int64_t sizes[COW_DIMS_MAX], strides[COW_DIMS_MAX];
};

/* A stride times a size or a step; INT64_MAX if an int64 can't hold it. Only a dimension
 * without elements, or with one, has such a stride, and it is never used. */
static inline int64_t
cow__stride_times(int64_t stride, int64_t by)
{
	int64_t all;

	return __builtin_mul_overflow(stride, by, &all) ? INT64_MAX : all;
}

/* Sets the strides of a format for these sizes. -EINVAL: the format is not for this number
 * of dimensions. */
int cow__format_strides(enum cow_format format, struct cow__shape *shape);
bool cow__format_fits(enum cow_format format, const struct cow__shape *shape);

/* A copy of a tensor's sizes and strides, for the caller to change. */
void cow__shape_of(const struct cow_tensor *tensor, struct cow__shape *ret);

/* The number of elements. -EINVAL: a size is negative, or there are more bytes than an int64
 * counts. Sizes of 0 count as 1 in that. */
int cow__shape_numel(const struct cow__shape *shape, enum cow_dtype dtype,
                     int64_t *ret);

/* Reads sizes from the arguments of the public function `who`, and counts the elements.
 * Leaves a sentence if they are wrong. */
int cow__shape_read(const char *who, enum cow_dtype dtype, int dims,
                    const int64_t *sizes, struct cow__shape *ret,
                    int64_t *ret_numel);

/* The distance from the first element to the last one, in elements. Strides must not be
 * negative. -EINVAL: more than an int64 counts. */
int cow__shape_extent(const struct cow__shape *shape, int64_t *ret);
bool cow__shape_dense(const struct cow__shape *shape);

/* Sets dense strides whose dimensions lie in the order of those of `like`. */
void cow__shape_order(const struct cow__shape *like, struct cow__shape *shape);

/* The range of the storage's bytes that has all elements; 0, 0 if there are none. */
void cow__tensor_range(const struct cow_tensor *tensor, size_t *ret_offset,
                       size_t *ret_bytes);

/* 0; or -ERANGE and a sentence: the storage shrank since the tensor was made, and does not
 * hold all elements. */
int cow__tensor_there(const struct cow_tensor *tensor);

/* The same for a tensor that is about to be read. Also -EFAULT: the program unmapped or
 * protected a part of it. */
int cow__tensor_readable(const struct cow_tensor *tensor);

/* A fresh tensor with these strides, which must be dense, and this format. If `like` is on
 * that device, which is not the CPU, the memory comes from its allocator. */
int cow__tensor_fresh(enum cow_dtype dtype, const struct cow__shape *shape,
                      enum cow_format format, struct cow_device device,
                      const struct cow_tensor *like, struct cow_tensor **ret);

/* As cow_tensor_new() and cow_tensor_on(), also for quantized types: then the caller gives
 * the tensor its quantizer. `who` is the public function. */
int cow__tensor_new(const char *who, enum cow_dtype dtype, int dims,
                    const int64_t *sizes,
                    const struct cow_tensor_options *options,
                    struct cow_tensor **ret);
int cow__tensor_on(const char *who, struct cow_storage *storage,
                   enum cow_dtype dtype, int dims, const int64_t *sizes,
                   const int64_t *strides, int64_t offset,
                   struct cow_tensor **ret);

/* A tensor on a storage; takes the reference to the storage over on success. Does not check
 * that the elements lie in it. */
int cow__tensor_make(struct cow_storage *storage, enum cow_dtype dtype,
                     const struct cow__shape *shape, int64_t offset,
                     enum cow_format format, struct cow_tensor **ret);

/* Gives the quantizer and axis of `from` to a tensor of the same sizes. Does nothing if
 * `from` has none. */
void cow__tensor_share_quantizer(struct cow_tensor *to, const struct cow_tensor *from);

/* A tensor with `like`'s type, bits and quantizer on the same storage. */
int cow__tensor_view(const struct cow_tensor *like, const struct cow__shape *shape,
                     int64_t offset, struct cow_tensor **ret);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Tensors of what a program says: checked, and with memory
 *
 * This file checks once that a tensor is valid: an int64 counts the bytes of its sizes, and
 * its elements lie in the storage. So all other files may multiply and add sizes and
 * strides of a tensor without checking for overflow.
 */
#include "core/base/error.h"
#include "core/storage/storage.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/say.h"
#include "tensor/tensor.h"

int
cow__shape_read(const char *who, enum cow_dtype dtype, int dims,
                const int64_t *sizes, struct cow__shape *ret,
                int64_t *ret_numel)
{
	if (!cow__dtype_known(dtype))
		return cow__say(-EINVAL, "#s: no data type has the number #d",
		                who, (int64_t)dtype);
	if (dims < 0 || dims > COW_DIMS_MAX || (dims && !sizes))
		return cow__say(-EINVAL, "#s: #d is not a number of dimensions "
		                         "from 0 to #d, or sizes is NULL", who,
		                (int64_t)dims, (int64_t)COW_DIMS_MAX);
	ret->dims = dims;
	if (dims)
		memcpy(ret->sizes, sizes, (size_t)dims * sizeof(int64_t));
	if (cow__shape_numel(ret, dtype, ret_numel) < 0)
		return cow__say(-EINVAL, "#s: sizes #z of #y: negative, or "
		                         "too many bytes", who, ret, dtype);
	return 0;
}

static int
storage_for(size_t bytes, struct cow_device device,
            const struct cow_tensor_options *o, struct cow_storage **ret)
{
	struct cow_storage_options so = {
		.size = sizeof(so),
		.flags = o->storage_flags,
		.allocator = o->allocator,
	};
	int r;

	if (device.type == COW_DEVICE_META) {
		struct cow_data_ptr none = { .device = device };

		so.allocator = NULL;
		return cow_storage_new_external(&none, bytes, &so, ret);
	}
	if (!so.allocator) {
		r = cow_allocator_get(device, &so.allocator);
		if (r < 0)
			return r;
	}
	if (so.allocator->device.type != device.type ||
	    so.allocator->device.index != device.index)
		return o->allocator
		               ? cow__say(-ENODEV, "the allocator makes memory "
		                                   "of #v, not of #v",
		                          &so.allocator->device, &device)
		               : cow__say(-ENODEV, "no allocator makes memory "
		                                   "of #v", &device);
	if (device.type != COW_DEVICE_CPU && (so.flags & COW_STORAGE_ZERO))
		return cow__say(-EINVAL, "COW_STORAGE_ZERO is for memory of "
		                         "the host, not of #v", &device);
	return cow_storage_new(bytes, &so, ret);
}

static int
options_read(const struct cow_tensor_options *o, struct cow_tensor_options *ret)
{
	*ret = (struct cow_tensor_options){ .size = sizeof(*ret) };
	if (!o)
		return 0;
	if (o->size < offsetof(struct cow_tensor_options, allocator))
		return cow__error(-EINVAL,
		                  "cow_tensor_options: size is not set");
	for (size_t i = sizeof(*ret); i < o->size; i++)
		if (((const char *)o)[i])
			return cow__error(-E2BIG,
			                  "cow_tensor_options: has members that "
			                  "this library does not know");
	memcpy(ret, o, cow__min(o->size, sizeof(*ret)));
	cow__device_resolve(&ret->device);
	return 0;
}

static int
tensor_new(enum cow_dtype dtype, const struct cow__shape *shape,
           int64_t numel, const struct cow_tensor_options *o,
           struct cow_tensor **ret)
{
	struct cow_storage *storage;
	int r = storage_for((size_t)numel * cow_dtype_bytes(dtype), o->device,
	                    o, &storage);

	if (r < 0)
		return r;
	r = cow__tensor_make(storage, dtype, shape, 0,
	                     (enum cow_format)o->format, ret);
	if (r < 0) {
		(void)cow_storage_unref(storage);
		return cow__error_passed(r, "cow_tensor_new");
	}
	return 0;
}

int
cow__tensor_fresh(enum cow_dtype dtype, const struct cow__shape *shape,
                  enum cow_format format, struct cow_device device,
                  const struct cow_tensor *like, struct cow_tensor **ret)
{
	struct cow_tensor_options o = {
		.size = sizeof(o),
		.device = device,
		.format = format,
	};
	int64_t numel;
	int r = cow__shape_numel(shape, dtype, &numel);

	/* A tensor whose memory came from an allocator gets more from the same one. */
	if (like && device.type != COW_DEVICE_CPU &&
	    like->storage->device.type == device.type &&
	    like->storage->device.index == device.index)
		o.allocator = like->storage->allocator;
	/* A view that repeats elements may have more bytes than memory can have. */
	if (r < 0)
		return cow__say(r, "sizes #z of #y: too many bytes", shape,
		                dtype);
	return tensor_new(dtype, shape, numel, &o, ret);
}

int
cow__tensor_new(const char *who, enum cow_dtype dtype, int dims,
                const int64_t *sizes, const struct cow_tensor_options *options,
                struct cow_tensor **ret)
{
	struct cow_tensor_options o;
	struct cow__shape shape;
	int64_t numel;
	int r;

	if (!ret)
		return cow__say(-EINVAL, "#s: ret is NULL", who);
	r = options_read(options, &o);
	if (r == 0)
		r = cow__shape_read(who, dtype, dims, sizes, &shape, &numel);
	if (r < 0)
		return r;
	if (cow__format_strides((enum cow_format)o.format, &shape) < 0)
		return cow__say(-EINVAL, "#s: sizes #z can't be in the format "
		                         "#f", who, &shape,
		                (enum cow_format)o.format);
	return tensor_new(dtype, &shape, numel, &o, ret);
}

/* Bytes of a quantized type mean nothing without a quantizer. */
static int
needs_quantizer(const char *who, enum cow_dtype dtype)
{
	return cow__say(-EINVAL, "#s: #y needs a quantizer; #s_quantized() "
	                         "takes one", who, dtype, who);
}

COW_EXPORT int
cow_tensor_new(enum cow_dtype dtype, int dims, const int64_t *sizes,
               const struct cow_tensor_options *options,
               struct cow_tensor **ret)
{
	if (cow__dtype_quantized(dtype))
		return needs_quantizer("cow_tensor_new", dtype);
	return cow__tensor_new("cow_tensor_new", dtype, dims, sizes, options,
	                       ret);
}

/* Does every element lie in the storage, at an address that its type may have? */
static int
lies_in(const struct cow_storage *storage, enum cow_dtype dtype,
        const struct cow__shape *shape, int64_t numel, int64_t offset)
{
	int64_t item = (int64_t)cow_dtype_bytes(dtype), last, end;

	if (numel == 0)
		return 0;
	if (cow__shape_extent(shape, &last) < 0 ||
	    __builtin_add_overflow(last, offset, &last) ||
	    __builtin_add_overflow(last, 1, &last) ||
	    __builtin_mul_overflow(last, item, &end) ||
	    (size_t)end > cow_storage_bytes(storage))
		return cow__say(-ERANGE, "#y #z: an element outside of a "
		                         "storage of #d bytes", dtype, shape,
		                (int64_t)cow_storage_bytes(storage));
	if ((uintptr_t)cow_storage_data(storage) % cow__dtype_alignment(dtype))
		return cow__say(-ERANGE, "#y needs addresses that are multiples "
		                         "of #d", dtype,
		                (int64_t)cow__dtype_alignment(dtype));
	return 0;
}

int
cow__tensor_on(const char *who, struct cow_storage *storage,
               enum cow_dtype dtype, int dims, const int64_t *sizes,
               const int64_t *strides, int64_t offset, struct cow_tensor **ret)
{
	struct cow__shape shape;
	int64_t numel;
	int r;

	if (!storage || !ret)
		return cow__say(-EINVAL, "#s: NULL", who);
	r = cow__shape_read(who, dtype, dims, sizes, &shape, &numel);
	if (r < 0)
		return r;
	if (strides)
		memcpy(shape.strides, strides, (size_t)dims * sizeof(int64_t));
	else
		(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, &shape);
	for (int i = 0; i < dims; i++)
		if (shape.strides[i] < 0)
			return cow__say(-EINVAL, "#s: the stride #d of "
			                         "dimension #d is negative",
			                who, shape.strides[i], (int64_t)i);
	if (offset < 0)
		return cow__say(-EINVAL, "#s: the offset #d is negative", who,
		                offset);
	r = lies_in(storage, dtype, &shape, numel, offset);
	if (r < 0)
		return r;
	r = cow__tensor_make(storage, dtype, &shape, offset,
	                     COW_FORMAT_CONTIGUOUS, ret);
	if (r < 0)
		return cow__error_from(r, who);
	cow_storage_ref(storage);
	return 0;
}

COW_EXPORT int
cow_tensor_on(struct cow_storage *storage, enum cow_dtype dtype, int dims,
              const int64_t *sizes, const int64_t *strides, int64_t offset,
              struct cow_tensor **ret)
{
	if (cow__dtype_quantized(dtype))
		return needs_quantizer("cow_tensor_on", dtype);
	return cow__tensor_on("cow_tensor_on", storage, dtype, dims, sizes,
	                      strides, offset, ret);
}

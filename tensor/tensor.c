/* SPDX-License-Identifier: MIT */
/*
 * Tensors: made, freed, and plain access
 *
 * This file checks once that a tensor is valid: an int64 counts the bytes of its sizes, and
 * its elements lie in the storage. So all other files may multiply and add sizes and
 * strides of a tensor without checking for overflow.
 */
#include "tensor/tensor.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/storage/storage.h"
#include "tensor/copy.h"
#include "tensor/dtype.h"
#include "tensor/quantizer.h"
#include "tensor/say.h"

static struct cow__pool tensors = {
	.object_bytes = sizeof(struct cow_tensor)
};
static struct cow__pool pieces = {
	.object_bytes = 2 * COW_DIMS_MAX * sizeof(int64_t)
};

/* ---- Shapes ------------------------------------------------------------------ */

void
cow__shape_of(const struct cow_tensor *t, struct cow__shape *ret)
{
	ret->dims = t->dims;
	memcpy(ret->sizes, t->sizes, t->dims * sizeof(int64_t));
	memcpy(ret->strides, t->strides, t->dims * sizeof(int64_t));
}

int
cow__shape_numel(const struct cow__shape *shape, enum cow_dtype dtype,
                 int64_t *ret)
{
	int64_t all = (int64_t)cow_dtype_bytes(dtype), n = 1;

	for (int i = 0; i < shape->dims; i++) {
		int64_t size = shape->sizes[i];

		if (size < 0 ||
		    __builtin_mul_overflow(all, size ? size : 1, &all))
			return -EINVAL;
		n = size ? n * size : 0;
	}
	*ret = n;
	return 0;
}

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

int
cow__shape_extent(const struct cow__shape *shape, int64_t *ret)
{
	int64_t last = 0, step;

	for (int i = 0; i < shape->dims; i++) {
		if (shape->sizes[i] == 0) {
			*ret = 0;
			return 0;
		}
		if (__builtin_mul_overflow(shape->sizes[i] - 1,
		                           shape->strides[i], &step) ||
		    __builtin_add_overflow(last, step, &last))
			return -EINVAL;
	}
	*ret = last;
	return 0;
}

void
cow__tensor_range(const struct cow_tensor *t, size_t *ret_offset,
                  size_t *ret_bytes)
{
	size_t item = cow_dtype_bytes((enum cow_dtype)t->dtype);
	int64_t last = 0;

	*ret_offset = *ret_bytes = 0;
	if (t->numel == 0)
		return;
	for (int i = 0; i < t->dims; i++)
		last += (t->sizes[i] - 1) * t->strides[i];
	*ret_offset = (size_t)t->offset * item;
	*ret_bytes = (size_t)(last + 1) * item;
}

int
cow__tensor_there(const struct cow_tensor *t)
{
	size_t offset, bytes, all = cow_storage_bytes(t->storage);

	cow__tensor_range(t, &offset, &bytes);
	if (cow__likely(offset + bytes <= all))
		return 0;
	return cow__say(-ERANGE, "#t: its storage shrank to #d bytes", t,
	                (int64_t)all);
}

int
cow__tensor_readable(const struct cow_tensor *t)
{
	size_t offset, bytes;
	int r;

	cow__tensor_range(t, &offset, &bytes);
	if (cow__unlikely(offset + bytes > cow_storage_bytes(t->storage)))
		return cow__tensor_there(t);
	r = cow__allocation_readable(t->storage->data, offset, bytes);
	return cow__unlikely(r < 0) ? cow__say(r, "#t: the program unmapped or "
	                                          "protected a part of it", t)
	                            : 0;
}

/* ---- Birth and death ------------------------------------------------------------ */

int
cow__tensor_make(struct cow_storage *storage, enum cow_dtype dtype,
                 const struct cow__shape *shape, int64_t offset,
                 enum cow_format format, struct cow_tensor **ret)
{
	size_t bytes = (size_t)shape->dims * sizeof(int64_t);
	struct cow_tensor *t = cow__pool_take(&tensors);

	if (!t)
		return -ENOMEM;
	*t = (struct cow_tensor){
		.refs = 1,
		.storage = storage,
		.offset = offset,
		.sizes = t->inside,
		.strides = t->inside + COW__DIMS_INSIDE,
		.dtype = (uint8_t)dtype,
		.dims = (uint8_t)shape->dims,
		.format = (uint8_t)format,
	};
	if (shape->dims > COW__DIMS_INSIDE) {
		t->sizes = cow__pool_take(&pieces);
		if (!t->sizes) {
			cow__pool_give(&tensors, t);
			return -ENOMEM;
		}
		t->strides = t->sizes + COW_DIMS_MAX;
		t->large = true;
	}
	memcpy(t->sizes, shape->sizes, bytes);
	memcpy(t->strides, shape->strides, bytes);
	(void)cow__shape_numel(shape, dtype, &t->numel);
	*ret = t;
	return 0;
}

int
cow__tensor_view(const struct cow_tensor *like, const struct cow__shape *shape,
                 int64_t offset, struct cow_tensor **ret)
{
	struct cow_tensor *t;
	int r = cow__tensor_make(like->storage, (enum cow_dtype)like->dtype,
	                         shape, offset, (enum cow_format)like->format,
	                         &t);

	if (r < 0)
		return cow__error_from(r, "a view of a tensor");
	cow_storage_ref(t->storage);
	t->conj = like->conj;
	t->neg = like->neg;
	cow__quantizer_share(t, like);
	*ret = t;
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

COW_EXPORT struct cow_tensor *
cow_tensor_ref(struct cow_tensor *t)
{
	if (t)
		__atomic_fetch_add(&t->refs, 1, __ATOMIC_RELAXED);
	return t;
}

COW_EXPORT struct cow_tensor *
cow_tensor_unref(struct cow_tensor *t)
{
	uint64_t before;

	if (!t)
		return NULL;
	before = __atomic_fetch_sub(&t->refs, 1, __ATOMIC_ACQ_REL);
	cow__require(before > 0);
	if (before > 1)
		return NULL;
	(void)cow_storage_unref(t->storage);
	if (t->quantizer)
		cow__quantizer_unref(t->quantizer);
	if (t->large)
		cow__pool_give(&pieces, t->sizes);
	cow__pool_give(&tensors, t);
	return NULL;
}

COW_EXPORT const void *
cow_tensor_data(const struct cow_tensor *t)
{
	size_t item;

	if (!t || t->numel == 0 ||
	    cow_storage_device(t->storage).type != COW_DEVICE_CPU ||
	    cow__tensor_there(t) < 0)
		return NULL;
	item = cow_dtype_bytes((enum cow_dtype)t->dtype);
	return (const char *)cow_storage_data(t->storage) +
	       (size_t)t->offset * item;
}

/* The bytes in the gaps between a tensor's elements are not its own. So the hint that all is
 * written must not reach the storage for a tensor with gaps. */
COW_EXPORT int
cow_tensor_data_mut(struct cow_tensor *t, enum cow_write_hint hint, void **ret)
{
	size_t offset, bytes;
	struct cow_device device;
	void *data;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_data_mut: NULL");
	device = cow_storage_device(t->storage);
	if (device.type != COW_DEVICE_CPU)
		return cow__say(-ENODEV, "cow_tensor_data_mut: #t is on #v, "
		                         "not in host memory", t, &device);
	if (t->numel == 0) {
		*ret = NULL;
		return 0;
	}
	r = cow__tensor_there(t);
	if (r < 0)
		return r;
	if (hint == COW_WRITE_ALL && !cow_tensor_is_dense(t))
		hint = COW_WRITE_AUTO;
	cow__tensor_range(t, &offset, &bytes);
	r = cow_storage_data_mut_range(t->storage, offset, bytes, hint, &data);
	if (r < 0)
		return r;
	*ret = (char *)data + offset;
	return 0;
}

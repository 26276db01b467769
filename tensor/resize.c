/* SPDX-License-Identifier: MIT */
/*
 * Resize: a tensor of other sizes on the same storage, which grows
 *
 * Only the storage changes, and it never shrinks, so the elements of all other tensors on
 * it stay in it. Lazy clones keep their bytes: a storage that grows gets an allocation of
 * its own, or was alone on it.
 */
#include "core/base/error.h"
#include "tensor/quantized.h"
#include "tensor/say.h"

/* The bytes of the storage up to the end of `numel` elements. */
static int
bytes_for(const struct cow_tensor *t, const struct cow__shape *shape,
          int64_t numel, size_t *ret)
{
	int64_t item = (int64_t)cow_dtype_bytes((enum cow_dtype)t->dtype), end;

	if (numel == 0) {
		*ret = 0;
		return 0;
	}
	if (__builtin_add_overflow(t->offset, numel, &end) ||
	    __builtin_mul_overflow(end, item, &end))
		return cow__say(-EINVAL, "cow_tensor_resize: sizes #z from "
		                         "element #d on: too many bytes", shape,
		                t->offset);
	*ret = (size_t)end;
	return 0;
}

static int
storage_grow(const struct cow_tensor *t, const struct cow__shape *shape,
             size_t bytes)
{
	struct cow_storage *s = t->storage;
	int r;

	if (bytes <= cow_storage_bytes(s))
		return 0;
	r = cow_storage_resize(s, bytes);
	if (r == -EPERM)
		return cow__say(r, "cow_tensor_resize: #t can't become #z: its "
		                   "storage of #d bytes is external or shared "
		                   "memory, which can't grow", t, shape,
		                (int64_t)cow_storage_bytes(s));
	if (r == -EBUSY)
		return cow__say(r, "cow_tensor_resize: #t can't become #z: its "
		                   "storage is transparent, and others hold it",
		                t, shape);
	return r;
}

static bool
same_sizes(const struct cow_tensor *t, const struct cow__shape *shape)
{
	return t->dims == shape->dims &&
	       memcmp(t->sizes, shape->sizes,
	              (size_t)t->dims * sizeof(int64_t)) == 0;
}

/* The sizes stay: the tensor itself. Its storage grows if it had shrunk below the elements. */
static int
again(struct cow_tensor *t, const struct cow__shape *shape,
      struct cow_tensor **ret)
{
	size_t offset, bytes;
	int r;

	cow__tensor_range(t, &offset, &bytes);
	r = storage_grow(t, shape, offset + bytes);
	if (r == 0)
		*ret = cow_tensor_ref(t);
	return r;
}

COW_EXPORT int
cow_tensor_resize(struct cow_tensor *t, int dims, const int64_t *sizes,
                  enum cow_format format, struct cow_tensor **ret)
{
	struct cow__shape shape;
	struct cow_tensor *view;
	size_t bytes = 0;
	int64_t numel;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_resize: NULL");
	r = cow__shape_read("cow_tensor_resize", (enum cow_dtype)t->dtype, dims,
	                    sizes, &shape, &numel);
	if (r < 0)
		return r;
	if (cow__by_channel(t))
		return cow__say(-EINVAL, "cow_tensor_resize: #t is quantized by "
		                         "channel", t);
	if (format == COW_FORMAT_PRESERVE && same_sizes(t, &shape))
		return again(t, &shape, ret);
	if (format == COW_FORMAT_PRESERVE)
		format = COW_FORMAT_CONTIGUOUS;
	if ((unsigned)format >= COW_FORMAT_NONE ||
	    cow__format_strides(format, &shape) < 0)
		return cow__say(-EINVAL, "cow_tensor_resize: sizes #z can't be in "
		                         "the format #f", &shape, format);
	r = bytes_for(t, &shape, numel, &bytes);
	if (r < 0)
		return r;
	/* The view is made first, because a storage that grew stays so. */
	r = cow__tensor_view(t, &shape, t->offset, &view);
	if (r < 0)
		return r;
	view->format = (uint8_t)format;
	/* The view's reference must not count as another holder of the address. While the
	 * storage grows, the tensor's own reference serves both. */
	(void)cow_storage_unref(t->storage);
	r = storage_grow(t, &shape, bytes);
	cow_storage_ref(t->storage);
	if (r < 0) {
		(void)cow_tensor_unref(view);
		return r;
	}
	*ret = view;
	return 0;
}

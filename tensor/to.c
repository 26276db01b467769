/* SPDX-License-Identifier: MIT */
/*
 * Tensors from tensors: to, clone, contiguous, fill
 *
 * A *fresh* tensor has a storage of its own. A lazy clone has one, too; that it shares bytes
 * with another storage shows only in its cost.
 */
#include "core/base/error.h"
#include "core/storage/storage.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/say.h"

/* The strides of a fresh tensor. PRESERVE: those of a dense tensor, or the order of dimensions
 * of another one. */
static int
layout(const char *who, const struct cow_tensor *t, enum cow_format format,
       struct cow__shape *ret)
{
	struct cow__shape like;

	cow__shape_of(t, &like);
	*ret = like;
	if (format == COW_FORMAT_PRESERVE) {
		if (!cow__shape_dense(&like))
			cow__shape_order(&like, ret);
		else if (t->numel == 0)
			(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, ret);
		return 0;
	}
	if ((unsigned)format >= COW_FORMAT_NONE ||
	    cow__format_strides(format, ret) < 0)
		return cow__say(-EINVAL, "#s: #t can't be in the format #f", who,
		                t, format);
	return 0;
}

static enum cow_format
format_of(const struct cow_tensor *t, enum cow_format format)
{
	return format == COW_FORMAT_PRESERVE ? (enum cow_format)t->format
	                                     : format;
}

/* Makes a fresh tensor in host memory that the device of `from` reaches. False: it could not;
 * other memory serves, too. */
static bool
fresh_for_device(const struct cow_tensor *from, const struct cow__shape *shape,
                 enum cow_dtype dtype, enum cow_format format, struct cow_tensor **ret)
{
	struct cow_storage *s;
	int64_t numel;

	if (cow__shape_numel(shape, dtype, &numel) < 0 || numel == 0 ||
	    cow__device_host_new(cow_storage_device(from->storage),
	                         (size_t)numel * cow_dtype_bytes(dtype), &s) < 0)
		return false;
	if (cow__tensor_make(s, dtype, shape, 0, format, ret) == 0)
		return true;
	(void)cow_storage_unref(s);
	return false;
}

/* A fresh tensor with the elements of `t`. `bits`: conj and neg stay, and nothing is computed. */
static int
filled(struct cow_tensor *t, const struct cow__shape *shape,
       enum cow_dtype dtype, struct cow_device device, enum cow_format format,
       bool bits, uint32_t flags, struct cow_tensor **ret)
{
	struct cow_tensor *fresh;
	int r = 0;

	if (device.type != COW_DEVICE_CPU || !(flags & COW_COPY_NON_BLOCKING) ||
	    !fresh_for_device(t, shape, dtype, format, &fresh))
		r = cow__tensor_fresh(dtype, shape, format, device, t, &fresh);
	if (r < 0)
		return r;
	if (bits) {
		fresh->conj = t->conj;
		fresh->neg = t->neg;
	}
	if (fresh->dtype == t->dtype)
		cow__tensor_share_quantizer(fresh, t);
	r = cow_tensor_copy(fresh, t, flags & ~(uint32_t)COW_COPY_LAZY);
	if (r < 0) {
		(void)cow_tensor_unref(fresh);
		return r;
	}
	*ret = fresh;
	return 0;
}

/* Is it a part of a storage whose clones are copies? To copy the part is cheaper. */
static bool
part_of_unwatched(const struct cow_tensor *t)
{
	size_t offset, bytes;

	if (!cow__unwatched(t->storage) || !cow_tensor_is_dense(t))
		return false;
	cow__tensor_range(t, &offset, &bytes);
	return bytes < cow_storage_bytes(t->storage);
}

/* A lazy clone of the tensor, on the same storage or on a clone of it. */
static int
lazy_clone(struct cow_tensor *t, enum cow_format format, bool own_storage,
           struct cow_tensor **ret)
{
	struct cow_storage *storage;
	struct cow_tensor *view;
	struct cow__shape shape;
	int r = cow__tensor_there(t);

	if (r < 0)
		return r;
	cow__shape_of(t, &shape);
	if (own_storage && part_of_unwatched(t))
		return filled(t, &shape, (enum cow_dtype)t->dtype,
		              cow_storage_device(t->storage), format, true, 0,
		              ret);
	storage = own_storage ? NULL : cow_storage_ref(t->storage);
	if (!storage)
		r = cow_storage_lazy_clone(t->storage, &storage);
	if (r < 0)
		return r;
	r = cow__tensor_make(storage, (enum cow_dtype)t->dtype, &shape,
	                     t->offset, format, &view);
	if (r < 0) {
		(void)cow_storage_unref(storage);
		return cow__error_from(r, "a view of a tensor");
	}
	view->conj = t->conj;
	view->neg = t->neg;
	cow__tensor_share_quantizer(view, t);
	*ret = view;
	return 0;
}

static bool
same_strides(const struct cow_tensor *t, const struct cow__shape *shape)
{
	for (int i = 0; i < t->dims; i++)
		if (t->sizes[i] > 1 && t->strides[i] != shape->strides[i])
			return false;
	return true;
}

static int
to_read(const struct cow_to *to, struct cow_to *ret)
{
	*ret = (struct cow_to){
		.size = sizeof(*ret),
		.dtype = -1,
		.format = COW_FORMAT_PRESERVE,
	};
	if (!to)
		return 0;
	if (to->size < offsetof(struct cow_to, flags))
		return cow__error(-EINVAL, "cow_to: size is not set");
	for (size_t i = sizeof(*ret); i < to->size; i++)
		if (((const char *)to)[i])
			return cow__error(-E2BIG, "cow_to: has members that "
			                          "this library does not know");
	memcpy(ret, to, cow__min(to->size, sizeof(*ret)));
	if (ret->dtype != -1 && !cow__dtype_known(ret->dtype))
		return cow__say(-EINVAL, "cow_tensor_to: no data type has the "
		                         "number #d", (int64_t)ret->dtype);
	if (ret->flags & ~(uint32_t)(COW_COPY_LAZY | COW_COPY_NON_BLOCKING |
	                             COW_COPY_IGNORE_OVERLAP))
		return cow__error(-EINVAL, "cow_tensor_to: unknown flags");
	return 0;
}

COW_EXPORT int
cow_tensor_to(struct cow_tensor *t, const struct cow_to *to,
              struct cow_tensor **ret)
{
	struct cow__shape shape;
	struct cow_device here;
	enum cow_format format;
	struct cow_to o;
	bool same;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_to: NULL");
	r = to_read(to, &o);
	if (r < 0)
		return r;
	here = cow_storage_device(t->storage);
	if (o.dtype < 0)
		o.dtype = t->dtype;
	if (!o.set_device)
		o.device = here;
	cow__device_resolve(&o.device);
	format = (enum cow_format)o.format;
	if (o.dtype != t->dtype &&
	    (t->quantizer || cow__dtype_quantized(o.dtype)))
		return cow__say(-EINVAL, "cow_tensor_to: #t can't become #y; "
		                         "cow_tensor_#s() makes #s", t,
		                (enum cow_dtype)o.dtype,
		                t->quantizer ? "dequantize" : "quantize",
		                t->quantizer ? "float32 of it"
		                             : "quantized ones of float32");
	r = layout("cow_tensor_to", t, format, &shape);
	if (r < 0)
		return r;
	same = o.dtype == t->dtype && o.device.type == here.type &&
	       o.device.index == here.index;
	if (same && !o.copy && (format == COW_FORMAT_PRESERVE ||
	                        format == cow_tensor_format(t))) {
		*ret = cow_tensor_ref(t);
		return 0;
	}
	/* A tensor with conj or neg is copied: resolving them changes the bytes. */
	if (same && (o.flags & COW_COPY_LAZY) && same_strides(t, &shape) &&
	    !t->conj && !t->neg)
		return lazy_clone(t, format_of(t, format), true, ret);
	return filled(t, &shape, (enum cow_dtype)o.dtype, o.device,
	              format_of(t, format), false, o.flags, ret);
}

COW_EXPORT int
cow_tensor_clone(struct cow_tensor *t, enum cow_format format,
                 struct cow_tensor **ret)
{
	struct cow__shape shape;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_clone: NULL");
	r = layout("cow_tensor_clone", t, format, &shape);
	if (r < 0)
		return r;
	return filled(t, &shape, (enum cow_dtype)t->dtype,
	              cow_storage_device(t->storage), format_of(t, format),
	              true, 0, ret);
}

int
cow__tensor_clone_wait(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_tensor *fresh;
	struct cow__shape shape;
	struct cow_work *work;
	int r = layout("cow_tensor_clone", t, COW_FORMAT_PRESERVE, &shape);

	if (r == 0)
		r = cow__tensor_fresh((enum cow_dtype)t->dtype, &shape,
		                      (enum cow_format)t->format,
		                      cow_storage_device(t->storage), t, &fresh);
	if (r < 0)
		return r;
	r = cow_tensor_copy_begin(fresh, t, 0, &work);
	if (r == 0) {
		r = cow_work_wait(work);
		(void)cow_work_free(work);
	}
	if (r < 0)
		(void)cow_tensor_unref(fresh);
	else
		*ret = fresh;
	return r;
}

COW_EXPORT int
cow_tensor_lazy_clone(struct cow_tensor *t, struct cow_tensor **ret)
{
	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_lazy_clone: NULL");
	return lazy_clone(t, (enum cow_format)t->format, true, ret);
}

/* If the strides fit the format, but the tensor was made in another one, the result is a view
 * of the same storage with that format. */
COW_EXPORT int
cow_tensor_contiguous(struct cow_tensor *t, enum cow_format format,
                      uint32_t flags, struct cow_tensor **ret)
{
	struct cow__shape shape;
	bool lazy = flags & COW_COPY_LAZY;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_contiguous: NULL");
	if (flags & ~(uint32_t)COW_COPY_LAZY)
		return cow__error(-EINVAL, "cow_tensor_contiguous: the only flag "
		                           "is COW_COPY_LAZY");
	r = layout("cow_tensor_contiguous", t, format, &shape);
	if (r < 0)
		return r;
	if (!cow_tensor_is_contiguous(t, format))
		return cow_tensor_clone(t, format, ret);
	if (!lazy && (format == COW_FORMAT_PRESERVE ||
	              format == cow_tensor_format(t))) {
		*ret = cow_tensor_ref(t);
		return 0;
	}
	return lazy_clone(t, format_of(t, format), lazy, ret);
}

/* Replaces *t by a tensor of float32. */
static int
as_float32(struct cow_tensor **t)
{
	const struct cow_to to = {
		.size = sizeof(to),
		.dtype = COW_FLOAT32,
		.format = COW_FORMAT_PRESERVE,
	};
	struct cow_tensor *wide;
	int r = cow_tensor_to(*t, &to, &wide);

	if (r < 0)
		return r;
	(void)cow_tensor_unref(*t);
	*t = wide;
	return 0;
}

/* Elements that share a place all get the same value. */
COW_EXPORT int
cow_tensor_fill(struct cow_tensor *t, enum cow_dtype dtype, const void *value)
{
	const struct cow_device cpu = { COW_DEVICE_CPU, 0 };
	const struct cow__shape none = { .dims = 0 };
	struct cow_tensor *one;
	void *at;
	int r;

	if (!t || !value)
		return cow__error(-EINVAL, "cow_tensor_fill: NULL");
	if (!cow__dtype_known(dtype) || cow__dtype_quantized(dtype))
		return cow__say(-EINVAL, "cow_tensor_fill: no data type has the "
		                         "number #d, or it is a quantized one",
		                (int64_t)dtype);
	r = cow__tensor_fresh(dtype, &none, COW_FORMAT_CONTIGUOUS, cpu, NULL,
	                      &one);
	if (r < 0)
		return r;
	r = cow_tensor_data_mut(one, COW_WRITE_ALL, &at);
	if (r == 0) {
		memcpy(at, value, cow_dtype_bytes(dtype));
		if (t->quantizer)
			r = as_float32(&one);
	}
	if (r == 0)
		r = cow_tensor_copy(t, one, COW_COPY_IGNORE_OVERLAP);
	(void)cow_tensor_unref(one);
	return r;
}

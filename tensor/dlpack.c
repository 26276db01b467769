/* SPDX-License-Identifier: MIT */
/*
 * DLPack: arrays come from other libraries and go to them, without a copy
 *
 * The structs are a binary interface, so they are declared here. The numbers are those of
 * dlpack.h.
 *
 *   export, writable     the consumer writes without notice, so the storage becomes
 *                        transparent: its address is given away for good
 *   export, read-only    of a tracked storage the consumer gets a lazy clone, which
 *                        nobody writes. Its bytes stay as they are and where they
 *                        are, also if the tensor is written, and nothing is copied.
 *                        Other memory never moves
 *   import, writable     the array is external memory
 *   import, read-only    the array is copied when the tensor is first written. Its owner
 *                        may still write it (as with an export of a transparent
 *                        storage), so clones are copies, too. An array that is not on
 *                        the CPU is copied at once
 *
 * Memory of a registered device is exported and imported like the host's. This file never
 * reads or writes it.
 */
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/storage/storage.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/say.h"

enum {
	DL_CPU = 1,
	DL_CUDA = 2,
	DL_CUDA_HOST = 3, /* pinned host memory, treated like any other */
	DL_EXTENSION = 12,
};

enum {
	DL_INT = 0,
	DL_UINT = 1,
	DL_FLOAT = 2,
	DL_BFLOAT = 4,
	DL_COMPLEX = 5,
	DL_BOOL = 6,
	DL_FLOAT8_E4M3FN = 10,
	DL_FLOAT8_E5M2 = 12,
};

#define DL_READ_ONLY ((uint64_t)1)

struct dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};

struct dl_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct dl_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

static const uint8_t codes[COW__PLAIN_DTYPES] = {
	[COW_BOOL] = DL_BOOL,          [COW_INT8] = DL_INT,
	[COW_INT16] = DL_INT,          [COW_INT32] = DL_INT,
	[COW_INT64] = DL_INT,          [COW_UINT8] = DL_UINT,
	[COW_UINT16] = DL_UINT,        [COW_UINT32] = DL_UINT,
	[COW_UINT64] = DL_UINT,        [COW_FLOAT16] = DL_FLOAT,
	[COW_BFLOAT16] = DL_BFLOAT,    [COW_FLOAT32] = DL_FLOAT,
	[COW_FLOAT64] = DL_FLOAT,      [COW_COMPLEX32] = DL_COMPLEX,
	[COW_COMPLEX64] = DL_COMPLEX,  [COW_COMPLEX128] = DL_COMPLEX,
	[COW_FLOAT8_E4M3FN] = DL_FLOAT8_E4M3FN,
	[COW_FLOAT8_E5M2] = DL_FLOAT8_E5M2,
};

/* ---- Export ---------------------------------------------------------------------- */

struct exported {
	union {
		struct dl_managed legacy;
		struct dl_versioned versioned;
	} managed; /* first, because the consumer has this address */
	struct cow_storage *storage;
	int64_t sizes[COW_DIMS_MAX], strides[COW_DIMS_MAX];
};

static struct cow__pool exports = { .object_bytes = sizeof(struct exported) };

static void
export_end(struct exported *e)
{
	(void)cow_storage_unref(e->storage);
	cow__pool_give(&exports, e);
}

static void
legacy_end(struct dl_managed *m)
{
	export_end((struct exported *)m);
}

static void
versioned_end(struct dl_versioned *m)
{
	export_end((struct exported *)m);
}

/* The storage whose bytes the consumer gets: a reference. */
static int
storage_to_export(struct cow_storage *s, bool read_only,
                  struct cow_storage **ret)
{
	void *data;
	int r;

	if (!read_only) {
		r = cow_storage_expose(s, &data);
		if (r < 0)
			return r;
	} else if (cow__unwatched(s)) {
		return cow__storage_beside(s, ret);
	} else if (!cow__transparent(s) && !s->elements) {
		return cow_storage_lazy_clone(s, ret);
	}
	*ret = cow_storage_ref(s);
	return 0;
}

static int
device_code(const struct cow_tensor *t, struct dl_tensor *ret)
{
	struct cow_device d = cow_storage_device(t->storage);

	ret->device_id = d.index;
	switch (d.type) {
	case COW_DEVICE_CPU:
		ret->device_type = DL_CPU;
		return 0;
	case COW_DEVICE_CUDA:
		ret->device_type = DL_CUDA;
		return 0;
	case COW_DEVICE_PRIVATE:
		ret->device_type = DL_EXTENSION;
		return 0;
	default:
		return cow__say(-ENOTSUP, "DLPack has no device type for #v", &d);
	}
}

static void
describe_tensor(const struct cow_tensor *t, struct exported *e, struct dl_tensor *ret)
{
	size_t item = cow_dtype_bytes((enum cow_dtype)t->dtype);

	memcpy(e->sizes, t->sizes, t->dims * sizeof(int64_t));
	memcpy(e->strides, t->strides, t->dims * sizeof(int64_t));
	ret->ndim = t->dims;
	ret->code = codes[t->dtype];
	ret->bits = (uint8_t)(8 * item);
	ret->lanes = 1;
	ret->shape = e->sizes;
	ret->strides = e->strides;
	ret->data = NULL;
	if (t->numel)
		ret->data = (char *)(uintptr_t)cow_storage_data(e->storage) +
		            (size_t)t->offset * item;
}

COW_EXPORT int
cow_tensor_to_dlpack(struct cow_tensor *t, bool versioned, bool read_only,
                     void **ret)
{
	struct dl_tensor d = { .ndim = 0 };
	struct exported *e;
	int r;

	if (!t || !ret)
		return cow__error(-EINVAL, "cow_tensor_to_dlpack: NULL");
	if (read_only && !versioned)
		return cow__error(-EINVAL, "cow_tensor_to_dlpack: the form "
		                           "without a version can't say "
		                           "\"read only\"");
	if (t->conj || t->neg)
		return cow__say(-EINVAL, "cow_tensor_to_dlpack: #t has a conj or "
		                         "neg bit; copy it first", t);
	if (t->quantizer)
		return cow__say(-ENOTSUP, "cow_tensor_to_dlpack: DLPack has no "
		                          "quantized types: #t", t);
	r = device_code(t, &d);
	if (r == 0)
		r = cow__tensor_there(t);
	if (r < 0)
		return r;
	e = cow__pool_take(&exports);
	if (!e)
		return cow__error_from(-ENOMEM, "cow_tensor_to_dlpack");
	r = storage_to_export(t->storage, read_only, &e->storage);
	if (r < 0) {
		cow__pool_give(&exports, e);
		return r;
	}
	describe_tensor(t, e, &d);
	if (versioned)
		e->managed.versioned = (struct dl_versioned){
			.major = 1,
			.context = e,
			.deleter = versioned_end,
			.flags = read_only ? DL_READ_ONLY : 0,
			.tensor = d,
		};
	else
		e->managed.legacy = (struct dl_managed){
			.tensor = d,
			.context = e,
			.deleter = legacy_end,
		};
	*ret = e;
	return 0;
}

/* ---- Import --------------------------------------------------------------------------- */

static void
legacy_delete(void *managed)
{
	struct dl_managed *m = managed;

	if (m->deleter)
		m->deleter(m);
}

static void
versioned_delete(void *managed)
{
	struct dl_versioned *m = managed;

	if (m->deleter)
		m->deleter(m);
}

static int
never_alone(struct cow__allocation *a, const struct cow__writing *w)
{
	(void)a;
	(void)w;
	return COW__NOT_ALONE;
}

static int
no_view(struct cow__allocation *a, const struct cow__writing *w,
        struct cow__allocation **ret)
{
	(void)a;
	(void)w;
	(void)ret;
	return -E2BIG;
}

static void
drop_tensor(struct cow__allocation *a)
{
	if (a->other)
		versioned_delete(a->other);
}

/* Bytes of another library that we must not write: a storage that is written gets a copy. */
static const struct cow__allocation_ops read_only_ops = {
	.alone = never_alone,
	.view = no_view,
	.drop = drop_tensor,
	.unwatched = true,
};

static int
read_only_storage(struct dl_versioned *m, void *data, size_t bytes,
                  struct cow_storage **ret)
{
	const struct cow_storage like = { .resizable = true };
	struct cow__allocation *a;
	int r = cow__allocation_other(data, bytes, m, &read_only_ops, &a);

	if (r < 0)
		return r;
	r = cow__storage_on(a, bytes, &like, ret);
	if (r < 0) {
		a->other = NULL;
		cow__allocation_unref(a);
	}
	return r;
}

/* On a failure the caller keeps the array, so the storage must not free it. */
static void
storage_forget(struct cow_storage *s)
{
	if (s->data->kind == COW__AT_OTHER)
		s->data->other = NULL;
	else
		(void)cow_data_ptr_release_context(&s->data->ptr);
	(void)cow_storage_unref(s);
}

static int
dtype_of(const struct dl_tensor *d, enum cow_dtype *ret)
{
	for (int i = 0; i < COW__PLAIN_DTYPES && d->lanes == 1; i++)
		if (codes[i] == d->code &&
		    8 * cow_dtype_bytes((enum cow_dtype)i) == d->bits) {
			*ret = (enum cow_dtype)i;
			return 0;
		}
	return cow__say(-ENOTSUP, "cow_tensor_from_dlpack: no data type has "
	                          "the code #d, #d bits and #d lanes",
	                (int64_t)d->code, (int64_t)d->bits, (int64_t)d->lanes);
}

static int
shape_of(const struct dl_tensor *d, enum cow_dtype dtype,
         struct cow__shape *ret, size_t *ret_bytes)
{
	int64_t numel, last = 0;
	int r = cow__shape_read("cow_tensor_from_dlpack", dtype, d->ndim,
	                        d->shape, ret, &numel);

	if (r < 0)
		return r;
	if (d->strides)
		memcpy(ret->strides, d->strides,
		       (size_t)ret->dims * sizeof(int64_t));
	else
		(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, ret);
	for (int i = 0; i < ret->dims; i++) {
		/* The stride of a dimension of size 1 is never used. */
		if (numel == 0 || (ret->sizes[i] == 1 && ret->strides[i] < 0))
			ret->strides[i] = 1;
		if (ret->strides[i] < 0)
			return cow__say(-ENOTSUP, "cow_tensor_from_dlpack: the "
			                          "stride #d is negative",
			                ret->strides[i]);
	}
	if (cow__shape_extent(ret, &last) < 0 ||
	    __builtin_add_overflow(last, 1, &last) ||
	    __builtin_mul_overflow(last, cow_dtype_bytes(dtype), &last))
		return cow__say(-EINVAL, "cow_tensor_from_dlpack: strides of #z "
		                         "overflow", ret);
	*ret_bytes = numel ? (size_t)last : 0;
	return 0;
}

/* The device that the array is on. */
static int
device_of(const struct dl_tensor *d, struct cow_device *ret)
{
	int type;

	switch (d->device_type) {
	case DL_CPU:
	case DL_CUDA_HOST:
		*ret = (struct cow_device){ COW_DEVICE_CPU, 0 };
		return 0;
	case DL_CUDA:
		type = COW_DEVICE_CUDA;
		break;
	case DL_EXTENSION:
		type = COW_DEVICE_PRIVATE;
		break;
	default:
		return cow__say(-ENOTSUP, "cow_tensor_from_dlpack: DLPack's "
		                          "device type #d is not known",
		                (int64_t)d->device_type);
	}
	/* DLPack has no index -1, and our indices have 16 bits. */
	if (d->device_id < 0 || d->device_id > INT16_MAX)
		return cow__say(-ENODEV, "cow_tensor_from_dlpack: no device has "
		                         "the index #d", (int64_t)d->device_id);
	*ret = (struct cow_device){ type, (int16_t)d->device_id };
	if (!cow__device_ops(*ret))
		return cow__say(-ENODEV, "cow_tensor_from_dlpack: #v is not "
		                         "registered", ret);
	return 0;
}

/* A storage on an array that may be written. */
static int
external_storage(void *managed, bool versioned, void *data, size_t bytes,
                 struct cow_device device, struct cow_storage **ret)
{
	struct cow_data_ptr ptr = cow_data_ptr_make(
	        data, managed, versioned ? versioned_delete : legacy_delete,
	        device);

	return cow_storage_new_external(&ptr, bytes, NULL, ret);
}

/* Replaces *t by a copy, so that the array is no longer needed. */
static int
copied(struct cow_tensor **t, struct cow_storage *storage)
{
	struct cow_tensor *mine;
	int r = cow__tensor_clone_wait(*t, &mine);

	if (r < 0) {
		cow_storage_ref(storage);
		(void)cow_tensor_unref(*t);
		storage_forget(storage);
		return r;
	}
	(void)cow_tensor_unref(*t);
	*t = mine;
	return 0;
}

static int
import(void *managed, bool versioned, const struct dl_tensor *d,
       struct cow_tensor **ret)
{
	bool read_only = versioned &&
	                 ((struct dl_versioned *)managed)->flags & DL_READ_ONLY;
	struct cow_device device = { COW_DEVICE_CPU, 0 };
	struct cow_storage *storage;
	struct cow_tensor *t;
	struct cow__shape shape;
	enum cow_dtype dtype = COW_BOOL;
	size_t bytes = 0;
	char *data;
	int r = device_of(d, &device);

	if (r == 0)
		r = dtype_of(d, &dtype);
	if (r == 0)
		r = shape_of(d, dtype, &shape, &bytes);
	if (r < 0)
		return r;
	read_only = read_only && bytes;
	data = d->data ? (char *)d->data + d->byte_offset : NULL;
	if (bytes && !data)
		return cow__error(-EINVAL, "cow_tensor_from_dlpack: no data");
	if (read_only && device.type == COW_DEVICE_CPU)
		r = read_only_storage(managed, data, bytes, &storage);
	else
		r = external_storage(managed, versioned, data, bytes, device,
		                     &storage);
	if (r < 0)
		return cow__error_from(r, "cow_tensor_from_dlpack");
	r = cow_tensor_on(storage, dtype, shape.dims, shape.sizes,
	                  shape.strides, 0, &t);
	if (r < 0) {
		storage_forget(storage);
		return r;
	}
	(void)cow_storage_unref(storage);
	if (read_only && device.type != COW_DEVICE_CPU)
		r = copied(&t, storage);
	if (r == 0)
		*ret = t;
	return r;
}

COW_EXPORT int
cow_tensor_from_dlpack(void *managed, bool versioned, struct cow_tensor **ret)
{
	const struct dl_versioned *v = managed;
	const struct dl_tensor *d;

	if (!managed || !ret)
		return cow__error(-EINVAL, "cow_tensor_from_dlpack: NULL");
	/* In another major version only the members up to here are known. */
	if (versioned && v->major != 1)
		return cow__error_number(-ENOTSUP, "DLPack version # is not known",
		                         v->major);
	d = versioned ? &v->tensor : &((struct dl_managed *)managed)->tensor;
	return import(managed, versioned, d, ret);
}

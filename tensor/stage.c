/* SPDX-License-Identifier: MIT */
/*
 * Staging: chooses which device does what in a copy, in the same way for all devices
 *
 *   1. contiguous bytes of one type on both sides   moved as they are
 *   2. both sides on one device                     its strided copy
 *   3. two devices of a type that reach each        contiguous temporaries, each on
 *      other                                        the side of its elements
 *   4. otherwise, through the host                  fetch, then push
 *
 *   fetch    of a dense tensor the bytes come, in their order. Another one the device
 *            packs first; if it can't, all that the tensor spans comes
 *   push     the host converts, so no device needs memory for two types. A dense tensor
 *            gets its bytes in one piece. For another one the device spreads them; if it
 *            can't, all that the tensor spans is fetched, changed and sent back
 *
 * Temporaries live until the copy has ended. So only a copy of one move can be left
 * unfinished (COW_COPY_NON_BLOCKING) or be part of a graph. The first of several steps has
 * COW_COPY_MARKED, so that a device that records a graph refuses before anything is done.
 */
#include "core/base/error.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/say.h"
#include "tensor/strided.h"

static const struct cow_device host = { COW_DEVICE_CPU, 0 };

static bool
on_host(const struct cow_tensor *t)
{
	return cow_storage_device(t->storage).type == COW_DEVICE_CPU;
}

static bool
one_device(const struct cow_tensor *a, const struct cow_tensor *b)
{
	struct cow_device d = cow_storage_device(a->storage);
	struct cow_device e = cow_storage_device(b->storage);

	return d.type == e.type && d.index == e.index;
}

static const struct cow_device_ops *
ops_of(const struct cow_tensor *t)
{
	return cow__device_ops(cow_storage_device(t->storage));
}

static void
side_make(const struct cow_tensor *t, char *data, struct cow__side *ret)
{
	int64_t item = (int64_t)cow_dtype_bytes((enum cow_dtype)t->dtype);

	ret->dtype = (enum cow_dtype)t->dtype;
	ret->data = data + t->offset * item;
	for (int i = 0; i < t->dims; i++)
		ret->strides[i] = t->sizes[i] > 1 ? t->strides[i] * item : 0;
}

/* Materializes the destination. Looks the source up after that, as both may be in one
 * storage. */
static int
job_make(struct cow_tensor *to, const struct cow_tensor *from, bool whole,
         struct cow__strided *ret)
{
	size_t offset, bytes;
	void *data;
	int r;

	cow__tensor_range(to, &offset, &bytes);
	r = cow_storage_data_mut_range(to->storage, offset, bytes,
	                               whole && cow_tensor_is_dense(to)
	                                       ? COW_WRITE_ALL
	                                       : COW_WRITE_AUTO,
	                               &data);
	if (r < 0)
		return r;
	ret->dims = to->dims;
	memcpy(ret->sizes, to->sizes, to->dims * sizeof(int64_t));
	side_make(to, data, &ret->to);
	/* The engine only reads it. */
	side_make(from, (char *)(uintptr_t)cow_storage_data(from->storage),
	          &ret->from);
	ret->conj = to->conj != from->conj;
	ret->neg = to->neg != from->neg;
	return 0;
}

static int
host_copy(struct cow_tensor *to, const struct cow_tensor *from, bool whole)
{
	struct cow__strided job;
	int r = job_make(to, from, whole, &job);

	if (r == 0)
		cow__strided_copy(&job);
	return r;
}

/* ---- What a device does by itself ------------------------------------------------ */

static bool
is_plain(const struct cow__strided *j)
{
	int64_t item = (int64_t)cow_dtype_bytes(j->to.dtype);

	return j->to.dtype == j->from.dtype && !j->conj && !j->neg &&
	       (j->dims == 0 || (j->dims == 1 && j->to.strides[0] == item &&
	                         j->from.strides[0] == item));
}

static int
move_bytes(const struct cow_tensor *to, const struct cow_tensor *from,
           const struct cow__strided *j, uint32_t flags)
{
	struct cow_device d = cow_storage_device(to->storage);
	struct cow_device e = cow_storage_device(from->storage);
	const struct cow_device_ops *ops = on_host(to) ? ops_of(from)
	                                               : ops_of(to);
	size_t bytes = (size_t)(j->dims ? j->sizes[0] : 1) *
	               cow_dtype_bytes(j->to.dtype);

	/* A caller without a handle can't know when host memory is filled. */
	if (on_host(to) && !(flags & COW_COPY_MARKED))
		flags &= ~(uint32_t)COW_COPY_NON_BLOCKING;

	if (on_host(from))
		return ops->from_host(ops->user, d, j->to.data, j->from.data,
		                      bytes, flags);
	if (on_host(to))
		return ops->to_host(ops->user, e, j->to.data, j->from.data,
		                    bytes, flags);
	return ops->within(ops->user, d, j->to.data, e, j->from.data, bytes,
	                   flags);
}

static int
strided_on(const struct cow_tensor *to, const struct cow__strided *j,
           uint32_t flags)
{
	const struct cow_device_ops *ops = ops_of(to);
	int64_t to_strides[COW_DIMS_MAX], from_strides[COW_DIMS_MAX];

	if (!ops->strided)
		return -ENOTSUP;
	for (int i = 0; i < j->dims; i++) {
		to_strides[i] = j->to.strides[i] /
		                (int64_t)cow_dtype_bytes(j->to.dtype);
		from_strides[i] = j->from.strides[i] /
		                  (int64_t)cow_dtype_bytes(j->from.dtype);
	}
	return ops->strided(ops->user, cow_storage_device(to->storage),
	                    j->dims, j->sizes, j->to.data, j->to.dtype,
	                    to_strides, j->from.data, j->from.dtype,
	                    from_strides, j->conj, j->neg, flags);
}

int
cow__copy_at_once(struct cow_tensor *to, const struct cow_tensor *from, bool whole,
        uint32_t flags)
{
	const struct cow_device_ops *ops = ops_of(on_host(to) ? from : to);
	bool alike = cow_storage_device(to->storage).type ==
	             cow_storage_device(from->storage).type;
	struct cow__strided job;
	int r = job_make(to, from, whole, &job);

	if (r < 0)
		return r;
	cow__strided_simplify(&job);
	cow__error_begin();
	if (is_plain(&job) &&
	    (on_host(to) || on_host(from) || (alike && ops->within)))
		r = move_bytes(to, from, &job, flags);
	else if (one_device(to, from))
		r = strided_on(to, &job, flags);
	else
		return -ENOTSUP;
	return r == -ENOTSUP ? r : cow__device_said(ops, r);
}

/* ---- Temporaries -------------------------------------------------------------------- */

int
cow__copy_temporary(const struct cow_tensor *sizes, const struct cow_tensor *bits,
          const struct cow_tensor *where, struct cow_tensor **ret)
{
	struct cow__shape shape;
	int r;

	cow__shape_of(sizes, &shape);
	if (!cow__shape_dense(&shape))
		(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, &shape);
	r = cow__tensor_fresh((enum cow_dtype)bits->dtype, &shape,
	                      COW_FORMAT_CONTIGUOUS,
	                      where ? cow_storage_device(where->storage) : host,
	                      where, ret);
	if (r < 0)
		return r;
	(*ret)->conj = bits->conj;
	(*ret)->neg = bits->neg;
	return 0;
}

/* All bytes that `t` spans: `rows` are those of the device, `there` is their place in host
 * memory, and `view` lies in `there` as `t` does in its storage. The caller unrefs all three. */
struct span {
	struct cow_tensor *view, *rows, *there;
};

static void
span_free(struct span *s)
{
	(void)cow_tensor_unref(s->view);
	(void)cow_tensor_unref(s->rows);
	(void)cow_tensor_unref(s->there);
}

static int
span_fetch(struct cow_tensor *t, struct span *ret)
{
	size_t offset, bytes, item = cow_dtype_bytes((enum cow_dtype)t->dtype);
	struct span s = { NULL, NULL, NULL };
	const int64_t one = 1;
	int64_t n;
	int r;

	cow__tensor_range(t, &offset, &bytes);
	n = (int64_t)(bytes / item);
	r = cow_tensor_as_strided(t, 1, &n, &one, t->offset, &s.there);
	if (r == 0)
		r = cow__copy_temporary(s.there, t, NULL, &s.rows);
	if (r == 0)
		r = cow__copy_at_once(s.rows, s.there, true, 0);
	if (r == 0)
		r = cow_tensor_as_strided(s.rows, t->dims, t->sizes, t->strides,
		                          0, &s.view);
	if (r < 0) {
		span_free(&s);
		return r;
	}
	*ret = s;
	return 0;
}

/* ---- To the host ----------------------------------------------------------------------- */

/* The device packs it, then the bytes are moved. */
static int
fetch_packed(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_tensor *packed, *here = NULL;
	int r;

	if (!ops_of(t)->strided)
		return -ENOTSUP;
	r = cow__copy_temporary(t, t, t, &packed);
	if (r < 0) /* external memory, of a device that has no allocator */
		return r == -ENODEV ? -ENOTSUP : r;
	r = cow__copy_at_once(packed, t, true, COW_COPY_MARKED);
	if (r == 0)
		r = cow__copy_temporary(t, t, NULL, &here);
	if (r == 0) {
		r = cow__copy_at_once(here, packed, true, 0);
		if (r < 0)
			(void)cow_tensor_unref(here);
		else
			*ret = here;
	}
	(void)cow_tensor_unref(packed);
	return r;
}

static int
fetch_once(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_tensor *here;
	struct span s;
	int r;

	if (!cow_tensor_is_dense(t)) {
		r = fetch_packed(t, ret);
		if (r != -ENOTSUP)
			return r;
		r = span_fetch(t, &s);
		if (r < 0)
			return r;
		*ret = cow_tensor_ref(s.view);
		span_free(&s);
		return 0;
	}
	r = cow__copy_temporary(t, t, NULL, &here);
	if (r < 0)
		return r;
	r = cow__copy_at_once(here, t, true, 0);
	if (r < 0) {
		(void)cow_tensor_unref(here);
		return r;
	}
	*ret = here;
	return 0;
}

/* The same tensor in host memory. Repeated elements are fetched once. */
static int
fetch(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_tensor *once, *here = NULL;
	struct cow__shape shape;
	int r;

	cow__shape_of(t, &shape);
	for (int i = 0; i < shape.dims; i++)
		if (shape.strides[i] == 0)
			shape.sizes[i] = 1;
	r = cow__tensor_view(t, &shape, t->offset, &once);
	if (r < 0)
		return r;
	r = fetch_once(once, &here);
	(void)cow_tensor_unref(once);
	if (r < 0)
		return r;
	r = cow_tensor_expand(here, t->dims, t->sizes, ret);
	(void)cow_tensor_unref(here);
	return r;
}

/* ---- From the host -------------------------------------------------------------------- */

static int
push_dense(struct cow_tensor *to, struct cow_tensor *from)
{
	struct cow_tensor *here = NULL;
	int r = cow__copy_temporary(to, to, NULL, &here);

	if (r < 0)
		return r;
	r = host_copy(here, from, true);
	if (r == 0)
		r = cow__copy_at_once(to, here, true, 0);
	(void)cow_tensor_unref(here);
	return r;
}

static int
push_spread(struct cow_tensor *to, struct cow_tensor *from)
{
	struct cow_tensor *packed;
	int r;

	if (!ops_of(to)->strided)
		return -ENOTSUP;
	r = cow__copy_temporary(to, to, to, &packed);
	if (r < 0)
		return r == -ENODEV ? -ENOTSUP : r;
	r = push_dense(packed, from);
	if (r == 0)
		r = cow__copy_at_once(to, packed, false, 0);
	(void)cow_tensor_unref(packed);
	return r;
}

static int
push(struct cow_tensor *to, struct cow_tensor *from)
{
	struct span s;
	int r;

	if (cow_tensor_is_dense(to))
		return push_dense(to, from);
	r = push_spread(to, from);
	if (r != -ENOTSUP)
		return r;
	r = span_fetch(to, &s);
	if (r < 0)
		return r;
	r = host_copy(s.view, from, false);
	if (r == 0)
		r = cow__copy_at_once(s.there, s.rows, true, 0);
	span_free(&s);
	return r;
}

/* ---- The choice -------------------------------------------------------------------------- */

/* Between two devices that reach each other: the source's device packs, the bytes are moved,
 * the destination's device spreads. */
static int
across(struct cow_tensor *to, struct cow_tensor *from)
{
	struct cow_tensor *packed, *arrived;
	int r = cow__copy_temporary(to, to, from, &packed);

	if (r < 0)
		return r;
	r = cow__copy_elements(packed, from, true, COW_COPY_MARKED);
	if (r == 0 && cow_tensor_is_dense(to)) {
		r = cow__copy_at_once(to, packed, true, COW_COPY_MARKED);
	} else if (r == 0) {
		r = cow__copy_temporary(to, to, to, &arrived);
		if (r == 0) {
			r = cow__copy_at_once(arrived, packed, true,
			                      COW_COPY_MARKED);
			if (r == 0)
				r = cow__copy_elements(to, arrived, false,
				                       COW_COPY_MARKED);
			(void)cow_tensor_unref(arrived);
		}
	}
	(void)cow_tensor_unref(packed);
	return r;
}

static int
through_host(struct cow_tensor *to, struct cow_tensor *from)
{
	struct cow_tensor *here = NULL;
	int r;

	if (on_host(from))
		return push(to, from);
	r = fetch(from, &here);
	if (r < 0)
		return r;
	r = on_host(to) ? host_copy(to, here, true) : push(to, here);
	(void)cow_tensor_unref(here);
	return r;
}

/* The source's bits apply before the conversion, the destination's after it: two steps. */
static int
in_two_steps(struct cow_tensor *to, struct cow_tensor *from, uint32_t flags)
{
	struct cow_tensor *plain;
	struct cow__shape shape;
	int r;

	cow__shape_of(to, &shape);
	(void)cow__format_strides(COW_FORMAT_CONTIGUOUS, &shape);
	r = cow__tensor_fresh((enum cow_dtype)to->dtype, &shape,
	                      COW_FORMAT_CONTIGUOUS, host, NULL, &plain);
	if (r < 0)
		return r;
	r = cow__copy_elements(plain, from, true, flags);
	if (r == 0)
		r = cow__copy_elements(to, plain, true,
		                       flags & ~(uint32_t)COW_COPY_NON_BLOCKING);
	(void)cow_tensor_unref(plain);
	return r;
}

int
cow__copy_elements(struct cow_tensor *to, struct cow_tensor *from, bool whole,
                   uint32_t flags)
{
	struct cow_device d = cow_storage_device(to->storage);
	struct cow_device e = cow_storage_device(from->storage);
	int r;

	if (!on_host(to) && !cow__device_ops(d))
		return cow__say(-ENODEV, "#v is not registered", &d);
	if (!on_host(from) && !cow__device_ops(e))
		return cow__say(-ENODEV, "#v is not registered", &e);
	if ((to->conj || to->neg) && to->dtype != from->dtype)
		return in_two_steps(to, from,
		                    flags & ~(uint32_t)COW_COPY_NON_BLOCKING);
	if (on_host(to) && on_host(from))
		return host_copy(to, from, whole);
	r = cow__copy_at_once(to, from, whole, flags);
	if (r != -ENOTSUP)
		return r;
	if (d.type == e.type && d.index != e.index &&
	    cow__device_ops(d)->within)
		return across(to, from);
	return through_host(to, from);
}

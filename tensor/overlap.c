/* SPDX-License-Identifier: MIT */
/*
 * Overlap: do elements have places in common?
 *
 * An exact answer for any strides is a hard problem (bounded integer equations). These tests
 * are exact for the usual tensors:
 *
 *   dense tensors          their bytes are one range
 *   rows, columns, blocks  the long strides of both are multiples of one number;
 *   and steps of a matrix  modulo that number each side is one short range, and
 *                          the ranges don't meet
 *
 * If nothing is proven, the answer is yes. An error for a harmless copy is better than wrong
 * bytes.
 */
#include "core/storage/storage.h"
#include "tensor/copy.h"

bool
cow__overlaps_itself(const struct cow_tensor *t)
{
	int64_t reach = 0; /* from the first to the last place, of the dimensions so far */
	uint64_t done = 0;

	if (t->numel < 2)
		return false;
	for (;;) {
		int next = -1;

		for (int i = 0; i < t->dims; i++)
			if (!(done >> i & 1) && t->sizes[i] > 1 &&
			    (next < 0 || t->strides[i] < t->strides[next]))
				next = i;
		if (next < 0)
			return false;
		if (t->strides[next] <= reach)
			return true;
		reach += (t->sizes[next] - 1) * t->strides[next];
		done |= (uint64_t)1 << next;
	}
}

static uint64_t
gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* All places of a tensor lie in `bytes` bytes from `start` on, moved by multiples of `step`:
 * strides below a limit count to `bytes`, the others to `step`. */
struct places {
	uint64_t start, bytes, step;
};

static struct places
places_of(const struct cow_tensor *t, uint64_t start, uint64_t limit)
{
	uint64_t item = cow_dtype_bytes((enum cow_dtype)t->dtype);
	struct places p = { .start = start, .bytes = item };

	for (int i = 0; i < t->dims; i++) {
		uint64_t stride = (uint64_t)t->strides[i] * item;

		if (t->sizes[i] == 1)
			continue;
		if (stride < limit)
			p.bytes += (uint64_t)(t->sizes[i] - 1) * stride;
		else
			p.step = gcd(p.step, stride);
	}
	return p;
}

static bool
apart(const struct cow_tensor *a, uint64_t a_at, const struct cow_tensor *b,
      uint64_t b_at, uint64_t limit)
{
	struct places p = places_of(a, a_at, limit);
	struct places q = places_of(b, b_at, limit);
	uint64_t step = gcd(p.step, q.step), distance;

	if (step == 0 || p.bytes + q.bytes > step)
		return false;
	/* How far q starts behind p, modulo `step`. */
	distance = (q.start % step + step - p.start % step) % step;
	return distance >= p.bytes && distance + q.bytes <= step;
}

static bool
proven_apart(const struct cow_tensor *a, uint64_t a_at,
             const struct cow_tensor *b, uint64_t b_at)
{
	const struct cow_tensor *both[] = { a, b };

	for (int k = 0; k < 2; k++) {
		uint64_t item = cow_dtype_bytes((enum cow_dtype)both[k]->dtype);

		for (int i = 0; i < both[k]->dims; i++)
			if (both[k]->sizes[i] > 1 && both[k]->strides[i] > 0 &&
			    apart(a, a_at, b, b_at,
			          (uint64_t)both[k]->strides[i] * item))
				return true;
	}
	return false;
}

static bool
same_places(const struct cow_tensor *a, const struct cow_tensor *b)
{
	if (a->dtype != b->dtype || a->dims != b->dims)
		return false;
	for (int i = 0; i < a->dims; i++)
		if (a->sizes[i] != b->sizes[i] ||
		    (a->sizes[i] > 1 && a->strides[i] != b->strides[i]))
			return false;
	return true;
}

enum cow__overlap
cow__overlap_of(const struct cow_tensor *a, const struct cow_tensor *b)
{
	const struct cow_storage *s = a->storage, *t = b->storage;
	size_t a_at, a_bytes, b_at, b_bytes;

	/* Storages on one allocation are clones: the first write gives one of them other
	 * memory. */
	if (s != t && (s->data == t->data || s->device.type != t->device.type ||
	               s->device.index != t->device.index))
		return COW__OVERLAP_NONE;
	cow__tensor_range(a, &a_at, &a_bytes);
	cow__tensor_range(b, &b_at, &b_bytes);
	/* Two storages may be on the same external memory. */
	a_at += (uintptr_t)cow_storage_data(s);
	b_at += (uintptr_t)cow_storage_data(t);
	if (a_bytes == 0 || b_bytes == 0 || a_at + a_bytes <= b_at ||
	    b_at + b_bytes <= a_at)
		return COW__OVERLAP_NONE;
	if (a_at == b_at && same_places(a, b))
		return COW__OVERLAP_SAME;
	if (cow_tensor_is_dense(a) && cow_tensor_is_dense(b))
		return COW__OVERLAP_SOME;
	return proven_apart(a, a_at, b, b_at) ? COW__OVERLAP_NONE
	                                      : COW__OVERLAP_SOME;
}

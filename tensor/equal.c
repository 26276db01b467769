/* SPDX-License-Identifier: MIT */
/*
 * Are two tensors equal?
 *
 * The loops compare contiguous elements in host memory, without conj and neg bits. Other
 * tensors are copied first. Integers are equal if their bytes are. Floats need more: a NaN
 * is not equal to itself, and 0 equals -0. The bits without the sign show both: they are 0,
 * or larger than those of infinity.
 */
#include "core/base/error.h"
#include "tensor/dtype.h"
#include "tensor/quantized.h"
#include "tensor/say.h"

/* The bits of the largest magnitude of a real float type that is not a NaN. */
static uint64_t
largest(enum cow_dtype dtype)
{
	switch (dtype) {
	case COW_FLOAT64:
	case COW_COMPLEX128:
		return 0x7ff0000000000000u;
	case COW_FLOAT32:
	case COW_COMPLEX64:
		return 0x7f800000u;
	case COW_FLOAT16:
	case COW_COMPLEX32:
		return 0x7c00u;
	case COW_BFLOAT16:
		return 0x7f80u;
	case COW_FLOAT8_E5M2:
		return 0x7cu;
	default:
		return 0x7eu;
	}
}

static bool
floats_equal(const char *a, const char *b, size_t n, size_t width,
             uint64_t most)
{
	uint64_t sign = (uint64_t)1 << (8 * width - 1);

	for (size_t i = 0; i < n; i++) {
		uint64_t x = 0, y = 0;

		memcpy(&x, a + i * width, width);
		memcpy(&y, b + i * width, width);
		if ((x & ~sign) > most || (y & ~sign) > most)
			return false;
		if (x != y && ((x | y) & ~sign) != 0)
			return false;
	}
	return true;
}

static bool
bools_equal(const unsigned char *a, const unsigned char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!a[i] != !b[i])
			return false;
	return true;
}

static bool
bytes_equal(enum cow_dtype dtype, const void *a, const void *b, size_t n)
{
	size_t width = cow__dtype_alignment(dtype);
	size_t bytes = n * cow_dtype_bytes(dtype);

	switch (cow__dtype_kind(dtype)) {
	case COW__KIND_BOOL:
		return bools_equal(a, b, n);
	case COW__KIND_FLOAT:
	case COW__KIND_COMPLEX:
		return floats_equal(a, b, bytes / width, width,
		                    largest(dtype));
	default:
		return memcmp(a, b, bytes) == 0;
	}
}

/* The tensor contiguous, in host memory, without bits. */
static int
plain_numbers(struct cow_tensor *t, struct cow_tensor **ret)
{
	const struct cow_to to = {
		.size = sizeof(to),
		.dtype = -1,
		.device = { COW_DEVICE_CPU, 0 },
		.set_device = true,
		.copy = t->conj || t->neg ||
		        !cow_tensor_is_contiguous(t, COW_FORMAT_CONTIGUOUS),
		.format = COW_FORMAT_CONTIGUOUS,
	};
	struct cow_to as_it_is = to;

	if (!to.copy)
		as_it_is.format = COW_FORMAT_PRESERVE;
	return cow_tensor_to(t, &as_it_is, ret);
}

/* The same; of a quantized tensor its integers, which are equal if its numbers are. */
static int
plain(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_tensor *integers;
	int r = cow__tensor_plain(t, &integers);

	if (r < 0)
		return r;
	r = plain_numbers(integers, ret);
	(void)cow_tensor_unref(integers);
	return r;
}

COW_EXPORT int
cow_tensor_equal(struct cow_tensor *a, struct cow_tensor *b)
{
	struct cow_tensor *x, *y;
	int r;

	if (!a || !b)
		return cow__error(-EINVAL, "cow_tensor_equal: NULL");
	if (a->dtype != b->dtype || a->dims != b->dims ||
	    memcmp(a->sizes, b->sizes, a->dims * sizeof(int64_t)) != 0)
		return 0;
	if (!cow__quantized_equal(a, b))
		return 0;
	if (a->numel == 0)
		return 1;
	r = cow__tensor_readable(a);
	if (r == 0)
		r = cow__tensor_readable(b);
	if (r < 0)
		return r;
	r = plain(a, &x);
	if (r < 0)
		return r;
	r = plain(b, &y);
	if (r == 0) {
		r = bytes_equal((enum cow_dtype)a->dtype, cow_tensor_data(x),
		                cow_tensor_data(y), (size_t)a->numel);
		(void)cow_tensor_unref(y);
	}
	(void)cow_tensor_unref(x);
	return r;
}

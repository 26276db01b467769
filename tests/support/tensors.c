/* SPDX-License-Identifier: MIT */
/*
 * Test support: tensors in one word. See the header.
 */
#include "tests/support/tensors.h"
#include "tests/device/fake.h"

#include <string.h>

struct cow_tensor *tensor_new(enum cow_dtype dtype, int dims,
                              const int64_t *sizes, enum cow_format format)
{
	const struct cow_tensor_options options = {
		.size = sizeof(options),
		.format = format,
	};
	struct cow_tensor *t;

	ok(cow_tensor_new(dtype, dims, sizes, &options, &t));
	return t;
}

struct cow_tensor *tensor_on_fake(int index, enum cow_dtype dtype, int dims,
                                  const int64_t *sizes)
{
	const struct cow_tensor_options options = {
		.size = sizeof(options),
		.device = { COW_DEVICE_PRIVATE, (int16_t)index },
		.allocator = fake_device_memory(index),
	};
	struct cow_tensor *t;

	ok(cow_tensor_new(dtype, dims, sizes, &options, &t));
	return t;
}

struct cow_tensor *tensor_on_meta(enum cow_dtype dtype, int dims,
                                  const int64_t *sizes)
{
	const struct cow_tensor_options options = {
		.size = sizeof(options),
		.device = { COW_DEVICE_META, 0 },
	};
	struct cow_tensor *t;

	ok(cow_tensor_new(dtype, dims, sizes, &options, &t));
	return t;
}

struct cow_tensor *tensor_counting(int dims, const int64_t *sizes)
{
	struct cow_tensor *t = tensor_new(COW_INT32, dims, sizes,
	                                  COW_FORMAT_CONTIGUOUS);
	int32_t *at;
	int64_t i;
	void *p;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	at = p;
	for (i = 0; i < cow_tensor_numel(t); i++)
		at[i] = (int32_t)i;
	return t;
}

struct cow_tensor *slice(struct cow_tensor *t, int dim, int64_t start,
                         int64_t end, int64_t step)
{
	struct cow_tensor *view;

	ok(cow_tensor_slice(t, dim, start, end, step, &view));
	cow_tensor_unref(t);
	return view;
}

struct cow_tensor *transpose(struct cow_tensor *t, int dim0, int dim1)
{
	struct cow_tensor *view;

	ok(cow_tensor_transpose(t, dim0, dim1, &view));
	cow_tensor_unref(t);
	return view;
}

struct cow_tensor *tensor_expand(struct cow_tensor *t, int dims,
                                 const int64_t *sizes)
{
	struct cow_tensor *view;

	ok(cow_tensor_expand(t, dims, sizes, &view));
	cow_tensor_unref(t);
	return view;
}

static void walk(struct cow_tensor *t, int dim, int64_t at, int64_t *n,
                 const int32_t *elements)
{
	const int64_t *sizes = cow_tensor_sizes(t);
	const int64_t *strides = cow_tensor_strides(t);
	const int32_t *data = cow_tensor_data(t);
	int64_t i;

	if (dim == cow_tensor_dims(t)) {
		ck_assert_msg(data[at] == elements[*n],
		              "element %ld is %d, not %d", (long)*n, data[at],
		              elements[*n]);
		++*n;
		return;
	}
	for (i = 0; i < sizes[dim]; i++)
		walk(t, dim + 1, at + i * strides[dim], n, elements);
}

void tensor_is(struct cow_tensor *t, int64_t n, const int32_t *elements)
{
	int64_t done = 0;

	ck_assert_int_eq(cow_tensor_dtype(t), COW_INT32);
	ck_assert_int_eq(cow_tensor_numel(t), n);
	walk(t, 0, 0, &done, elements);
	ck_assert_int_eq(done, n);
}

void tensor_numbers(const int64_t *have, struct cow_tensor *t, int dims,
                    const int64_t *want)
{
	int i;

	ck_assert_int_eq(cow_tensor_dims(t), dims);
	for (i = 0; i < dims; i++)
		ck_assert_msg(have[i] == want[i], "dimension %d: %ld, not %ld",
		              i, (long)have[i], (long)want[i]);
}

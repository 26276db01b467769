/* SPDX-License-Identifier: MIT */
/*
 * Copies of CUDA devices: the same bytes as on the host, in order, without waiting
 *
 * On the reference driver, which runs the kernels' own source, late. With a real driver the
 * tests do not check order and waiting.
 */
#include "tests/support/cuda.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t chance(uint64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % n;
}

/* -1: the host; a machine with one device has it twice. */
static struct cow_device place(int where)
{
	if (where < 0)
		return (struct cow_device){ COW_DEVICE_CPU, 0 };
	return (struct cow_device){ COW_DEVICE_CUDA, where % cow_cuda_count() };
}

static struct cow_tensor *on(int where, enum cow_dtype dtype, int dims, const int64_t *sizes)
{
	struct cow_tensor_options o = { .size = sizeof(o), .device = place(where) };
	struct cow_tensor *t;

	ok(cow_tensor_new(dtype, dims, sizes, &o, &t));
	return t;
}

static struct cow_tensor *at(int where, struct cow_tensor *t)
{
	const struct cow_to to = {
		.size = sizeof(to), .dtype = -1, .set_device = true, .copy = true,
		.format = COW_FORMAT_PRESERVE,
		.device = place(where),
	};
	struct cow_tensor *r;

	ok(cow_tensor_to(t, &to, &r));
	return r;
}

/* The same bytes, NaN or not. Dense, of the host. */
static bool same_bytes(struct cow_tensor *a, struct cow_tensor *b)
{
	return memcmp(cow_tensor_data(a), cow_tensor_data(b),
	              (size_t)cow_tensor_numel(a) * cow_dtype_bytes(cow_tensor_dtype(a))) == 0;
}

static void ck_same(struct cow_tensor *device, struct cow_tensor *host, const char *what, int a, int b)
{
	struct cow_tensor *h = on(-1, cow_tensor_dtype(device), cow_tensor_dims(device),
	                          cow_tensor_sizes(device));
	struct cow_tensor *w = on(-1, cow_tensor_dtype(host), cow_tensor_dims(host),
	                          cow_tensor_sizes(host));

	ok(cow_tensor_copy(h, device, 0));
	ok(cow_tensor_copy(w, host, 0));
	if (!same_bytes(h, w))
		ck_abort_msg("%s: not the same (%d, %d)", what, a, b);
	cow_tensor_unref(h);
	cow_tensor_unref(w);
}

/* A device that no kernel has code for: the driver refuses each module once. */
static void refuse_kernels(void)
{
	static const enum cow_dtype types[] = { COW_INT32, COW_FLOAT32, COW_FLOAT32 };

	for (int d = 0; d < 2; d++)
		for (int i = 0; i < 3; i++) {
			struct cow_tensor *a = on(d, types[i], 2, SIZES(9, 9));
			struct cow_tensor *b = on(d, COW_INT32, 2, SIZES(9, 9));

			if (i != 1)
				b = transpose(b, 0, 1);
			ref.fail_call("cuModuleLoadData", 1, COW_CU_NO_BINARY_FOR_GPU);
			ok(cow_tensor_copy(a, b, 0));
			cow_tensor_unref(a);
			cow_tensor_unref(b);
		}
	ck_assert_uint_eq(ref.calls("cuModuleLoadData"), 6);
}

static struct cow_tensor *view_of(struct cow_tensor *t, int kind)
{
	return kind == 0 ? t : kind == 1 ? transpose(t, 0, 1) : slice(t, 1, 0, INT64_MAX, 2);
}

/* All pairs of devices and layouts, with and without a conversion, with and without
 * kernels: as on the host, and nothing between the elements is touched. */
START_TEST(all_pairs)
{
	static const enum cow_dtype types[] = { COW_INT32, COW_FLOAT32, COW_UINT8 };
	int a = _i % 3 - 1, b = _i / 3 % 3 - 1;

	cuda_start();
	if (_i >= 9)
		refuse_kernels();
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++)
			for (int k = 0; k < 3; k++) {
				struct cow_tensor *h = counting(12, 12), *from, *to, *want, *all, *gaps;

				from = on(b, COW_INT32, 2, SIZES(12, 12));
				ok(cow_tensor_copy(from, h, 0));
				from = view_of(from, j);
				h = view_of(h, j);
				all = on(a, types[k], 2,
				         j == 2 ? (i == 1 ? SIZES(6, 12) : SIZES(12, i == 2 ? 12 : 6))
				                : SIZES(12, i == 2 ? 24 : 12));
				ok(cow_tensor_fill(all, COW_INT8, "\11"));
				to = view_of(cow_tensor_ref(all), i);
				want = on(-1, types[k], 2, cow_tensor_sizes(to));
				ok(cow_tensor_copy(to, from, 0));
				ok(cow_tensor_copy(want, h, 0));
				ck_same(to, want, "all pairs", i, j);
				if (i == 2) {
					gaps = slice(cow_tensor_ref(all), 1, 1, INT64_MAX, 2);
					ok(cow_tensor_fill(want, COW_INT8, "\11"));
					ck_same(gaps, want, "between the elements", i, j);
					cow_tensor_unref(gaps);
				}
				cow_tensor_unref(want);
				cow_tensor_unref(to);
				cow_tensor_unref(all);
				cow_tensor_unref(from);
				cow_tensor_unref(h);
			}
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* Every value of small types; of wide ones, all exponents, and what rounds badly. */
static struct cow_tensor *values(enum cow_dtype type)
{
	size_t item = cow_dtype_bytes(type), n = item <= 2 ? (size_t)1 << 8 * item : 20000;
	struct cow_tensor *t = on(-1, type, 1, SIZES((int64_t)n));
	unsigned char *p;
	void *data;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &data));
	p = data;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < item; k++)
			p[i * item + k] = item <= 2 ? (unsigned char)(i >> 8 * k)
			                            : (unsigned char)chance(256);
	if (item > 2)
		for (size_t i = 0; i < n; i += 3)
			for (size_t k = 0; k + 1 < item; k++)
				if (chance(3))
					p[i * item + k] = chance(2) ? 0 : 0xff;
	/* A bool is 0 or 1; what others leave there counts as true. */
	return t;
}

/* Of one type to all others, with all bits that a source may have. */
START_TEST(conversions)
{
	struct cow_tensor *h, *d, *v, *w;

	cuda_start();
	state = (uint64_t)_i;
	h = values((enum cow_dtype)_i);
	d = at(0, h);
	for (int to = 0; to < COW_QUINT8; to++)
		for (int bits = 0; bits < (_i == COW_BOOL ? 2 : 4); bits++) {
			struct cow_tensor *a = on(0, (enum cow_dtype)to, 1, cow_tensor_sizes(h));
			struct cow_tensor *b = on(-1, (enum cow_dtype)to, 1, cow_tensor_sizes(h));
			struct cow_tensor *odd, *even;

			v = cow_tensor_ref(d);
			w = cow_tensor_ref(h);
			if (bits & 1) {
				ok(cow_tensor_conj(v, &odd));
				ok(cow_tensor_conj(w, &even));
				cow_tensor_unref(v);
				cow_tensor_unref(w);
				v = odd;
				w = even;
			}
			if (bits & 2) {
				ok(cow_tensor_neg(v, &odd));
				ok(cow_tensor_neg(w, &even));
				cow_tensor_unref(v);
				cow_tensor_unref(w);
				v = odd;
				w = even;
			}
			ok(cow_tensor_copy(a, v, 0));
			ok(cow_tensor_copy(b, w, 0));
			ck_same(a, b, "conversion", _i, to);
			cow_tensor_unref(v);
			cow_tensor_unref(w);
			cow_tensor_unref(a);
			cow_tensor_unref(b);
		}
	cow_tensor_unref(h);
	cow_tensor_unref(d);
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* A view of both at once. */
static void both(struct cow_tensor **d, struct cow_tensor **h, int kind, int dim, int64_t arg)
{
	struct cow_tensor **t[2] = { d, h };

	for (int i = 0; i < 2; i++)
		*t[i] = kind == 0   ? transpose(*t[i], dim, (int)arg)
		        : kind == 1 ? slice(*t[i], dim, arg, INT64_MAX, 1)
		                    : slice(*t[i], dim, 0, INT64_MAX, arg);
}

static void make_views(struct cow_tensor **d, struct cow_tensor **h, int dims)
{
	for (uint64_t n = chance(5); n > 0; n--) {
		int dim = (int)chance((uint64_t)dims);

		if (chance(2))
			both(d, h, 0, dim, (int64_t)chance((uint64_t)dims));
		else if (cow_tensor_sizes(*h)[dim] > 2)
			both(d, h, 1 + (int)chance(2), dim, 1 + (int64_t)chance(2));
	}
}

/* A tensor of the host with bytes at random, and its copy on the device. */
static void make_both(struct cow_tensor **d, struct cow_tensor **h, enum cow_dtype type, int dims)
{
	int64_t sizes[5];
	void *data;
	size_t bytes;

	for (int i = 0; i < dims; i++)
		sizes[i] = 1 + (int64_t)chance(dims == 1 ? 3000 : dims == 2 ? 150 : dims == 3 ? 30 : 9);
	*h = on(-1, type, dims, sizes);
	bytes = (size_t)cow_tensor_numel(*h) * cow_dtype_bytes(type);
	ok(cow_tensor_data_mut(*h, COW_WRITE_ALL, &data));
	fill(data, bytes, state);
	*d = at(0, *h);
}

typedef int change_fn(struct cow_tensor *t, struct cow_tensor **ret);

static void change_both(change_fn *change, struct cow_tensor **d, struct cow_tensor **h)
{
	struct cow_tensor *x, *y;

	ok(change(*d, &x));
	ok(change(*h, &y));
	cow_tensor_unref(*d);
	cow_tensor_unref(*h);
	*d = x;
	*h = y;
}

/* Into every second column of something larger, or into columns side by side: the rest
 * stays. */
static void copy_both(struct cow_tensor *d, struct cow_tensor *h, enum cow_dtype other)
{
	int dims = cow_tensor_dims(h);
	struct cow_tensor *a, *b, *x, *y;
	int64_t sizes[5];

	memcpy(sizes, cow_tensor_sizes(h), (size_t)dims * sizeof(int64_t));
	sizes[dims - 1] = sizes[dims - 1] * 2 + 3;
	x = on(0, other, dims, sizes);
	y = on(-1, other, dims, sizes);
	ok(cow_tensor_fill(x, COW_INT8, "\7"));
	ok(cow_tensor_fill(y, COW_INT8, "\7"));
	a = slice(cow_tensor_ref(x), dims - 1, 3, INT64_MAX, 2);
	b = slice(cow_tensor_ref(y), dims - 1, 3, INT64_MAX, 2);
	if (chance(2)) {
		cow_tensor_unref(a);
		cow_tensor_unref(b);
		sizes[dims - 1] = cow_tensor_sizes(h)[dims - 1];
		a = slice(cow_tensor_ref(x), dims - 1, 1, 1 + sizes[dims - 1], 1);
		b = slice(cow_tensor_ref(y), dims - 1, 1, 1 + sizes[dims - 1], 1);
	}
	ok(cow_tensor_copy(a, d, 0));
	ok(cow_tensor_copy(b, h, 0));
	ck_same(x, y, "at random", (int)cow_tensor_dtype(h), (int)other);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(x);
	cow_tensor_unref(y);
}

/* Shapes, layouts, types and bits at random. */
START_TEST(at_random)
{
	cuda_start();
	state = (uint64_t)_i + 1;
	for (int round = 0; round < ROUNDS(60); round++) {
		int dims = 1 + (int)chance(5);
		enum cow_dtype type = (enum cow_dtype)chance(COW_QUINT8);
		enum cow_dtype other = chance(2) ? type : (enum cow_dtype)chance(COW_QUINT8);
		struct cow_tensor *h, *d;

		make_both(&d, &h, type, dims);
		make_views(&d, &h, dims);
		if (chance(3) == 0)
			change_both(cow_tensor_conj, &d, &h);
		if (type != COW_BOOL && chance(3) == 0)
			change_both(cow_tensor_neg, &d, &h);
		copy_both(d, h, other);
		cow_tensor_unref(d);
		cow_tensor_unref(h);
	}
	must(!driver_is_reference() || ref.calls("cuLaunchKernel") > 0);
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* Squares of all units, whole and cut, one type and two. */
START_TEST(permuted)
{
	static const enum cow_dtype types[] = { COW_UINT8, COW_INT16, COW_FLOAT32, COW_FLOAT64,
		                                COW_COMPLEX128 };
	static const int64_t sides[] = { 8, 31, 32, 64, 129, 160 };

	cuda_start();
	for (size_t t = 0; t < COUNT(types); t++)
		for (size_t i = 0; i < COUNT(sides); i++)
			for (size_t k = 0; k < COUNT(sides); k += 2) {
				struct cow_tensor *h = on(-1, types[t], 3, SIZES(2, sides[i], sides[k]));
				struct cow_tensor *d, *a, *b;
				void *data;

				ok(cow_tensor_data_mut(h, COW_WRITE_ALL, &data));
				fill(data, (size_t)cow_tensor_numel(h) * cow_dtype_bytes(types[t]), i);
				d = transpose(at(0, h), 1, 2);
				h = transpose(h, 1, 2);
				ok(cow_tensor_clone(d, COW_FORMAT_CONTIGUOUS, &a));
				ok(cow_tensor_clone(h, COW_FORMAT_CONTIGUOUS, &b));
				ck_same(a, b, "permuted", (int)t, (int)sides[i]);
				cow_tensor_unref(a);
				cow_tensor_unref(b);
				a = on(0, COW_BFLOAT16, 3, cow_tensor_sizes(h));
				b = on(-1, COW_BFLOAT16, 3, cow_tensor_sizes(h));
				ok(cow_tensor_copy(a, d, 0));
				ok(cow_tensor_copy(b, h, 0));
				ck_same(a, b, "permuted and converted", (int)t, (int)sides[i]);
				cow_tensor_unref(a);
				cow_tensor_unref(b);
				cow_tensor_unref(d);
				cow_tensor_unref(h);
			}
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* As many dimensions as there may be, none of which is one with its neighbour. */
START_TEST(many_dimensions)
{
	int64_t sizes[COW_DIMS_MAX];
	int order[COW_DIMS_MAX];
	struct cow_tensor *h, *d, *x, *y;
	void *data;

	cuda_start();
	for (int i = 0; i < COW_DIMS_MAX; i++) {
		sizes[i] = i % 4 ? 1 : 2;
		order[i] = COW_DIMS_MAX - 1 - i;
	}
	h = on(-1, COW_INT16, COW_DIMS_MAX, sizes);
	ok(cow_tensor_data_mut(h, COW_WRITE_ALL, &data));
	fill(data, (size_t)cow_tensor_numel(h) * 2, 1);
	d = at(0, h);
	ok(cow_tensor_permute(d, order, &x));
	ok(cow_tensor_permute(h, order, &y));
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	ok(cow_tensor_clone(x, COW_FORMAT_CONTIGUOUS, &d));
	ok(cow_tensor_clone(y, COW_FORMAT_CONTIGUOUS, &h));
	ck_same(d, h, "many dimensions", 0, 0);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	cow_tensor_unref(x);
	cow_tensor_unref(y);
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* Offsets of more than 31 bits: rows, squares and conversions that lie far apart. */
START_TEST(far_apart)
{
	const int64_t far = (int64_t)1 << 28; /* elements */
	struct cow_tensor *all, *d, *e, *h, *back;

	must(setenv("COWREF_MEMORY", "8589934592", 1) == 0);
	cuda_start();
	all = on(0, COW_INT32, 1, SIZES(2 * far + 64 * 40));
	for (int kind = 0; kind < 3; kind++) {
		/* 3 x 40 x 33, the first dimension far apart. */
		ok(cow_tensor_as_strided(all, 3, SIZES(3, 40, 33), SIZES(far, 40, 1), 0, &d));
		h = counting(3, 40, 33);
		ok(cow_tensor_copy(d, h, 0));
		if (kind == 1) {
			d = transpose(d, 1, 2);
			h = transpose(h, 1, 2);
		}
		e = on(0, kind == 2 ? COW_INT16 : COW_INT32, 3, cow_tensor_sizes(h));
		back = on(-1, kind == 2 ? COW_INT16 : COW_INT32, 3, cow_tensor_sizes(h));
		ok(cow_tensor_copy(e, d, 0));
		ok(cow_tensor_copy(back, h, 0));
		ck_same(e, back, "far apart", kind, 0);
		cow_tensor_unref(d);
		cow_tensor_unref(e);
		cow_tensor_unref(h);
		cow_tensor_unref(back);
	}
	cow_tensor_unref(all);
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

/* One copy of the driver's if that can do it, else one kernel. */
START_TEST(which_copy)
{
	struct cow_tensor *a, *b, *c;
	uint64_t launches, rows, slices;

	cuda_start();
	a = on(0, COW_INT32, 3, SIZES(4, 16, 4096));
	b = slice(on(0, COW_INT32, 3, SIZES(4, 16, 5000)), 2, 0, 4096, 1);
	c = slice(slice(on(0, COW_INT32, 3, SIZES(4, 20, 5000)), 1, 0, 16, 1), 2, 0, 4096, 1);
	launches = ref.calls("cuLaunchKernel");
	rows = ref.calls("cuMemcpy2DAsync");
	slices = ref.calls("cuMemcpy3DAsync");
	ok(cow_tensor_copy(a, b, 0));
	ck_assert_uint_eq(ref.calls("cuMemcpy2DAsync"), rows + 1);
	ok(cow_tensor_copy(a, c, 0));
	ck_assert_uint_eq(ref.calls("cuMemcpy3DAsync"), slices + 1);
	ck_assert_uint_eq(ref.calls("cuLaunchKernel"), launches);
	b = transpose(b, 0, 1);
	a = transpose(a, 0, 1);
	ok(cow_tensor_copy(a, b, 0));
	ck_assert_uint_eq(ref.calls("cuLaunchKernel") + ref.calls("cuMemcpy2DAsync"), launches + rows + 2);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(c);
	cuda_finish(0);
	ok(cow_cuda_empty_cache(-1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_cuda_copy");
	TCase *tcase = add_case(suite, "copies");

	driver_choose();
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, all_pairs, 0, driver_is_reference() ? 18 : 9);
	tcase_add_loop_test(tcase, conversions, 0, COW_QUINT8);
	tcase_add_loop_test(tcase, at_random, 0, 6);
	tcase_add_test(tcase, permuted);
	tcase_add_test(tcase, many_dimensions);
	tcase_add_test(tcase, far_apart);
	add_test_needing(NEEDS_CONTROL, tcase, which_copy);
	return run_suite(suite);
}

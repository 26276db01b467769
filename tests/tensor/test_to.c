/* SPDX-License-Identifier: MIT */
/*
 * Tensors from tensors: to, clone, contiguous, reshape, fill, equal
 */
#include "tests/support/tensors.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { N = 2, C = 3, H = 128, W = 128 };

static struct cow_to as_it_is(void)
{
	return (struct cow_to){ .size = sizeof(struct cow_to), .dtype = -1,
		                .format = COW_FORMAT_PRESERVE };
}

static struct cow_tensor *to(struct cow_tensor *t, struct cow_to o)
{
	struct cow_tensor *ret;

	ok(cow_tensor_to(t, &o, &ret));
	return ret;
}

START_TEST(the_same)
{
	struct cow_tensor *t = counting(N, C, 4, 4), *u;
	struct cow_to o = as_it_is();

	u = to(t, o);
	ck_assert_ptr_eq(u, t);
	cow_tensor_unref(u);
	o.dtype = COW_INT32;
	o.set_device = true;
	o.format = COW_FORMAT_CONTIGUOUS;
	u = to(t, o);
	ck_assert_ptr_eq(u, t);
	cow_tensor_unref(u);
	ok(cow_tensor_to(t, NULL, &u));
	ck_assert_ptr_eq(u, t);
	cow_tensor_unref(u);
	o.copy = true;
	u = to(t, o);
	ck_assert_ptr_ne(cow_tensor_data(u), cow_tensor_data(t));
	must(cow_tensor_equal(u, t) == 1);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(other_type_and_format)
{
	struct cow_tensor *t = counting(N, C, 4, 5), *u, *v;
	struct cow_to o = as_it_is();

	o.dtype = COW_FLOAT64;
	o.format = COW_FORMAT_CHANNELS_LAST;
	u = to(t, o);
	ck_assert_int_eq(cow_tensor_dtype(u), COW_FLOAT64);
	ck_strides(u, 60, 1, 15, 3);
	o.dtype = COW_INT32;
	o.format = COW_FORMAT_PRESERVE;
	v = to(u, o); /* dense: the same strides, and what it was asked for as */
	ck_strides(v, 60, 1, 15, 3);
	ck_assert_int_eq(cow_tensor_format(v), COW_FORMAT_CHANNELS_LAST);
	must(cow_tensor_equal(t, v) == 1);
	cow_tensor_unref(v);
	o.dtype = -1;
	o.format = COW_FORMAT_CONTIGUOUS;
	v = to(u, o);
	ck_assert_int_eq(cow_tensor_format(v), COW_FORMAT_CONTIGUOUS);
	cow_tensor_unref(v);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

/* Asking for a format gives it, also where no stride would differ. */
START_TEST(formats_are_given)
{
	struct cow_tensor *t = counting(5, 1, 1, 1), *u, *v;
	struct cow_to o = as_it_is();

	o.format = COW_FORMAT_CHANNELS_LAST;
	u = to(t, o);
	ck_assert_int_eq(cow_tensor_format(u), COW_FORMAT_CHANNELS_LAST);
	must(cow_tensor_storage(u) != cow_tensor_storage(t));
	v = to(u, o);
	ck_assert_ptr_eq(u, v);
	cow_tensor_unref(v);
	ok(cow_tensor_contiguous(t, COW_FORMAT_CHANNELS_LAST, 0, &v));
	ck_assert_int_eq(cow_tensor_format(v), COW_FORMAT_CHANNELS_LAST);
	ck_assert_ptr_eq(cow_tensor_storage(v), cow_tensor_storage(t));
	cow_tensor_unref(v);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

/* PRESERVE of a tensor that is not dense: the order of dimensions, without the gaps. */
START_TEST(order_is_preserved)
{
	struct cow_tensor *t = tensor_counting(3, SIZES(4, 6, 8)), *u;
	struct cow_to o = as_it_is();

	t = slice(transpose(t, 0, 2), 0, 0, 8, 2); /* [4, 6, 4], 4 the densest */
	o.copy = true;
	u = to(t, o);
	ck_sizes(u, 4, 6, 4);
	ck_strides(u, 1, 4, 24);
	must(cow_tensor_equal(t, u) == 1);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	t = expand(counting(1, 3), 4, 3);
	u = to(t, o);
	ck_strides(u, 3, 1);
	must(cow_tensor_is_dense(u));
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	/* Repeated dimensions have no place: they go where PyTorch puts them. */
	t = expand(transpose(counting(2, 3), 0, 1), 3, 3, 2);
	u = to(t, o);
	ck_strides(u, 6, 1, 3);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(to_refused)
{
	struct cow_tensor *t = counting(2, 3), *u = (void *)1;
	struct cow_to o = as_it_is();
	struct {
		struct cow_to o;
		char more[8];
	} longer = { .o = as_it_is(), .more = { 1 } };

	o.format = COW_FORMAT_NONE;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	o.format = COW_FORMAT_CHANNELS_LAST;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "int32 [2, 3]"));
	o.format = 17;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	o = as_it_is();
	o.dtype = COW_DTYPES;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	o.dtype = -2;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	o = as_it_is();
	o.flags = 1u << 9;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	o = as_it_is();
	o.size = 4;
	fails(-EINVAL, cow_tensor_to(t, &o, &u));
	o = as_it_is();
	o.set_device = true;
	o.device.type = COW_DEVICE_CUDA;
	fails(-ENODEV, cow_tensor_to(t, &o, &u));
	longer.o.size = sizeof(longer);
	fails(-E2BIG, cow_tensor_to(t, &longer.o, &u));
	fails(-EINVAL, cow_tensor_to(NULL, &o, &u));
	fails(-EINVAL, cow_tensor_clone(t, COW_FORMAT_NONE, &u));
	fails(-EINVAL, cow_tensor_clone(NULL, COW_FORMAT_PRESERVE, &u));
	fails(-EINVAL, cow_tensor_lazy_clone(NULL, &u));
	fails(-EINVAL, cow_tensor_contiguous(t, COW_FORMAT_NONE, 0, &u));
	fails(-EINVAL, cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, 8, &u));
	fails(-EINVAL, cow_tensor_reshape(t, 1, SIZES(-1), COW_COPY_NON_BLOCKING, &u));
	fails(-EINVAL, cow_tensor_contiguous(t, COW_FORMAT_CHANNELS_LAST_3D, 0, &u));
	fails(-EINVAL, cow_tensor_contiguous(NULL, COW_FORMAT_CONTIGUOUS, 0, &u));
	fails(-EINVAL, cow_tensor_reshape(t, 1, SIZES(7), 0, &u));
	fails(-EINVAL, cow_tensor_reshape(NULL, 1, SIZES(6), 0, &u));
	fails(-EINVAL, cow_tensor_fill(t, COW_DTYPES, "x"));
	fails(-EINVAL, cow_tensor_fill(t, COW_INT8, NULL));
	fails(-EINVAL, cow_tensor_fill(NULL, COW_INT8, "x"));
	fails(-EINVAL, cow_tensor_equal(t, NULL));
	ck_assert_ptr_eq(u, (void *)1);
	cow_tensor_unref(t);
}
END_TEST

/* ---- Lazy ------------------------------------------------------------------------ */

START_TEST(lazy_results)
{
	struct cow_tensor *t = counting(N, C, H, W), *u[4];
	struct cow_to o = as_it_is();
	struct cow_stats before = stats_now();
	size_t i;
	void *p;

	o.copy = true;
	o.flags = COW_COPY_LAZY;
	u[0] = to(t, o);
	ok(cow_tensor_lazy_clone(t, &u[1]));
	ok(cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, COW_COPY_LAZY, &u[2]));
	ok(cow_tensor_reshape(t, 2, SIZES(N * C, -1), COW_COPY_LAZY, &u[3]));
	ck_assert_uint_eq(stats_now().bytes_copied, before.bytes_copied);
	for (i = 0; i < 4; i++) {
		must(cow_tensor_storage(u[i]) != cow_tensor_storage(t));
		ck_assert_ptr_eq(cow_tensor_data(u[i]), cow_tensor_data(t));
		ck_assert_uint_eq(refs_of(cow_tensor_storage(u[i])), 1);
		ok(cow_tensor_data_mut(u[i], COW_WRITE_SPARSE, &p));
		*(int32_t *)p = -5;
		ck_assert_int_eq(*(const int32_t *)cow_tensor_data(t), 0);
		cow_tensor_unref(u[i]);
	}
	cow_tensor_unref(t);
}
END_TEST

/* Strict memory is there before it is written: no pages that come later. */
START_TEST(strict_memory_is_not_lazy)
{
	const struct cow_tensor_options o = {
		.size = sizeof(o), .storage_flags = COW_STORAGE_STRICT,
	};
	struct cow_tensor *t = counting(H, W), *u;

	ok(cow_tensor_new(COW_INT32, 2, SIZES(H, W), &o, &u));
	ok(cow_tensor_copy(u, t, COW_COPY_LAZY));
	ck_assert_ptr_ne(cow_tensor_data(u), cow_tensor_data(t));
	must(cow_tensor_equal(u, t) == 1);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

/* No way of reading materializes. */
START_TEST(reading_is_not_writing)
{
	struct cow_tensor *t = counting(N, C, H, W), *c, *u, *r;
	struct cow_to o = as_it_is();
	uint64_t copied;
	char text[4000];

	ok(cow_tensor_lazy_clone(t, &c));
	copied = stats_now().bytes_copied;
	ok(cow_tensor_clone(c, COW_FORMAT_CHANNELS_LAST, &u));
	must(cow_tensor_equal(c, u) == 1);
	cow_tensor_unref(u);
	o.dtype = COW_FLOAT16;
	u = to(c, o);
	cow_tensor_unref(u);
	ok(cow_tensor_permute(c, (int[]){ 3, 2, 1, 0 }, &u));
	ok(cow_tensor_reshape(u, 1, SIZES(-1), 0, &r));
	must(cow_tensor_print(c, 3, text, sizeof(text)) > 0);
	ck_assert_uint_eq(state_of(cow_tensor_storage(c)), COW_STATE_LAZY);
	ck_assert_uint_eq(state_of(cow_tensor_storage(t)), COW_STATE_LAZY);
	ck_assert_ptr_eq(cow_tensor_data(c), cow_tensor_data(t));
	ck_assert_uint_eq(stats_now().bytes_copied, copied);
	cow_tensor_unref(r);
	cow_tensor_unref(u);
	cow_tensor_unref(c);
	cow_tensor_unref(t);
}
END_TEST

/* A small part of memory from elsewhere: the part is copied, not all of it. */
START_TEST(part_of_external_memory)
{
	static int32_t memory[1 << 20];
	struct cow_data_ptr ptr = cow_data_ptr_make(memory, NULL, NULL,
	                                            (struct cow_device){ 0, 0 });
	struct cow_tensor *t, *u;
	struct cow_storage *s;
	struct cow_stats before;
	int i;

	for (i = 0; i < 100; i++)
		memory[50 + i] = i;
	ok(cow_storage_new_external(&ptr, sizeof(memory), NULL, &s));
	ok(cow_tensor_on(s, COW_INT32, 1, SIZES(3), NULL, 51, &t));
	before = stats_now();
	ok(cow_tensor_lazy_clone(t, &u));
	must(stats_now().bytes_copied - before.bytes_copied < 1000);
	ck_elements(u, 1, 2, 3);
	ck_assert_uint_eq(cow_storage_bytes(cow_tensor_storage(u)), 12);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	cow_storage_unref(s);
}
END_TEST

START_TEST(contiguous)
{
	struct cow_tensor *t = counting(2, 3), *u, *v;

	ok(cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, 0, &u));
	ck_assert_ptr_eq(t, u);
	cow_tensor_unref(u);
	ok(cow_tensor_transpose(t, 0, 1, &v));
	ok(cow_tensor_contiguous(v, COW_FORMAT_CONTIGUOUS, 0, &u));
	ck_elements(u, 0, 3, 1, 4, 2, 5);
	ck_strides(u, 2, 1);
	cow_tensor_unref(u);
	ok(cow_tensor_reshape(v, 1, SIZES(6), 0, &u));
	ck_elements(u, 0, 3, 1, 4, 2, 5);
	cow_tensor_unref(u);
	ok(cow_tensor_reshape(v, 1, SIZES(6), COW_COPY_LAZY, &u));
	ck_elements(u, 0, 3, 1, 4, 2, 5);
	cow_tensor_unref(u);
	ok(cow_tensor_reshape(t, 1, SIZES(6), 0, &u));
	ck_assert_ptr_eq(cow_tensor_storage(u), cow_tensor_storage(t));
	cow_tensor_unref(u);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

/* Bits stay bits in clones, and are resolved by to(). */
START_TEST(bits)
{
	struct cow_tensor *t = counting(3), *n, *u;
	struct cow_to o = as_it_is();

	ok(cow_tensor_neg(t, &n));
	ok(cow_tensor_clone(n, COW_FORMAT_PRESERVE, &u));
	must(cow_tensor_is_neg(u));
	ck_elements(u, 0, 1, 2);
	must(cow_tensor_equal(u, n) == 1 && cow_tensor_equal(u, t) == 0);
	cow_tensor_unref(u);
	o.copy = true;
	for (int i = 0; i < 2; i++) {
		o.flags = i ? COW_COPY_LAZY : 0;
		u = to(n, o);
		must(!cow_tensor_is_neg(u));
		ck_elements(u, 0, -1, -2);
		must(cow_tensor_equal(u, n) == 1);
		cow_tensor_unref(u);
	}
	cow_tensor_unref(n);
	cow_tensor_unref(t);
}
END_TEST

/* ---- Equal ------------------------------------------------------------------------- */

static int equal(enum cow_dtype dtype, const void *a, const void *b)
{
	struct cow_tensor *t[2];
	void *p;
	int i, r;

	for (i = 0; i < 2; i++) {
		ok(cow_tensor_new(dtype, 0, NULL, NULL, &t[i]));
		ok(cow_tensor_data_mut(t[i], COW_WRITE_ALL, &p));
		memcpy(p, i ? b : a, cow_dtype_bytes(dtype));
	}
	r = cow_tensor_equal(t[0], t[1]);
	cow_tensor_unref(t[0]);
	cow_tensor_unref(t[1]);
	return r;
}

START_TEST(equality)
{
	struct cow_tensor *a = counting(2, 3), *b = counting(3, 2);
	const float nan = NAN, zero = 0, minus = -0.0f;

	must(cow_tensor_equal(a, a) == 1);
	must(cow_tensor_equal(a, b) == 0);
	b = transpose(b, 0, 1);
	must(cow_tensor_equal(a, b) == 0);
	ok(cow_tensor_copy(b, a, 0));
	must(cow_tensor_equal(a, b) == 1);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	must(equal(COW_FLOAT32, &nan, &nan) == 0);
	must(equal(COW_FLOAT32, &zero, &minus) == 1);
	must(equal(COW_INT32, &zero, &minus) == 0);
	must(equal(COW_FLOAT16, "\0\x7c", "\0\x7c") == 1);  /* infinity */
	must(equal(COW_FLOAT16, "\1\x7c", "\1\x7c") == 0);
	must(equal(COW_BFLOAT16, "\x80\x7f", "\x80\xff") == 0);
	must(equal(COW_BFLOAT16, "\x81\x7f", "\x81\x7f") == 0);
	must(equal(COW_FLOAT8_E4M3FN, "\x7e", "\x7e") == 1);
	must(equal(COW_FLOAT8_E4M3FN, "\xff", "\xff") == 0);
	must(equal(COW_FLOAT8_E5M2, "\x7c", "\x7c") == 1);
	must(equal(COW_FLOAT8_E5M2, "\x7d", "\x7d") == 0);
	must(equal(COW_BOOL, "\1", "\2") == 1);
	must(equal(COW_COMPLEX64, (float[]){ 1, nan }, (float[]){ 1, nan }) == 0);
	must(equal(COW_COMPLEX64, (float[]){ 1, 0 }, (float[]){ 1, minus }) == 1);
	must(equal(COW_FLOAT64, &(double){ 1 }, &(double){ 2 }) == 0);
}
END_TEST

START_TEST(fills)
{
	struct cow_tensor *t = counting(2, 3), *u;

	ok(cow_tensor_slice(t, 1, 0, 3, 2, &u));
	ok(cow_tensor_fill(u, COW_FLOAT64, &(double){ -2.9 }));
	ck_elements(t, -2, 1, -2, -2, 4, -2);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_to");
	TCase *tcase = add_case(suite, "to");

	tcase_add_test(tcase, the_same);
	tcase_add_test(tcase, other_type_and_format);
	tcase_add_test(tcase, formats_are_given);
	tcase_add_test(tcase, order_is_preserved);
	tcase_add_test(tcase, to_refused);
	tcase_add_test(tcase, lazy_results);
	tcase_add_test(tcase, strict_memory_is_not_lazy);
	tcase_add_test(tcase, reading_is_not_writing);
	tcase_add_test(tcase, part_of_external_memory);
	tcase_add_test(tcase, contiguous);
	tcase_add_test(tcase, bits);
	tcase_add_test(tcase, equality);
	tcase_add_test(tcase, fills);
	return run_suite(suite);
}

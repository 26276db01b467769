/* SPDX-License-Identifier: MIT */
/*
 * Tensors: types, making them, questions about them, formats, text
 */
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>

START_TEST(types)
{
	static const struct {
		enum cow_dtype dtype;
		size_t bytes;
		const char *name;
	} known[] = {
		{ COW_BOOL, 1, "bool" },
		{ COW_INT64, 8, "int64" },
		{ COW_UINT16, 2, "uint16" },
		{ COW_BFLOAT16, 2, "bfloat16" },
		{ COW_FLOAT32, 4, "float32" },
		{ COW_COMPLEX32, 4, "complex32" },
		{ COW_COMPLEX128, 16, "complex128" },
		{ COW_FLOAT8_E4M3FN, 1, "float8_e4m3fn" },
	};
	size_t i;
	int d;

	for (i = 0; i < COUNT(known); i++) {
		ck_assert_uint_eq(cow_dtype_bytes(known[i].dtype), known[i].bytes);
		ck_assert_str_eq(cow_dtype_name(known[i].dtype), known[i].name);
	}
	for (d = 0; d < COW_DTYPES; d++) {
		must(cow_dtype_bytes((enum cow_dtype)d) > 0);
		must(cow_dtype_name((enum cow_dtype)d) != NULL);
		must(!cow_dtype_is_floating((enum cow_dtype)d) ||
		     !cow_dtype_is_complex((enum cow_dtype)d));
	}
	must(cow_dtype_is_floating(COW_FLOAT8_E5M2));
	must(cow_dtype_is_complex(COW_COMPLEX32));
	must(!cow_dtype_is_floating(COW_COMPLEX64));
	must(!cow_dtype_is_floating(COW_INT8));
	for (d = -1; d <= COW_DTYPES; d += COW_DTYPES + 1) {
		ck_assert_uint_eq(cow_dtype_bytes((enum cow_dtype)d), 0);
		ck_assert_ptr_null(cow_dtype_name((enum cow_dtype)d));
		must(!cow_dtype_is_complex((enum cow_dtype)d));
	}
	ck_assert_str_eq(cow_format_name(COW_FORMAT_NONE), "none");
	ck_assert_str_eq(cow_format_name(COW_FORMAT_CHANNELS_LAST_3D),
	                 "channels_last_3d");
	ck_assert_ptr_null(cow_format_name((enum cow_format)99));
}
END_TEST

START_TEST(birth)
{
	struct cow_tensor *t = tensor(COW_FLOAT32, 2, 3, 4);
	void *p;

	ck_sizes(t, 2, 3, 4);
	ck_strides(t, 12, 4, 1);
	ck_assert_int_eq(cow_tensor_numel(t), 24);
	ck_assert_int_eq(cow_tensor_offset(t), 0);
	ck_assert_int_eq(cow_tensor_dtype(t), COW_FLOAT32);
	ck_assert_int_eq(cow_tensor_device(t).type, COW_DEVICE_CPU);
	ck_assert_uint_eq(cow_storage_bytes(cow_tensor_storage(t)), 96);
	must(!cow_tensor_is_conj(t) && !cow_tensor_is_neg(t));
	must(cow_tensor_is_dense(t));
	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	ck_assert_ptr_eq(p, cow_tensor_data(t));
	ck_assert_ptr_eq(cow_tensor_ref(t), t);
	ck_assert_ptr_null(cow_tensor_unref(t));
	ck_assert_int_eq(cow_tensor_numel(t), 24);
	cow_tensor_unref(t);
	ck_assert_ptr_null(cow_tensor_unref(NULL));
}
END_TEST

/* Without dimensions, without elements, with as many dimensions as there can be. */
START_TEST(extremes)
{
	struct cow_tensor *t;
	int64_t sizes[COW_DIMS_MAX];
	void *p = &sizes;
	int i;

	ok(cow_tensor_new(COW_INT16, 0, NULL, NULL, &t));
	ck_assert_int_eq(cow_tensor_numel(t), 1);
	ck_assert_uint_eq(cow_storage_bytes(cow_tensor_storage(t)), 2);
	cow_tensor_unref(t);

	t = tensor(COW_INT32, 3, 0, 5);
	ck_strides(t, 5, 5, 1);
	ck_assert_int_eq(cow_tensor_numel(t), 0);
	ck_assert_ptr_null(cow_tensor_data(t));
	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	ck_assert_ptr_null(p);
	must(cow_tensor_is_dense(t));
	must(cow_tensor_is_contiguous(t, COW_FORMAT_CONTIGUOUS));
	cow_tensor_unref(t);

	for (i = 0; i < COW_DIMS_MAX; i++)
		sizes[i] = i % 8 == 7 ? 2 : 1;
	t = tensor_new(COW_INT8, COW_DIMS_MAX, sizes, COW_FORMAT_CONTIGUOUS);
	ck_assert_int_eq(cow_tensor_numel(t), 256);
	ck_assert_int_eq(cow_tensor_strides(t)[7], 128);
	ck_assert_int_eq(cow_tensor_sizes(t)[63], 2);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(birth_refused)
{
	struct cow_tensor *t = (void *)1;
	struct cow_tensor_options o = { .size = sizeof(o) };
	struct {
		struct cow_tensor_options o;
		char more;
	} longer = { .o = { .size = sizeof(longer) }, .more = 1 };
	int64_t many[COW_DIMS_MAX + 1] = { 0 };
	struct cow_allocator elsewhere = { .device = { COW_DEVICE_PRIVATE, 1 } };

	fails(-EINVAL, cow_tensor_new(COW_DTYPES, 1, SIZES(3), NULL, &t));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "21"));
	fails(-EINVAL, cow_tensor_new((enum cow_dtype)-1, 1, SIZES(3), NULL, &t));
	fails(-EINVAL, cow_tensor_new(COW_INT8, -1, SIZES(3), NULL, &t));
	fails(-EINVAL, cow_tensor_new(COW_INT8, 65, many, NULL, &t));
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, NULL, NULL, &t));
	fails(-EINVAL, cow_tensor_new(COW_INT8, 2, SIZES(3, -1), NULL, &t));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "[3, -1]"));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "int8"));
	fails(-EINVAL, cow_tensor_new(COW_INT32, 1, SIZES(INT64_MAX / 2), NULL, &t));
	fails(-EINVAL, cow_tensor_new(COW_INT8, 3, SIZES(1LL << 40, 1LL << 40, 0), NULL, &t));
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(3), NULL, NULL));
	o.format = COW_FORMAT_CHANNELS_LAST;
	fails(-EINVAL, cow_tensor_new(COW_INT8, 3, SIZES(1, 2, 3), &o, &t));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "channels_last"));
	o.format = COW_FORMAT_NONE;
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	o.format = COW_FORMAT_PRESERVE;
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	o = (struct cow_tensor_options){ .size = 3 };
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	fails(-E2BIG, cow_tensor_new(COW_INT8, 1, SIZES(1), &longer.o, &t));
	o = (struct cow_tensor_options){ .size = sizeof(o), .device = { 5, 0 } };
	fails(-ENODEV, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	o.device = (struct cow_device){ COW_DEVICE_CPU, 1 };
	fails(-ENODEV, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	o = (struct cow_tensor_options){ .size = sizeof(o), .storage_flags = 1u << 30 };
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	o.device.type = COW_DEVICE_META;
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	o = (struct cow_tensor_options){ .size = sizeof(o), .allocator = &elsewhere };
	fails(-ENODEV, cow_tensor_new(COW_INT8, 1, SIZES(1), &o, &t));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "private:1, not of cpu"));
	ck_assert_ptr_eq(t, (void *)1);
}
END_TEST

START_TEST(on_a_storage)
{
	struct cow_storage *s = new_filled(4096, 0, 1);
	struct cow_tensor *t, *none = (void *)1;

	ok(cow_tensor_on(s, COW_INT16, 2, SIZES(3, 4), SIZES(100, 2), 7, &t));
	ck_assert_uint_eq(refs_of(s), 2);
	ck_assert_ptr_eq(cow_tensor_data(t), data(s) + 14);
	must(!cow_tensor_is_dense(t));
	cow_tensor_unref(t);
	ok(cow_tensor_on(s, COW_INT16, 2, SIZES(32, 64), NULL, 0, &t));
	ck_strides(t, 64, 1);
	cow_tensor_unref(t);
	/* Exactly to the end, and one further. */
	ok(cow_tensor_on(s, COW_INT32, 1, SIZES(2), SIZES(1023), 0, &t));
	cow_tensor_unref(t);
	fails(-ERANGE, cow_tensor_on(s, COW_INT32, 1, SIZES(2), SIZES(1023), 1, &none));
	fails(-ERANGE, cow_tensor_on(s, COW_INT32, 1, SIZES(2), SIZES(1024), 0, &none));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "4096"));
	fails(-ERANGE, cow_tensor_on(s, COW_INT8, 2, SIZES(3, 3), SIZES(INT64_MAX / 2, INT64_MAX / 2), 0, &none));
	fails(-ERANGE, cow_tensor_on(s, COW_INT8, 1, SIZES(2), SIZES(INT64_MAX), 1, &none));
	fails(-ERANGE, cow_tensor_on(s, COW_INT8, 0, NULL, NULL, INT64_MAX, &none));
	fails(-EINVAL, cow_tensor_on(s, COW_INT8, 1, SIZES(2), SIZES(-1), 4, &none));
	fails(-EINVAL, cow_tensor_on(s, COW_INT8, 1, SIZES(2), NULL, -1, &none));
	fails(-EINVAL, cow_tensor_on(NULL, COW_INT8, 1, SIZES(2), NULL, 0, &none));
	fails(-EINVAL, cow_tensor_on(s, COW_INT8, 1, SIZES(2), NULL, 0, NULL));
	/* Without elements, there is none outside. */
	ok(cow_tensor_on(s, COW_INT8, 2, SIZES(0, 9), SIZES(INT64_MAX, 7), INT64_MAX, &t));
	cow_tensor_unref(t);
	ck_assert_ptr_eq(none, (void *)1);
	cow_storage_unref(s);
}
END_TEST

START_TEST(on_unaligned_memory)
{
	static _Alignas(16) char memory[64];
	struct cow_data_ptr ptr = cow_data_ptr_make(memory + 2, NULL, NULL,
	                                            (struct cow_device){ 0, 0 });
	struct cow_storage *s;
	struct cow_tensor *t;

	ok(cow_storage_new_external(&ptr, 32, NULL, &s));
	ok(cow_tensor_on(s, COW_COMPLEX32, 1, SIZES(2), NULL, 0, &t));
	cow_tensor_unref(t);
	fails(-ERANGE, cow_tensor_on(s, COW_INT32, 1, SIZES(2), NULL, 0, &t));
	cow_storage_unref(s);
}
END_TEST

/* Only the span of the tensor is materialized. With any hint the bytes between its elements
 * are kept. */
START_TEST(data_for_writing)
{
	struct cow_tensor *t = tensor(COW_INT8, 64, 4096), *column, *copy;
	char *p;
	void *at;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &at));
	fill(at, 64 * 4096, 3);
	ok(cow_tensor_lazy_clone(t, &copy));
	ok(cow_tensor_slice(copy, 1, 5, 6, 1, &column));
	ok(cow_tensor_data_mut(column, COW_WRITE_ALL, &at));
	p = at;
	ck_assert_ptr_eq(p, cow_tensor_data(column));
	ck_assert_ptr_ne(cow_tensor_data(copy), cow_tensor_data(t));
	ck_pattern(cow_tensor_data(copy), 64 * 4096, 3);
	fails(-EINVAL, cow_tensor_data_mut(NULL, COW_WRITE_ALL, &at));
	fails(-EINVAL, cow_tensor_data_mut(t, (enum cow_write_hint)9, &at));
	cow_tensor_unref(column);
	cow_tensor_unref(copy);
	cow_tensor_unref(t);
}
END_TEST

/* ---- Formats ----------------------------------------------------------------- */

START_TEST(strides_of_formats)
{
	struct cow_tensor *t = tensor_new(COW_INT8, 4, SIZES(2, 3, 4, 5),
	                                  COW_FORMAT_CHANNELS_LAST);

	ck_strides(t, 60, 1, 15, 3);
	ck_assert_int_eq(cow_tensor_format(t), COW_FORMAT_CHANNELS_LAST);
	must(!cow_tensor_is_contiguous(t, COW_FORMAT_CONTIGUOUS));
	must(cow_tensor_is_contiguous(t, COW_FORMAT_CHANNELS_LAST));
	must(cow_tensor_is_contiguous(t, COW_FORMAT_NONE));
	must(cow_tensor_is_contiguous(t, COW_FORMAT_PRESERVE));
	must(!cow_tensor_is_contiguous(t, COW_FORMAT_CHANNELS_LAST_3D));
	must(!cow_tensor_is_contiguous(t, (enum cow_format)7));
	must(cow_tensor_is_dense(t));
	cow_tensor_unref(t);
	t = tensor_new(COW_INT8, 5, SIZES(2, 3, 4, 5, 6),
	               COW_FORMAT_CHANNELS_LAST_3D);
	ck_strides(t, 360, 1, 90, 18, 3);
	ck_assert_int_eq(cow_tensor_format(t), COW_FORMAT_CHANNELS_LAST_3D);
	cow_tensor_unref(t);
}
END_TEST

/* Shapes whose strides fit several formats have the format that was asked for. */
START_TEST(ambiguous_formats)
{
	static const int64_t shapes[][4] = {
		{ 5, 1, 1, 1 }, { 1, 1, 7, 7 }, { 3, 4, 1, 1 }, { 1, 1, 1, 1 },
		{ 0, 3, 4, 5 }, { 2, 0, 4, 5 },
	};
	const int64_t *sizes = shapes[_i];
	struct cow_tensor *a = tensor_new(COW_INT8, 4, sizes, COW_FORMAT_CONTIGUOUS);
	struct cow_tensor *b = tensor_new(COW_INT8, 4, sizes, COW_FORMAT_CHANNELS_LAST);
	struct cow_tensor *c;

	ck_assert_int_eq(cow_tensor_format(a), COW_FORMAT_CONTIGUOUS);
	ck_assert_int_eq(cow_tensor_format(b), COW_FORMAT_CHANNELS_LAST);
	must(cow_tensor_is_contiguous(a, COW_FORMAT_CHANNELS_LAST));
	must(cow_tensor_is_contiguous(b, COW_FORMAT_CONTIGUOUS));
	/* Through views that keep the dimensions. */
	ok(cow_tensor_slice(b, 0, 0, 1, 1, &c));
	ck_assert_int_eq(cow_tensor_format(c), COW_FORMAT_CHANNELS_LAST);
	cow_tensor_unref(c);
	ok(cow_tensor_slice(a, 0, 0, 1, 1, &c));
	ck_assert_int_eq(cow_tensor_format(c), COW_FORMAT_CONTIGUOUS);
	cow_tensor_unref(c);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
}
END_TEST

START_TEST(formats_of_views)
{
	struct cow_tensor *t = tensor_new(COW_INT8, 4, SIZES(2, 3, 4, 5),
	                                  COW_FORMAT_CHANNELS_LAST);
	struct cow_tensor *v, *w;

	ok(cow_tensor_slice(t, 3, 0, 5, 2, &v)); /* every second column */
	ck_assert_int_eq(cow_tensor_format(v), COW_FORMAT_NONE);
	must(cow_tensor_is_contiguous(v, cow_tensor_format(v)));
	cow_tensor_unref(v);
	ok(cow_tensor_permute(t, (int[]){ 0, 2, 3, 1 }, &v));
	ck_assert_int_eq(cow_tensor_format(v), COW_FORMAT_CONTIGUOUS);
	/* And back. */
	ok(cow_tensor_permute(v, (int[]){ 0, 3, 1, 2 }, &w));
	ck_assert_int_eq(cow_tensor_format(w), COW_FORMAT_CHANNELS_LAST);
	cow_tensor_unref(w);
	cow_tensor_unref(v);
	/* Lost in another number of dimensions, found again with them. */
	ok(cow_tensor_unsqueeze(t, 0, &v));
	ok(cow_tensor_squeeze(v, 0, &w));
	ck_assert_int_eq(cow_tensor_format(w), COW_FORMAT_CHANNELS_LAST);
	must(cow_tensor_is_contiguous(v, cow_tensor_format(v)));
	cow_tensor_unref(w);
	cow_tensor_unref(v);
	ok(cow_tensor_transpose(t, 0, 2, &v));
	ck_assert_int_eq(cow_tensor_format(v), COW_FORMAT_NONE);
	must(cow_tensor_is_dense(v));
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

/* ---- Text --------------------------------------------------------------------- */

static void ck_text(struct cow_tensor *t, int64_t most, const char *text)
{
	char buf[400], part[8];
	long n = cow_tensor_print(t, most, buf, sizeof(buf));

	ck_assert_str_eq(buf, text);
	ck_assert_int_eq(n, (long)strlen(text));
	ck_assert_int_eq(cow_tensor_print(t, most, NULL, 0), n);
	ck_assert_int_eq(cow_tensor_print(t, most, part, sizeof(part)), n);
	ck_assert_int_eq(strncmp(part, text, 7), 0);
	must(strlen(part) <= 7);
}

START_TEST(text)
{
	static const double numbers[] = {
		0, -0.0, 1, -1.5, 0.1, 1e-5, 123456, 1234567, 1e300, 5e-324,
		9.999999, 0.00012345678, 1.0 / 3, 100000, __builtin_inf(), -__builtin_inf(),
		__builtin_nan(""),
	};
	struct cow_tensor *t = counting(2, 3), *u;
	void *p;

	ck_text(t, 0, "[[0, 1, 2],\n [3, 4, 5]]");
	ok(cow_tensor_neg(t, &u));
	ck_text(u, 2, "[[0, ..., -2],\n [-3, ..., -5]]");
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	t = counting(9);
	ck_text(t, 0, "[0, 1, 2, ..., 6, 7, 8]");
	ck_text(t, 1, "[0, ...]");
	ck_text(t, 9, "[0, 1, 2, 3, 4, 5, 6, 7, 8]");
	t = slice(t, 0, 4, 4, 1);
	ck_text(t, 0, "[]");
	cow_tensor_unref(t);
	t = tensor_new(COW_FLOAT64, 1, SIZES(COUNT(numbers)), COW_FORMAT_CONTIGUOUS);
	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	memcpy(p, numbers, sizeof(numbers));
	ck_text(t, 20, "[0, -0, 1, -1.5, 0.1, 1e-5, 123456, 1.23457e+6, 1e+300, "
	               "4.94066e-324, 10, 0.000123457, 0.333333, 100000, inf, "
	               "-inf, nan]");
	cow_tensor_unref(t);
	ok(cow_tensor_new(COW_COMPLEX128, 0, NULL, NULL, &t));
	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	memcpy(p, ((double[]){ 1, 2 }), 16);
	ck_text(t, 0, "1+2i");
	ok(cow_tensor_conj(t, &u));
	ck_text(u, 0, "1-2i");
	fails(-EINVAL, (int)cow_tensor_print(t, -1, NULL, 0));
	fails(-EINVAL, (int)cow_tensor_print(NULL, 0, NULL, 0));
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	t = tensor_on_meta(COW_INT8, 1, SIZES(3));
	fails(-ENODATA, (int)cow_tensor_print(t, 0, NULL, 0));
	cow_tensor_unref(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor");
	TCase *tcase = add_case(suite, "tensor");

	tcase_add_test(tcase, types);
	tcase_add_test(tcase, birth);
	tcase_add_test(tcase, extremes);
	tcase_add_test(tcase, birth_refused);
	tcase_add_test(tcase, on_a_storage);
	tcase_add_test(tcase, on_unaligned_memory);
	tcase_add_test(tcase, data_for_writing);
	tcase_add_test(tcase, strides_of_formats);
	tcase_add_loop_test(tcase, ambiguous_formats, 0, 6);
	tcase_add_test(tcase, formats_of_views);
	tcase_add_test(tcase, text);
	return run_suite(suite);
}

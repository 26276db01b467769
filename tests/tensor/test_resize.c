/* SPDX-License-Identifier: MIT */
/*
 * Resize: tensors of other sizes on a storage that grows, and never shrinks
 */
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>

static size_t bytes_of(struct cow_tensor *t)
{
	return cow_storage_bytes(cow_tensor_storage(t));
}

START_TEST(grows_and_keeps)
{
	struct cow_tensor *t = counting(2, 3), *u, *v;

	ok(cow_tensor_resize(t, 2, SIZES(3, 4), COW_FORMAT_PRESERVE, &u));
	ck_assert_ptr_eq(cow_tensor_storage(u), cow_tensor_storage(t));
	ck_sizes(u, 3, 4);
	ck_strides(u, 4, 1);
	ck_assert_uint_eq(bytes_of(u), 48);
	/* All others stay what they are. */
	ck_elements(t, 0, 1, 2, 3, 4, 5);
	v = slice(slice(cow_tensor_ref(u), 0, 0, 1, 1), 1, 0, 4, 1);
	ck_elements(v, 0, 1, 2, 3);
	cow_tensor_unref(v);
	ok(cow_tensor_fill(u, COW_INT32, &(int32_t){ 7 }));
	ck_elements(t, 7, 7, 7, 7, 7, 7);
	/* Smaller: the storage stays. */
	ok(cow_tensor_resize(u, 1, SIZES(1), COW_FORMAT_PRESERVE, &v));
	ck_elements(v, 7);
	ck_assert_uint_eq(bytes_of(v), 48);
	cow_tensor_unref(v);
	ok(cow_tensor_resize(u, 2, SIZES(0, 5), COW_FORMAT_PRESERVE, &v));
	ck_assert_int_eq(cow_tensor_numel(v), 0);
	cow_tensor_unref(u);
	/* And from nothing. */
	ok(cow_tensor_resize(v, 1, SIZES(12), COW_FORMAT_PRESERVE, &u));
	ck_elements(u, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7);
	cow_tensor_unref(u);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

/* The same sizes on a storage that shrank: it grows again, by what the strides span. */
START_TEST(the_same_again)
{
	struct cow_tensor *t = slice(counting(3, 4), 1, 0, 2, 1), *u;

	ok(cow_storage_resize(cow_tensor_storage(t), 8));
	ck_assert_ptr_null(cow_tensor_data(t));
	ok(cow_tensor_resize(t, 2, SIZES(3, 2), COW_FORMAT_PRESERVE, &u));
	ck_assert_ptr_eq(u, t);
	ck_assert_uint_eq(bytes_of(t), 40);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[1], 1);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

/* The same sizes: the same tensor, unless a format is asked for. */
START_TEST(formats)
{
	struct cow_tensor *t = transpose(counting(2, 3), 0, 1), *u;

	ok(cow_tensor_resize(t, 2, SIZES(3, 2), COW_FORMAT_PRESERVE, &u));
	ck_assert_ptr_eq(u, t);
	cow_tensor_unref(u);
	ok(cow_tensor_resize(t, 2, SIZES(3, 2), COW_FORMAT_CONTIGUOUS, &u));
	ck_strides(u, 2, 1);
	ck_elements(u, 0, 1, 2, 3, 4, 5);
	cow_tensor_unref(u);
	ok(cow_tensor_resize(t, 4, SIZES(2, 3, 4, 5), COW_FORMAT_CHANNELS_LAST, &u));
	ck_strides(u, 60, 1, 15, 3);
	ck_assert_int_eq(cow_tensor_format(u), COW_FORMAT_CHANNELS_LAST);
	ck_assert_uint_eq(bytes_of(u), 480);
	cow_tensor_unref(u);
	u = NULL;
	fails(-EINVAL, cow_tensor_resize(t, 1, SIZES(3), COW_FORMAT_CHANNELS_LAST, &u));
	fails(-EINVAL, cow_tensor_resize(t, 1, SIZES(3), COW_FORMAT_NONE, &u));
	ck_assert_ptr_null(u);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(from_an_offset)
{
	struct cow_tensor *t = slice(counting(10), 0, 4, 6, 1), *u = NULL;
	int64_t most = INT64_MAX / 4;

	ok(cow_tensor_resize(t, 1, SIZES(6), COW_FORMAT_PRESERVE, &u));
	ck_assert_uint_eq(bytes_of(u), 40);
	ck_elements(u, 4, 5, 6, 7, 8, 9);
	cow_tensor_unref(u);
	ok(cow_tensor_resize(t, 1, SIZES(7), COW_FORMAT_PRESERVE, &u));
	ck_assert_uint_eq(bytes_of(u), 44);
	ck_assert_int_eq(cow_tensor_offset(u), 4);
	cow_tensor_unref(u);
	u = NULL;
	/* The sizes alone fit, but not from there. */
	fails(-EINVAL, cow_tensor_resize(t, 1, &most, COW_FORMAT_PRESERVE, &u));
	must(strstr(cow_last_error(), "2305843009213693951"));
	fails(-EINVAL, cow_tensor_resize(t, 2, SIZES(most, 2), COW_FORMAT_PRESERVE, &u));
	fails(-EINVAL, cow_tensor_resize(t, 1, SIZES(-1), COW_FORMAT_PRESERVE, &u));
	fails(-EINVAL, cow_tensor_resize(t, 65, SIZES(1), COW_FORMAT_PRESERVE, &u));
	fails(-ENOMEM, cow_tensor_resize(t, 1, SIZES(most - 8192), COW_FORMAT_PRESERVE,
	                                 &u));
	ck_assert_ptr_null(u);
	ck_assert_uint_eq(bytes_of(t), 44);
	cow_tensor_unref(t);
}
END_TEST

/* Clones keep the bytes of their time, large and small, and what grows in place. */
START_TEST(clones)
{
	int64_t n = _i ? 1 << 20 : 100;
	struct cow_tensor *t = tensor_counting(1, &n), *lazy, *u;

	ok(cow_tensor_lazy_clone(t, &lazy));
	ok(cow_tensor_resize(t, 1, SIZES(3 * n), COW_FORMAT_PRESERVE, &u));
	for (int64_t i = 0; i < n; i++)
		must(((const int32_t *)cow_tensor_data(u))[i] == i);
	ok(cow_tensor_fill(u, COW_INT32, &(int32_t){ -1 }));
	for (int64_t i = 0; i < n; i++)
		must(((const int32_t *)cow_tensor_data(lazy))[i] == i);
	ck_assert_uint_eq(bytes_of(lazy), (size_t)n * 4);
	cow_tensor_unref(u);
	cow_tensor_unref(lazy);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(refused)
{
	static char memory[64];
	struct cow_data_ptr ptr = cow_data_ptr_make(memory, NULL, NULL,
	                                            (struct cow_device){ 0, 0 });
	double scale = 1;
	struct cow_quantizer q = {
		.size = sizeof(q), .scheme = COW_QSCHEME_PER_CHANNEL, .channels = 1,
		.scales = &scale, .zero_points = (int64_t[]){ 0 },
	};
	struct cow_storage *s;
	struct cow_tensor *t, *u = NULL, *v;
	void *p;

	ok(cow_storage_new_external(&ptr, 64, NULL, &s));
	ok(cow_tensor_on(s, COW_INT8, 1, SIZES(32), NULL, 0, &t));
	ok(cow_tensor_resize(t, 1, SIZES(64), COW_FORMAT_PRESERVE, &v));
	fails(-EPERM, cow_tensor_resize(v, 1, SIZES(65), COW_FORMAT_PRESERVE, &u));
	must(strstr(cow_last_error(), "int8 [64]") &&
	     strstr(cow_last_error(), "[65]") && strstr(cow_last_error(), "64 bytes"));
	cow_tensor_unref(t);
	cow_tensor_unref(v);
	cow_storage_unref(s);
	t = counting(4);
	ok(cow_storage_expose(cow_tensor_storage(t), &p));
	ok(cow_tensor_view(t, 2, SIZES(2, 2), &v));
	fails(-EBUSY, cow_tensor_resize(t, 1, SIZES(65), COW_FORMAT_PRESERVE, &u));
	must(strstr(cow_last_error(), "int32 [4]"));
	ck_assert_ptr_eq(cow_tensor_data(t), p);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
	ok(cow_tensor_new_quantized(COW_QINT8, 1, SIZES(1), &q, NULL, &t));
	fails(-EINVAL, cow_tensor_resize(t, 1, SIZES(1), COW_FORMAT_PRESERVE, &u));
	cow_tensor_unref(t);
	q.scheme = COW_QSCHEME_PER_TENSOR;
	ok(cow_tensor_new_quantized(COW_QINT8, 1, SIZES(1), &q, NULL, &t));
	ok(cow_tensor_resize(t, 1, SIZES(9), COW_FORMAT_PRESERVE, &v));
	ok(cow_tensor_get_quantizer(v, &q));
	must(q.scales[0] == 1);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
	ck_assert_ptr_null(u);
	t = tensor_on_meta(COW_FLOAT64, 1, SIZES(3));
	ok(cow_tensor_resize(t, 1, SIZES(100), COW_FORMAT_PRESERVE, &u));
	ck_assert_uint_eq(bytes_of(u), 800);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

/* Its address was given away, and nothing else holds it: it gets another address. */
START_TEST(exposed)
{
	struct cow_tensor *t = counting(4), *u;
	void *p;

	ok(cow_storage_expose(cow_tensor_storage(t), &p));
	ok(cow_tensor_resize(t, 1, SIZES(1 << 20), COW_FORMAT_PRESERVE, &u));
	ck_assert_ptr_eq(cow_tensor_storage(u), cow_tensor_storage(t));
	ck_elements(t, 0, 1, 2, 3);
	/* Now two do. */
	fails(-EBUSY, cow_tensor_resize(t, 1, SIZES(1 << 21), COW_FORMAT_PRESERVE, &u));
	cow_tensor_unref(t);
	ok(cow_tensor_resize(u, 1, SIZES(1 << 21), COW_FORMAT_PRESERVE, &t));
	cow_tensor_unref(u);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[3], 3);
	cow_tensor_unref(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_resize");
	TCase *tcase = add_case(suite, "resize");

	tcase_add_test(tcase, grows_and_keeps);
	tcase_add_test(tcase, the_same_again);
	tcase_add_test(tcase, formats);
	tcase_add_test(tcase, from_an_offset);
	tcase_add_loop_test(tcase, clones, 0, 2);
	tcase_add_test(tcase, refused);
	tcase_add_test(tcase, exposed);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Quantized tensors: which copies are allowed, and that the quantizer is copied, too
 */
#include "tests/device/fake.h"
#include "tests/support/quantized.h"

#include <errno.h>

START_TEST(results_keep_it)
{
	const struct cow_to copy = { .size = sizeof(copy), .dtype = -1, .copy = true,
		                     .format = COW_FORMAT_PRESERVE };
	struct cow_tensor *t = transpose(channels(), 1, 2), *r[5];

	ok(cow_tensor_clone(t, COW_FORMAT_CONTIGUOUS, &r[0]));
	ok(cow_tensor_lazy_clone(t, &r[1]));
	ok(cow_tensor_to(t, &copy, &r[2]));
	ok(cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, COW_COPY_LAZY, &r[3]));
	ok(cow_tensor_reshape(t, 3, SIZES(2, 4, 3), COW_COPY_LAZY, &r[4]));
	for (int i = 0; i < 5; i++) {
		must(cow_tensor_storage(r[i]) != cow_tensor_storage(t));
		ck_axis(r[i], 2, 3, 0.5);
		ck_assert_int_eq(cow_tensor_equal(t, r[i]), 1);
		cow_tensor_unref(r[i]);
	}
	cow_tensor_unref(t);
}
END_TEST

/* The quantizer comes with the bytes, to that tensor. */
static void quantizer_comes_along(struct cow_tensor *a, struct cow_tensor *b,
                                  struct cow_tensor *p)
{
	struct cow_quantizer other = by_channel(2);
	struct cow_tensor *view, *q;

	ok(cow_tensor_view(a, 2, SIZES(2, 2), &view));
	ok(cow_tensor_copy(a, b, 0));
	must(quantizer_of(a).scales[0] == 0.25 && quantizer_of(a).zero_points[0] == 2);
	must(quantizer_of(view).scales[0] == 0.5);
	ck_assert_int_eq(cow_tensor_equal(a, b), 1);
	ok(cow_tensor_copy(a, a, 0));
	ok(cow_tensor_new_quantized(COW_QUINT8, 3, SIZES(2, 4, 3), &other, NULL, &q));
	ok(cow_tensor_fill(q, COW_FLOAT32, &(float){ 0 }));
	q = transpose(q, 1, 2);
	ok(cow_tensor_copy(q, p, COW_COPY_LAZY));
	ck_axis(q, 1, 3, 0.5);
	ck_assert_int_eq(cow_tensor_equal(q, p), 1);
	cow_tensor_unref(q);
	cow_tensor_unref(view);
}

/* What copy_ of PyTorch allows of quantized tensors, and what it refuses. */
START_TEST(copy_rules)
{
	struct cow_tensor *a = whole(COW_QUINT8, 0.5, 1, "\1\2\3\4", 4);
	struct cow_tensor *b = whole(COW_QUINT8, 0.25, 2, "\5\6\7\10", 4);
	struct cow_tensor *c = whole(COW_QINT8, 0.25, 2, "\5\6\7\10", 4);
	struct cow_tensor *f = floats(1, SIZES(4), 1), *d = tensor(COW_FLOAT64, 4);
	struct cow_tensor *p = channels(), *n = NULL;
	struct cow_to to = { .size = sizeof(to), .format = COW_FORMAT_PRESERVE };

	quantizer_comes_along(a, b, p);

	/* The sentences name both. */
	fails(-EINVAL, cow_tensor_copy(f, a, 0));
	must(strstr(cow_last_error(), "quint8 [4]") &&
	     strstr(cow_last_error(), "float32 [4]") &&
	     strstr(cow_last_error(), "cow_tensor_dequantize()"));
	fails(-EINVAL, cow_tensor_copy(a, d, 0));
	must(strstr(cow_last_error(), "quint8 [4]") &&
	     strstr(cow_last_error(), "float64 [4]"));
	fails(-EINVAL, cow_tensor_copy(a, c, 0));
	must(strstr(cow_last_error(), "qint8 [4]"));
	fails(-EINVAL, cow_tensor_copy(p, a, 0)); /* schemes */
	must(strstr(cow_last_error(), "by channel"));
	n = floats(1, SIZES(3), 1);
	fails(-EINVAL, cow_tensor_copy(a, n, 0));
	cow_tensor_unref(n);
	to.dtype = COW_FLOAT32;
	fails(-EINVAL, cow_tensor_to(a, &to, &n));
	must(strstr(cow_last_error(), "quint8 [4]") &&
	     strstr(cow_last_error(), "float32"));
	to.dtype = COW_QINT8;
	fails(-EINVAL, cow_tensor_to(a, &to, &n));
	fails(-EINVAL, cow_tensor_to(f, &to, &n));
	to.dtype = COW_QUINT8;
	ok(cow_tensor_to(a, &to, &n));
	ck_assert_ptr_eq(n, a);
	cow_tensor_unref(n);
	fails(-EINVAL, cow_tensor_dequantize(f, &n));
	fails(-ENOTSUP, cow_tensor_to_dlpack(a, true, false, (void **)&n));
	fails(-ENODATA, cow_tensor_get_quantizer(
	                        f, &(struct cow_quantizer){
	                                .size = sizeof(struct cow_quantizer) }));
	for (int i = 0; i < 6; i++)
		cow_tensor_unref((struct cow_tensor *[]){ a, b, c, f, d, p }[i]);
}
END_TEST

/* Copies that are refused are refused without elements and without memory, too. */
START_TEST(nothing_of_another_type)
{
	struct cow_tensor *none = tensor(COW_INT32, 0), *n = (void *)1;
	struct cow_tensor *meta = tensor_on_meta(COW_INT32, 1, SIZES(3));
	double scale = 1;
	const struct cow_quantizer q = {
		.size = sizeof(q), .scheme = COW_QSCHEME_PER_TENSOR, .channels = 1,
		.scales = &scale, .zero_points = (int64_t[]){ 0 },
	};

	fails(-EINVAL, cow_tensor_quantize(none, COW_QINT8, &q, &n));
	must(strstr(cow_last_error(), "int32 [0]"));
	fails(-EINVAL, cow_tensor_quantize(meta, COW_QINT8, &q, &n));
	ck_assert_ptr_eq(n, (void *)1);
	ok(cow_tensor_new_quantized(COW_QINT8, 1, SIZES(0), &q, NULL, &n));
	fails(-EINVAL, cow_tensor_copy(n, none, 0));
	cow_tensor_unref(n);
	cow_tensor_unref(none);
	cow_tensor_unref(meta);
	none = tensor(COW_FLOAT32, 0);
	ok(cow_tensor_quantize(none, COW_QINT8, &q, &n));
	cow_tensor_unref(n);
	cow_tensor_unref(none);
}
END_TEST

START_TEST(equal_print_fill)
{
	struct cow_tensor *a = whole(COW_QINT8, 0.5, 1, "\1\2\3\4", 4);
	struct cow_tensor *b = whole(COW_QINT8, 0.5, 1, "\1\2\3\4", 4);
	struct cow_tensor *c = whole(COW_QINT8, 0.5, 2, "\1\2\3\4", 4);
	char text[64];

	ck_assert_int_eq(cow_tensor_equal(a, b), 1);
	ck_assert_int_eq(cow_tensor_equal(a, c), 0);
	cow_tensor_print(a, 0, text, sizeof(text));
	ck_assert_str_eq(text, "[0, 0.5, 1, 1.5]");
	ok(cow_tensor_fill(b, COW_INT64, &(int64_t){ 2 }));
	ck_assert_int_eq(((const int8_t *)cow_tensor_data(b))[3], 5);
	ck_assert_int_eq(cow_tensor_equal(a, b), 0);
	fails(-EINVAL, cow_tensor_fill(b, COW_QINT8, "\1"));
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(c);
}
END_TEST

/* The storage shrank, and the tensor's bytes are gone: an error, and no read of them. */
START_TEST(shrunk)
{
	struct cow_tensor *f = floats(1, SIZES(100), 0.5f), *t, *d = NULL;
	double scale = 0.5;
	int64_t zero = 1;
	struct cow_quantizer q = one_pair(&scale, &zero);

	ok(cow_tensor_quantize(f, COW_QINT8, &q, &t));
	ok(cow_storage_resize(cow_tensor_storage(f), 4));
	fails(-ERANGE, cow_tensor_quantize(f, COW_QINT8, &q, &d));
	fails(-ERANGE, cow_tensor_copy(t, f, 0));
	must(strstr(cow_last_error(), "float32 [100]"));
	ok(cow_storage_resize(cow_tensor_storage(t), 1));
	fails(-ERANGE, cow_tensor_dequantize(t, &d));
	must(strstr(cow_last_error(), "qint8 [100]"));
	ck_assert_ptr_null(d);
	ok(cow_storage_resize(cow_tensor_storage(f), 400));
	fails(-ERANGE, cow_tensor_copy(t, f, 0)); /* the destination */
	cow_tensor_unref(f);
	cow_tensor_unref(t);
}
END_TEST

/* Only bytes are copied, so a device needs to know no quantizers. */
START_TEST(on_a_device)
{
	const struct cow_device cpu = { COW_DEVICE_CPU, 0 };
	struct cow_to to = { .size = sizeof(to), .dtype = -1, .set_device = true,
		             .device = { COW_DEVICE_PRIVATE, 0 },
		             .format = COW_FORMAT_PRESERVE };
	struct cow_tensor *t = channels(), *there, *back, *f, *d;

	fake_device_start((enum fake_skill)_i);
	ok(cow_tensor_to(t, &to, &there));
	ck_assert_int_eq(quantizer_of(there).axis, 1);
	there = transpose(there, 0, 2);
	f = floats(3, SIZES(4, 3, 2), 1);
	ok(cow_tensor_copy(there, f, 0)); /* quantized on the way */
	ok(cow_tensor_dequantize(there, &d));
	must(cow_tensor_device(d).type == COW_DEVICE_PRIVATE);
	to.device = cpu;
	ok(cow_tensor_to(d, &to, &back));
	ck_assert_int_eq(cow_tensor_numel(back), 24);
	t = transpose(t, 0, 2);
	ok(cow_tensor_copy(t, there, 0));
	cow_tensor_unref(d);
	ok(cow_tensor_dequantize(t, &d));
	ck_assert_int_eq(cow_tensor_equal(d, back), 1);
	ck_assert_int_eq(fake_device_counts.astray, 0);
	cow_tensor_unref(d);
	cow_tensor_unref(back);
	cow_tensor_unref(there);
	cow_tensor_unref(f);
	cow_tensor_unref(t);
	ck_assert_int_eq(fake_device_counts.live, 0);
	fake_device_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_quantized_copy");
	TCase *tcase = add_case(suite, "quantized");

	tcase_add_test(tcase, results_keep_it);
	tcase_add_test(tcase, copy_rules);
	tcase_add_test(tcase, nothing_of_another_type);
	tcase_add_test(tcase, equal_print_fill);
	tcase_add_test(tcase, shrunk);
	tcase_add_loop_test(tcase, on_a_device, FAKE_BYTES, FAKE_STRIDED + 1);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Copies that are left unfinished, on a third party's device
 *
 * tests/cuda/test_order.c has those of CUDA devices.
 */
#include "tests/device/fake.h"
#include "tests/support/quantized.h"

#include <errno.h>
#include <string.h>

/* With a handle the copy is unfinished, and holds its tensors, until it is waited for. */
START_TEST(work)
{
	struct cow_tensor *h = counting(12, 12), *d, *back, *flat;
	struct cow_work *w;

	fake_device_start(FAKE_WITHIN);
	fake_device_late();
	d = tensor_on_fake(0, COW_INT32, 2, SIZES(12, 12));
	back = tensor(COW_INT32, 12, 12);
	ok(cow_tensor_fill(back, COW_INT8, "\0"));
	ok(cow_tensor_copy_begin(d, h, 0, &w));
	must(cow_work_poll(w) == 0);
	cow_tensor_unref(h);
	ok(cow_work_wait(w));
	must(cow_work_poll(w) == 1);
	must(cow_work_free(w) == NULL);
	ok(cow_tensor_copy_begin(back, d, 0, &w));
	must(cow_work_poll(w) == 0);
	h = counting(12, 12);
	must(cow_tensor_equal(back, h) == 0);
	/* The handle is freed: the copy goes on, and holds the device's memory. */
	must(cow_work_free(w) == NULL);
	cow_tensor_unref(d);
	ck_assert_uint_eq(fake_device_counts.live, 1);
	ck_assert_uint_eq(fake_device_counts.marks, 1);
	/* A copy that may not be late brings it to its end, another work lets it go. */
	d = tensor_on_fake(0, COW_INT32, 2, SIZES(12, 12));
	ok(cow_tensor_copy(d, h, 0));
	must(cow_tensor_equal(back, h) == 1);
	flat = slice(tensor(COW_INT32, 12, 24), 1, 0, 24, 2);
	ok(cow_tensor_copy_begin(flat, d, 0, &w));
	must(cow_tensor_equal(flat, h) == 1); /* spread by the host: not left unfinished */
	must(cow_work_poll(w) == 1);
	cow_work_free(w);
	ck_assert_uint_eq(fake_device_counts.live, 1);
	ck_assert_uint_eq(fake_device_counts.marks, 0);
	/* Without a handle host memory is filled on return. */
	ok(cow_tensor_fill(back, COW_INT8, "\0"));
	ok(cow_tensor_copy(back, d, COW_COPY_NON_BLOCKING));
	must(cow_tensor_equal(back, h) == 1);
	ck_assert_uint_eq(fake_device_counts.awaits, 1);
	cow_tensor_unref(flat);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	cow_tensor_unref(back);
	ck_assert_uint_eq(fake_device_counts.astray, 0);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	fake_device_stop();
}
END_TEST

/* Quantized ones are moved as the bytes that they are, and held as long. */
START_TEST(work_on_the_quantized)
{
	struct cow_tensor *h = whole(COW_QUINT8, 0.5, 3, "quantized", 9), *d, *back;
	const struct cow_to there = { .size = sizeof(there), .dtype = -1, .set_device = true,
		                      .device = { COW_DEVICE_PRIVATE, 0 } };
	struct cow_work *w;

	fake_device_start(FAKE_WITHIN);
	ok(cow_tensor_to(h, &there, &d));
	fake_device_late();
	back = whole(COW_QUINT8, 2, 0, "123456789", 9);
	ok(cow_tensor_copy_begin(back, d, 0, &w));
	must(cow_work_poll(w) == 0);
	cow_tensor_unref(d);
	ck_assert_uint_eq(fake_device_counts.live, 1);
	ok(cow_work_wait(w));
	must(cow_work_free(w) == NULL);
	must(cow_tensor_equal(back, h) == 1);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	cow_tensor_unref(back);
	cow_tensor_unref(h);
	fake_device_stop();
}
END_TEST

/* On the host alone, and on devices without marks: finished when it returns. */
START_TEST(work_at_once)
{
	struct cow_tensor *h = counting(5), *b = tensor(COW_FLOAT64, 5);
	struct cow_work *w = NULL;

	ok(cow_tensor_copy_begin(b, h, 0, &w));
	must(cow_work_poll(w) == 1);
	ok(cow_work_wait(w));
	cow_work_free(w);
	cow_work_free(NULL);
	w = NULL;
	fails(-EINVAL, cow_tensor_copy_begin(b, NULL, 0, &w));
	fails(-EINVAL, cow_tensor_copy_begin(b, h, 0, NULL));
	fails(-EINVAL, cow_work_poll(NULL));
	fails(-EINVAL, cow_work_wait(NULL));
	must(w == NULL);
	cow_tensor_unref(h);
	cow_tensor_unref(b);
}
END_TEST

/* Each call fails in turn, also in polls and waits: each later call gives the error, and
 * nothing leaks. */
START_TEST(work_fails)
{
	bool more = true;
	unsigned long n;

	for (n = 1; more; n++) {
		struct cow_tensor *h = counting(6, 6), *d;
		struct cow_work *w = NULL;
		int r, s = 0;

		fake_device_start(FAKE_STRIDED);
		fake_device_late();
		d = slice(tensor_on_fake(0, COW_INT32, 2, SIZES(6, 12)), 1, 0, 12, 2);
		fake_device_counts.fail_next = n;
		r = cow_tensor_copy_begin(d, h, 0, &w);
		must((r == 0) == (w != NULL));
		must(r == 0 || strstr(cow_last_error(), "fake") || r == -ENOMEM);
		if (r == 0) {
			s = cow_work_poll(w);
			if (s >= 0)
				s = cow_work_wait(w);
			must(s == 0 || strstr(cow_last_error(), "fake"));
			must(s == 0 || cow_work_poll(w) == s);
			must(s == 0 || strstr(cow_last_error(), "failed"));
		}
		more = fake_device_counts.fail_next == 0;
		fake_device_counts.fail_next = 0;
		must(more == (r < 0 || s < 0));
		cow_work_free(w);
		cow_tensor_unref(d);
		cow_tensor_unref(h);
		ck_assert_uint_eq(fake_device_counts.live, 0);
		ck_assert_uint_eq(fake_device_counts.marks, 0);
		fake_device_stop();
	}
	must(n > 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_work");
	TCase *tcase = add_case(suite, "work");

	tcase_add_test(tcase, work);
	tcase_add_test(tcase, work_on_the_quantized);
	tcase_add_test(tcase, work_at_once);
	tcase_add_test(tcase, work_fails);
	return run_suite(suite);
}

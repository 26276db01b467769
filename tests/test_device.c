/* SPDX-License-Identifier: MIT */
/*
 * A third party's device: staging, types between devices, failures
 *
 * Random copies between all pairs of devices are in test_tensor_model.c.
 */
#include "tests/device/fake.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>

/* On `where`: -1 the host, 0 and 1 the fake ones. */
static struct cow_tensor *on(int where, enum cow_dtype dtype, int dims,
                             const int64_t *sizes)
{
	return where < 0 ? tensor_new(dtype, dims, sizes, COW_FORMAT_CONTIGUOUS)
	                 : tensor_on_fake(where, dtype, dims, sizes);
}

static struct cow_tensor *view_of(struct cow_tensor *t, int kind)
{
	switch (kind) {
	case 0:
		return t;
	case 1:
		return transpose(t, 0, 1);
	default:
		return slice(t, 1, 0, INT64_MAX, 2);
	}
}

/* All pairs of devices, all skills, all layouts, with and without a conversion: the
 * same bytes as on the host alone. */
START_TEST(all_pairs)
{
	int skill = _i / 9, a = _i % 3 - 1, b = _i / 3 % 3 - 1, i, j, k;
	static const enum cow_dtype types[] = { COW_INT32, COW_FLOAT32, COW_UINT8 };

	fake_device_start((enum fake_skill)skill);
	for (i = 0; i < 3; i++)
		for (j = 0; j < 3; j++)
			for (k = 0; k < 3; k++) {
				struct cow_tensor *h = counting(12, 12), *from, *to, *back, *want, *all;
				const struct cow_to home = { .size = sizeof(home), .dtype = -1, .set_device = true };

				from = on(b, COW_INT32, 2, SIZES(12, 12));
				ok(cow_tensor_copy(from, h, 0));
				from = view_of(from, j);
				h = view_of(h, j);
				all = on(a, types[k], 2, j == 2 ? (i == 1 ? SIZES(6, 12) : SIZES(12, i == 2 ? 12 : 6))
				                                 : SIZES(12, i == 2 ? 24 : 12));
				ok(cow_tensor_fill(all, COW_INT8, "\11"));
				to = view_of(cow_tensor_ref(all), i);
				want = on(-1, types[k], 2, cow_tensor_sizes(to));
				ok(cow_tensor_copy(to, from, 0));
				ok(cow_tensor_copy(want, h, 0));
				ok(cow_tensor_to(to, &home, &back));
				must(cow_tensor_equal(back, want) == 1);
				cow_tensor_unref(back);
				/* Between the elements nothing was written. */
				if (i == 2) {
					struct cow_tensor *gaps = slice(cow_tensor_ref(all), 1, 1, INT64_MAX, 2);

					ok(cow_tensor_fill(want, COW_INT8, "\11"));
					must(cow_tensor_equal(gaps, want) == 1);
					cow_tensor_unref(gaps);
				}
				cow_tensor_unref(want);
				cow_tensor_unref(to);
				cow_tensor_unref(all);
				cow_tensor_unref(from);
				cow_tensor_unref(h);
			}
	ck_assert_uint_eq(fake_device_counts.astray, 0);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	fake_device_stop();
}
END_TEST

/* What lies alike is moved as it is, in one call. */
START_TEST(direct)
{
	struct cow_tensor *h = transpose(counting(8, 9), 0, 1), *d, *e, *f;
	const struct cow_to there = {
		.size = sizeof(there), .dtype = -1, .set_device = true,
		.device = { COW_DEVICE_PRIVATE, 0 }, .format = COW_FORMAT_PRESERVE,
	};

	fake_device_start(FAKE_WITHIN);
	ok(cow_tensor_to(h, &there, &d));
	ck_strides(d, 1, 9);
	ck_assert_uint_eq(fake_device_counts.from_host, 1);
	ok(cow_tensor_clone(d, COW_FORMAT_PRESERVE, &e));
	f = transpose(tensor_on_fake(1, COW_INT32, 2, SIZES(8, 9)), 0, 1);
	ok(cow_tensor_copy(f, e, 0));
	ck_assert_uint_eq(fake_device_counts.within, 2);
	ok(cow_tensor_copy(h, f, 0));
	ck_assert_uint_eq(fake_device_counts.to_host, 1);
	ck_assert_uint_eq(fake_device_counts.from_host, 1);
	ck_assert_ptr_null(cow_tensor_data(d));
	cow_tensor_unref(d);
	/* Converted here; nothing is fetched for a dense destination. */
	d = tensor_on_fake(0, COW_FLOAT32, 2, SIZES(9, 8));
	ok(cow_tensor_copy(d, h, 0));
	ck_assert_uint_eq(fake_device_counts.to_host, 1);
	ck_assert_uint_eq(fake_device_counts.from_host, 2);
	cow_tensor_unref(d);
	cow_tensor_unref(e);
	cow_tensor_unref(f);
	cow_tensor_unref(h);
	fake_device_stop();
}
END_TEST

/* Lazy clones of device memory, and what they cost. */
START_TEST(lazy_on_a_device)
{
	struct cow_tensor *h = counting(100), *d, *e, *back;
	const struct cow_to home = { .size = sizeof(home), .dtype = -1, .set_device = true };

	fake_device_start(FAKE_WITHIN);
	d = tensor_on_fake(0, COW_INT32, 1, SIZES(100));
	ok(cow_tensor_copy(d, h, 0));
	ok(cow_tensor_lazy_clone(d, &e));
	ck_assert_uint_eq(fake_device_counts.live, 1);
	ok(cow_tensor_fill(e, COW_INT8, "\1"));
	ck_assert_uint_eq(fake_device_counts.live, 2);
	ok(cow_tensor_to(d, &home, &back));
	must(cow_tensor_equal(back, h) == 1);
	cow_tensor_unref(back);
	ok(cow_tensor_copy(e, d, COW_COPY_LAZY));
	ck_assert_uint_eq(fake_device_counts.live, 1);
	must(cow_tensor_equal(d, e) == 1);
	cow_tensor_unref(d);
	cow_tensor_unref(e);
	cow_tensor_unref(h);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	fake_device_stop();
}
END_TEST

/* Each call of a staged copy fails in turn: it is said, and nothing leaks. */
START_TEST(failures)
{
	int skill = _i;
	unsigned long n;
	bool more = true;

	for (n = 1; more; n++) {
		struct cow_tensor *h = counting(6, 6), *a, *b;
		int r;

		fake_device_start((enum fake_skill)skill);
		a = slice(tensor_on_fake(0, COW_INT32, 2, SIZES(6, 6)), 1, 0, 6, 2);
		b = slice(tensor_on_fake(1, COW_INT32, 2, SIZES(6, 6)), 1, 0, 6, 2);
		h = slice(h, 1, 0, 6, 2);
		ok(cow_tensor_copy(a, h, 0));
		fake_device_counts.fail_next = n;
		r = cow_tensor_copy(b, a, 0);
		more = fake_device_counts.fail_next == 0;
		fake_device_counts.fail_next = 0;
		must(r == 0 || r == -EIO || r == -ENOMEM);
		must(more == (r < 0));
		must(r == 0 || strstr(cow_last_error(), "fake") || r == -ENOMEM);
		ok(cow_tensor_copy(b, a, 0));
		must(cow_tensor_equal(a, b) == 1);
		cow_tensor_unref(a);
		cow_tensor_unref(b);
		cow_tensor_unref(h);
		ck_assert_uint_eq(fake_device_counts.live, 0);
		fake_device_stop();
	}
	must(n > 3);
}
END_TEST

START_TEST(registration)
{
	struct cow_device_ops o = { .size = sizeof(o) };
	struct cow_tensor *d, *h = counting(3);

	fails(-EINVAL, cow_device_set(COW_DEVICE_CPU, &o));
	fails(-EINVAL, cow_device_set(COW_DEVICE_META, NULL));
	fails(-EINVAL, cow_device_set((enum cow_device_type)COW_DEVICE_TYPES, NULL));
	fails(-EINVAL, cow_device_set(COW_DEVICE_PRIVATE, &o));
	d = tensor_on_fake(0, COW_INT32, 1, SIZES(3));
	fails(-ENODEV, cow_tensor_copy(d, h, 0));
	fails(-ENODEV, cow_tensor_copy(h, d, 0));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "private:0"));
	cow_tensor_unref(d);
	cow_tensor_unref(h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_device");
	TCase *tcase = add_case(suite, "device");

	tcase_add_loop_test(tcase, all_pairs, 0, 27);
	tcase_add_test(tcase, direct);
	tcase_add_test(tcase, lazy_on_a_device);
	tcase_add_loop_test(tcase, failures, 0, 3);
	tcase_add_test(tcase, registration);
	return run_suite(suite);
}

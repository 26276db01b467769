/* SPDX-License-Identifier: MIT */
/*
 * A third party's device: staging, types between devices, failures
 *
 * Random copies between all pairs of devices are in test_model.c.
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

/* With random bytes, of which those of a bool are right. */
static struct cow_tensor *random_host(enum cow_dtype dtype, int dims, const int64_t *sizes,
                                      struct prng *prng)
{
	struct cow_tensor *t = tensor_new(dtype, dims, sizes, COW_FORMAT_CONTIGUOUS);
	size_t bytes = (size_t)cow_tensor_numel(t) * cow_dtype_bytes(dtype), i;
	unsigned char *at;
	void *p;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	for (at = p, i = 0; i < bytes; i++)
		at[i] = (unsigned char)(prng_next(prng) & (dtype == COW_BOOL ? 1 : 255));
	return t;
}

/* conj and neg, at random. */
static struct cow_tensor *with_bits(struct cow_tensor *t, unsigned bits)
{
	struct cow_tensor *u;

	if (bits & 1) {
		ok(cow_tensor_conj(t, &u));
		cow_tensor_unref(t);
		t = u;
	}
	if ((bits & 2) && cow_tensor_dtype(t) != COW_BOOL) {
		ok(cow_tensor_neg(t, &u));
		cow_tensor_unref(t);
		t = u;
	}
	return t;
}

/* Every type to every other one, with bits on both sides: the same bytes as on the host
 * alone. */
START_TEST(every_type)
{
	int skill = _i / 9, a = _i % 3 - 1, b = _i / 3 % 3 - 1, x, y;
	const struct cow_to home = { .size = sizeof(home), .dtype = -1, .set_device = true };
	struct prng prng = prng_make((uint64_t)_i + 1);

	fake_device_start((enum fake_skill)skill);
	/* Those before need no quantizer. */
	for (x = 0; x < COW_QUINT8; x++)
		for (y = 0; y < COW_QUINT8; y++) {
			unsigned bits = (unsigned)prng_below(&prng, 16);
			int kind = (int)prng_below(&prng, 2);
			struct cow_tensor *h = random_host((enum cow_dtype)x, 2, SIZES(5, 5), &prng);
			struct cow_tensor *from = on(b, (enum cow_dtype)x, 2, SIZES(5, 5));
			struct cow_tensor *to = on(a, (enum cow_dtype)y, 2, SIZES(5, 5));
			struct cow_tensor *want = on(-1, (enum cow_dtype)y, 2, SIZES(5, 5)), *plain, *back;

			ok(cow_tensor_copy(from, h, 0));
			plain = cow_tensor_ref(to);
			to = with_bits(view_of(to, kind), bits & 3);
			from = with_bits(from, bits >> 2);
			ok(cow_tensor_copy(to, from, 0));
			back = with_bits(view_of(cow_tensor_ref(want), kind), bits & 3);
			h = with_bits(h, bits >> 2);
			ok(cow_tensor_copy(back, h, 0));
			cow_tensor_unref(back);
			ok(cow_tensor_to(plain, &home, &back));
			ck_assert_mem_eq(cow_tensor_data(back), cow_tensor_data(want),
			                 25 * cow_dtype_bytes((enum cow_dtype)y));
			cow_tensor_unref(back);
			cow_tensor_unref(plain);
			cow_tensor_unref(want);
			cow_tensor_unref(to);
			cow_tensor_unref(from);
			cow_tensor_unref(h);
		}
	ck_assert_uint_eq(fake_device_counts.astray, 0);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	fake_device_stop();
}
END_TEST

/* A copy to a meta tensor succeeds if it is allowed; a copy from one fails. No device is
 * called. */
START_TEST(meta)
{
	int where = _i - 1;
	const struct cow_to there = {
		.size = sizeof(there), .dtype = COW_FLOAT16, .set_device = true,
		.device = { COW_DEVICE_META, 0 }, .format = COW_FORMAT_PRESERVE,
	};
	struct cow_tensor *t, *m, *n, *u;
	struct cow_to here = there;

	fake_device_start(FAKE_STRIDED);
	t = transpose(on(where, COW_INT32, 2, SIZES(3, 4)), 0, 1);
	ok(cow_tensor_to(t, &there, &m));
	ck_assert_int_eq(cow_tensor_device(m).type, COW_DEVICE_META);
	ck_assert_int_eq(cow_tensor_dtype(m), COW_FLOAT16);
	ck_sizes(m, 4, 3);
	ck_strides(m, 1, 4);
	ok(cow_tensor_copy(m, t, 0));
	n = slice(tensor_on_meta(COW_INT8, 3, SIZES(2, 4, 6)), 2, 0, 6, 2);
	ok(cow_tensor_copy(n, t, COW_COPY_LAZY));
	ok(cow_tensor_copy(n, m, 0));
	fails(-EINVAL, cow_tensor_copy(m, n, 0));
	fails(-ENODATA, cow_tensor_copy(t, m, 0));
	here.device = cow_tensor_device(t);
	here.dtype = -1;
	if (where < 1) /* of the other one no allocator is registered */
		fails(-ENODATA, cow_tensor_to(m, &here, &u));
	fails(-ENODATA, cow_tensor_equal(m, m));
	ok(cow_tensor_fill(m, COW_INT8, "\1"));
	ok(cow_tensor_lazy_clone(m, &u));
	cow_tensor_unref(u);
	ok(cow_tensor_clone(n, COW_FORMAT_CONTIGUOUS, &u));
	ck_strides(u, 12, 3, 1);
	cow_tensor_unref(u);
	must(cow_tensor_data(m) == NULL);
	ck_assert_uint_eq(fake_device_counts.from_host + fake_device_counts.to_host +
	                  fake_device_counts.within + fake_device_counts.strided, 0);
	cow_tensor_unref(m);
	cow_tensor_unref(n);
	cow_tensor_unref(t);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	fake_device_stop();
}
END_TEST

/* Tensors that lie alike are copied in one call, as they are. */
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

/* ... and a lazy destination keeps its old bytes. */
START_TEST(failures_of_the_lazy)
{
	int skill = _i / 2, begin = _i % 2;
	struct cow_tensor *ones = counting(6, 6), *h = counting(6, 6), *d, *e;
	struct cow_work *w = NULL;
	unsigned long n;
	int r;

	ok(cow_tensor_fill(ones, COW_INT8, "\1"));
	h = transpose(h, 0, 1); /* a temporary comes before it */
	fake_device_start((enum fake_skill)skill);
	d = tensor_on_fake(0, COW_INT32, 2, SIZES(6, 6));
	ok(cow_tensor_copy(d, ones, 0));
	ok(cow_tensor_lazy_clone(d, &e));
	for (n = 1;; n++) {
		fake_device_counts.fail_next = n;
		r = begin ? cow_tensor_copy_begin(e, h, 0, &w) : cow_tensor_copy(e, h, 0);
		if (r == 0)
			break;
		ck_assert_uint_eq(fake_device_counts.fail_next, 0);
		must(cow_tensor_equal(e, ones) == 1);
		must(cow_tensor_equal(d, ones) == 1);
		ck_assert_uint_eq(fake_device_counts.live, 1);
	}
	must(n >= 3);
	fake_device_counts.fail_next = 0;
	cow_work_free(w);
	must(cow_tensor_equal(e, h) == 1);
	must(cow_tensor_equal(d, ones) == 1);
	ck_assert_uint_eq(fake_device_counts.live, 2);
	for (int i = 0; i < 4; i++)
		cow_tensor_unref((struct cow_tensor *[]){ d, e, h, ones }[i]);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	fake_device_stop();
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
	tcase_add_loop_test(tcase, every_type, 0, 27);
	tcase_add_loop_test(tcase, meta, 0, 3);
	tcase_add_test(tcase, direct);
	tcase_add_test(tcase, lazy_on_a_device);
	tcase_add_loop_test(tcase, failures, 0, 3);
	tcase_add_loop_test(tcase, failures_of_the_lazy, 0, 6);
	tcase_add_test(tcase, registration);
	return run_suite(suite);
}

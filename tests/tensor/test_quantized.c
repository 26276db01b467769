/* SPDX-License-Identifier: MIT */
/*
 * Quantized tensors: the numbers that their bytes stand for, also in views
 *
 * The sums are checked against a plain loop here, and against PyTorch's in
 * tests/oracle/copies.py.
 */
#include "tests/support/quantized.h"

#include <errno.h>
#include <math.h>
#include <string.h>

START_TEST(rounding)
{
	static const float in[] = { 0.5f,  1.5f, 2.5f, -0.5f,     -1.5f,     1e10f,
		                    -1e10f, 2.2e9f, -2.2e9f, INFINITY, -INFINITY, NAN };
	static const int64_t want[3][12] = {
		{ 4, 4, 6, 2, 2, 255, 0, 255, 0, 255, 0, 255 },
		{ 4, 4, 6, 2, 2, 127, -128, 127, -128, 127, -128, 127 },
		{ 4, 4, 6, 2, 2, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN,
		  INT32_MAX, INT32_MIN, INT32_MIN },
	};
	static const enum cow_dtype types[] = { COW_QUINT8, COW_QINT8, COW_QINT32 };
	double scale = 1;
	int64_t zero = 3;
	struct cow_quantizer q = one_pair(&scale, &zero);
	struct cow_tensor *f = tensor(COW_FLOAT32, 12), *t;
	void *p;

	ok(cow_tensor_data_mut(f, COW_WRITE_ALL, &p));
	memcpy(p, in, sizeof(in));
	ok(cow_tensor_quantize(f, types[_i], &q, &t));
	for (int i = 0; i < 12; i++) {
		const void *have = cow_tensor_data(t);
		int64_t v = _i == 0   ? ((const uint8_t *)have)[i]
		            : _i == 1 ? ((const int8_t *)have)[i]
		                      : ((const int32_t *)have)[i];

		/* 0.5 + 3: rounded with the zero point, to an even sum. */
		ck_assert_int_eq(v, want[_i][i]);
	}
	cow_tensor_unref(t);
	cow_tensor_unref(f);
}
END_TEST

/* More than one thread's share, and a length that no vector divides. */
START_TEST(large)
{
	enum { N = 300007 };
	double scale = 0.37;
	int64_t zero = 100;
	struct cow_quantizer q = one_pair(&scale, &zero);
	struct cow_tensor *f = floats(1, SIZES(N), 0.0003f), *t, *back;
	const unsigned char *p;

	ok(cow_tensor_quantize(f, COW_QUINT8, &q, &t));
	p = cow_tensor_data(t);
	for (int i = 0; i < N; i++) {
		float v = rintf((float)i * 0.0003f * (1.0f / 0.37f) + 100);

		ck_assert_int_eq(p[i], v > 255 ? 255 : (int)v);
	}
	ok(cow_tensor_dequantize(t, &back));
	for (int i = 0; i < N; i++)
		must(((const float *)cow_tensor_data(back))[i] ==
		     0.37f * (float)(p[i] - 100));
	cow_tensor_unref(back);
	cow_tensor_unref(t);
	cow_tensor_unref(f);
}
END_TEST

/* Both sides in any order, by channel or not, broadcast. */
START_TEST(strided)
{
	struct cow_tensor *f = floats(3, SIZES(4, 3, 2), 1), *t = channels(), *d;
	struct cow_tensor *row, *view;

	f = transpose(f, 0, 2); /* [2, 3, 4] */
	ok(cow_tensor_copy(t, f, 0));
	ok(cow_tensor_dequantize(t, &d));
	/* Whole numbers come back from scales 0.5 and 1; 2 rounds to even. */
	ck_floats(d, 24, (const float[]){ 0, 6, 12, 18, 2, 8, 14, 20, 4, 10, 16, 22,
	                                  1, 7, 13, 19, 3, 9, 15, 21, 4, 12, 16,
	                                  24 });
	cow_tensor_unref(d);
	cow_tensor_unref(f);
	f = floats(1, SIZES(4), 2);
	ok(cow_tensor_copy(t, f, 0));
	ok(cow_tensor_dequantize(t, &d));
	ok(cow_tensor_select(d, 0, 1, &row));
	ck_floats(row, 12, (const float[]){ 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6 });
	cow_tensor_unref(row);
	cow_tensor_unref(d);
	/* Into every second element: the others stay. */
	cow_tensor_ref(t);
	view = slice(t, 2, 0, 4, 2);
	row = tensor(COW_FLOAT32, 1);
	ok(cow_tensor_fill(row, COW_FLOAT32, &(float){ 50 }));
	ok(cow_tensor_copy(view, row, 0));
	cow_tensor_unref(view);
	ok(cow_tensor_dequantize(t, &d));
	ok(cow_tensor_select(d, 0, 0, &view));
	ck_floats(view, 12, (const float[]){ 50, 2, 50, 6, 50, 2, 50, 6, 50, 2, 50, 6 });
	cow_tensor_unref(view);
	cow_tensor_unref(d);
	cow_tensor_unref(row);
	cow_tensor_unref(f);
	cow_tensor_unref(t);
}
END_TEST

static void reordered_and_cut(struct cow_tensor *t)
{
	struct cow_tensor *v;

	ck_axis(t, 1, 3, 0.5);
	ok(cow_tensor_permute(t, (const int[]){ 1, 2, 0 }, &v));
	ck_axis(v, 0, 3, 0.5);
	cow_tensor_unref(v);
	ok(cow_tensor_transpose(t, 1, -1, &v));
	ck_axis(v, 2, 3, 0.5);
	cow_tensor_unref(v);
	ok(cow_tensor_transpose(t, 0, 1, &v));
	ck_axis(v, 0, 3, 0.5);
	cow_tensor_unref(v);
	ok(cow_tensor_slice(t, 1, 1, 3, 1, &v));
	ck_axis(v, 1, 2, 1.0);
	cow_tensor_unref(v);
	ok(cow_tensor_slice(t, 1, 0, 3, 2, &v));
	ck_axis(v, 1, 2, 0.5);
	must(quantizer_of(v).scales[1] == 2.0 && quantizer_of(v).zero_points[1] == 200);
	cow_tensor_unref(v);
	ok(cow_tensor_slice(t, 2, 1, 3, 1, &v));
	ck_axis(v, 1, 3, 0.5);
	cow_tensor_unref(v);
	ok(cow_tensor_select(t, 0, 1, &v));
	ck_axis(v, 0, 3, 0.5);
	cow_tensor_unref(v);
	ok(cow_tensor_select(t, 2, 1, &v));
	ck_axis(v, 1, 3, 0.5);
	cow_tensor_unref(v);
	ok(cow_tensor_select(t, 1, -1, &v));
	ck_axis(v, -1, 1, 2.0);
	must(quantizer_of(v).zero_points[0] == 200);
	cow_tensor_unref(v);
}

/* Consumes `t`. */
static void with_dimensions_of_one(struct cow_tensor *t)
{
	struct cow_tensor *v, *w;

	ok(cow_tensor_unsqueeze(t, 1, &v));
	ck_axis(v, 2, 3, 0.5);
	ok(cow_tensor_squeeze(v, 1, &w));
	ck_axis(w, 1, 3, 0.5);
	cow_tensor_unref(t);
	ok(cow_tensor_squeeze(w, 1, &t)); /* not of size 1 */
	ck_axis(t, 1, 3, 0.5);
	cow_tensor_unref(t);
	cow_tensor_unref(w);
	ok(cow_tensor_unsqueeze(v, 3, &w));
	ck_axis(w, 2, 3, 0.5);
	cow_tensor_unref(w);
	w = slice(cow_tensor_ref(v), 2, 1, 2, 1); /* [2, 1, 1, 4] */
	ck_axis(w, 2, 1, 1.0);
	ok(cow_tensor_squeeze(w, 2, &t));
	ck_axis(t, -1, 1, 1.0);
	cow_tensor_unref(t);
	w = expand(w, 2, 1, 5, 4);
	ck_axis(w, 2, 5, 1.0);
	cow_tensor_unref(w);
	w = expand(v, 6, 2, 1, 3, 4);
	ck_axis(w, 3, 3, 0.5);
	cow_tensor_unref(w);
}

static void in_other_shapes(void)
{
	struct cow_tensor *t = channels(), *v, *w;

	ok(cow_tensor_view(t, 4, SIZES(2, 3, 2, 2), &v));
	ck_axis(v, 1, 3, 0.5);
	ok(cow_tensor_reshape(v, 4, SIZES(1, 2, 3, -1), 0, &w));
	ck_axis(w, 2, 3, 0.5);
	cow_tensor_unref(w);
	cow_tensor_unref(v);
	v = NULL;
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(6, 4), &v));
	fails(-EINVAL, cow_tensor_view(t, 3, SIZES(4, 3, 2), &v));
	fails(-EINVAL, cow_tensor_reshape(t, 1, SIZES(24), 0, &v));
	fails(-EINVAL, cow_tensor_as_strided(t, 1, SIZES(2), SIZES(1), 0, &v));
	fails(-EINVAL, cow_tensor_neg(t, &v));
	ck_assert_ptr_null(v);
	ok(cow_tensor_conj(t, &v));
	ck_assert_ptr_eq(v, t);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}

/* Every view reads the same numbers. */
START_TEST(views)
{
	struct cow_tensor *t = channels(), *v;

	reordered_and_cut(t);
	with_dimensions_of_one(t);
	in_other_shapes();
	/* Of a whole one, anything. */
	t = whole(COW_QINT8, 0.5, 1, "\1\2\3\4", 4);
	ok(cow_tensor_as_strided(t, 2, SIZES(2, 2), SIZES(1, 2), 0, &v));
	must(quantizer_of(v).scales == quantizer_of(t).scales); /* shared */
	cow_tensor_unref(t);
	ck_assert_int_eq(quantizer_of(v).zero_points[0], 1);
	cow_tensor_unref(v);
}
END_TEST

#define REFUSED(dtype)                                                         \
	fails(-EINVAL, cow_tensor_new_quantized(dtype, 1, &size, &q, NULL, ret))

static void pairs_refused(struct cow_tensor **ret)
{
	static const double bad[] = { 0, -1, 1e-60, 1e60, INFINITY, NAN, 1e-39, 3e38 };
	double scale = 1;
	int64_t zero = 0, size = 4;
	struct cow_quantizer q = one_pair(&scale, &zero);

	REFUSED(COW_UINT8);
	REFUSED(COW_DTYPES);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		scale = bad[i];
		REFUSED(COW_QUINT8);
	}
	scale = 1;
	zero = 256;
	REFUSED(COW_QUINT8);
	zero = -1;
	REFUSED(COW_QUINT8);
	zero = 128;
	REFUSED(COW_QINT8);
	zero = (int64_t)INT32_MAX + 1;
	REFUSED(COW_QINT32);
	zero = 0;
	q.channels = 2;
	REFUSED(COW_QUINT8);
}

static void channels_refused(struct cow_tensor **ret)
{
	struct cow_quantizer q = by_channel(0);
	int64_t size = 4;

	REFUSED(COW_QUINT8); /* three channels for four */
	size = 3;
	q.axis = 1;
	REFUSED(COW_QUINT8);
	q.axis = -1;
	REFUSED(COW_QUINT8);
	q.axis = 0;
	q.scheme = 3;
	REFUSED(COW_QUINT8);
	q.scheme = COW_QSCHEME_PER_CHANNEL;
	q.size = 0;
	REFUSED(COW_QUINT8);
	q.size = sizeof(q);
	q.scales = NULL;
	REFUSED(COW_QUINT8);
}

START_TEST(quantizers_refused)
{
	double scale = 0.5;
	int64_t zero = 0;
	struct cow_quantizer q = one_pair(&scale, &zero);
	struct cow_storage *s = new_storage(100, 0);
	struct cow_tensor *t = (void *)1;

	fails(-EINVAL, cow_tensor_new(COW_QUINT8, 1, SIZES(4), NULL, &t));
	must(strstr(cow_last_error(), "quint8"));
	fails(-EINVAL, cow_tensor_on(s, COW_QINT32, 1, SIZES(4), NULL, 0, &t));
	pairs_refused(&t);
	channels_refused(&t);
	ck_assert_ptr_eq(t, (void *)1);
	ok(cow_tensor_on_quantized(s, COW_QINT32, 1, SIZES(25), NULL, 0, &q, &t));
	cow_tensor_unref(t);
	fails(-ERANGE, cow_tensor_on_quantized(s, COW_QINT32, 1, SIZES(26), NULL, 0,
	                                       &q, &t));
	cow_storage_unref(s);
}
END_TEST

/* One channel becomes so many that the bytes for them can't be counted. */
START_TEST(too_many_channels)
{
	static const int64_t many[] = { (1LL << 59) + 1, 1LL << 60, (1LL << 60) + 1,
		                        INT64_MAX };
	double scale = 0.5;
	int64_t zero = 1;
	struct cow_quantizer q = one_pair(&scale, &zero);
	struct cow_tensor *t, *view = NULL;

	q.scheme = COW_QSCHEME_PER_CHANNEL;
	ok(cow_tensor_new_quantized(COW_QUINT8, 1, SIZES(1), &q, NULL, &t));
	for (int i = 0; i < 4; i++)
		fails(-EINVAL, cow_tensor_expand(t, 1, &many[i], &view));
	ck_assert_ptr_null(view);
	ok(cow_tensor_expand(t, 1, SIZES(3), &view));
	must(quantizer_of(view).scales[2] == 0.5);
	cow_tensor_unref(view);
	cow_tensor_unref(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_quantized");
	TCase *tcase = add_case(suite, "quantized");

	tcase_add_loop_test(tcase, rounding, 0, 3);
	tcase_add_test(tcase, large);
	tcase_add_test(tcase, strided);
	tcase_add_test(tcase, views);
	tcase_add_test(tcase, quantizers_refused);
	tcase_add_test(tcase, too_many_channels);
	return run_suite(suite);
}

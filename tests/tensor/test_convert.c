/* SPDX-License-Identifier: MIT */
/*
 * Conversions: the rules against slow and obvious definitions, and all versions of each pair
 * against each other, bit by bit
 */
#include "tests/support/support.h"
#include "tensor/convert.h"
#include "tensor/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Narrow floats, from their definition ---- */

struct narrow {
	enum cow_dtype type;
	int exponent, fraction, bias;
	bool infinity; /* else the last pattern alone is NaN */
};
static const struct narrow narrows[] = {
	{ COW_FLOAT16, 5, 10, 15, true },
	{ COW_BFLOAT16, 8, 7, 127, true },
	{ COW_FLOAT8_E5M2, 5, 2, 15, true },
	{ COW_FLOAT8_E4M3FN, 4, 3, 7, false },
};

/* The value of a pattern without its sign; infinity and NaN for what is that. */
static double value_of(const struct narrow *t, uint32_t bits)
{
	uint32_t e = bits >> t->fraction, m = bits & ((1u << t->fraction) - 1);
	uint32_t top = (1u << t->exponent) - 1;

	if (t->infinity && e == top)
		return m ? NAN : INFINITY;
	if (!t->infinity && e == top && m == (1u << t->fraction) - 1)
		return NAN;
	if (e == 0)
		return ldexp(m, 1 - t->bias - t->fraction);
	return ldexp(m + (1u << t->fraction), (int)e - t->bias - t->fraction);
}

/* The nearest pattern, found by halving; ties to the even one. */
static uint32_t nearest(const struct narrow *t, long double x)
{
	uint32_t nan = (1u << (t->exponent + t->fraction)) - 1;
	uint32_t over = t->infinity ? ((1u << t->exponent) - 1) << t->fraction : nan;
	uint32_t low = 0, high = over;
	long double a, b;

	while (high - low > 1) { /* low <= x < high, as patterns */
		uint32_t mid = (low + high) / 2;

		if (value_of(t, mid) <= x)
			low = mid;
		else
			high = mid;
	}
	a = value_of(t, low);
	/* What would come after the greatest, were there one. */
	b = high == over ? a + (a - value_of(t, low - 1)) : value_of(t, high);
	if (!t->infinity && high == over)
		return low; /* the greatest number */
	if (x - a != b - x)
		return x - a < b - x ? low : high;
	return low % 2 ? high : low;
}

static size_t bytes_of(enum cow_dtype d)
{
	return cow_dtype_bytes(d);
}

static uint32_t converted(enum cow_dtype to, enum cow_dtype from, const void *x)
{
	uint32_t r = 0;

	cow__convert_plain(to, from)(&r, 0, x, 0, 1);
	return r;
}

static void check_nearest(const struct narrow *t, enum cow_dtype from,
                          const void *x, long double v)
{
	uint32_t sign = 1u << (t->exponent + t->fraction);
	uint32_t got = converted(t->type, from, x);

	if (v != v) {
		if (!isnan(value_of(t, got & (sign - 1))))
			ck_abort_msg("NaN became %x", got);
		return;
	}
	uint32_t want = nearest(t, fabsl(v)) | (signbit(v) ? sign : 0);

	if (got != want)
		ck_abort_msg("%s of %La is %x, not %x", cow_dtype_name(t->type), v,
		             got, want);
}

START_TEST(narrow_to_float)
{
	for (size_t k = 0; k < COUNT(narrows); k++) {
		const struct narrow *t = &narrows[k];
		uint32_t sign = 1u << (t->exponent + t->fraction);

		for (uint32_t i = 0; i < 2 * sign; i++) {
			uint32_t bits = converted(COW_FLOAT32, t->type, &i);
			double want = value_of(t, i & (sign - 1));
			float f;

			memcpy(&f, &bits, 4);
			if (want != want)
				must(f != f);
			else
				must(f == (i & sign ? -want : want));
			must(!!signbit(f) == !!(i & sign));
			/* And back: the same. */
			if (want == want)
				must(converted(t->type, COW_FLOAT32, &f) == i);
			else
				check_nearest(t, COW_FLOAT32, &f, f);
		}
	}
}
END_TEST

/* Both neighbours of each pattern, what lies between them, and one bit beside. */
START_TEST(float_to_narrow)
{
	struct prng r = prng_make(3);

	for (size_t k = 0; k < COUNT(narrows); k++) {
		const struct narrow *t = &narrows[k];
		uint32_t count = 1u << (t->exponent + t->fraction);

		for (uint32_t i = 0; i + 1 < count; i++) {
			double a = value_of(t, i), b = value_of(t, i + 1);
			double mid = (a + b) / 2;

			if (isinf(b))
				mid = a + (a - value_of(t, i - 1)) / 2;
			if (mid != mid || isinf(mid))
				continue;
			for (int side = -1; side <= 1; side++) {
				double d = side ? nextafter(mid, side * 1e308) : mid;
				float f = side ? nextafterf((float)mid,
				                            side * INFINITY)
				               : (float)mid;

				check_nearest(t, COW_FLOAT32, &f, f);
				check_nearest(t, COW_FLOAT64, &d, d);
			}
		}
		for (int i = 0; i < ROUNDS(200000); i++) {
			uint64_t x = prng_next(&r);
			float f;
			double d;
			int64_t n = (int64_t)x >> prng_below(&r, 64);
			uint64_t u = (uint64_t)n;

			memcpy(&f, &x, 4);
			memcpy(&d, &x, 8);
			check_nearest(t, COW_FLOAT32, &f, f);
			check_nearest(t, COW_FLOAT64, &d, d);
			d = f;
			check_nearest(t, COW_FLOAT64, &d, d);
			check_nearest(t, COW_INT64, &n, n);
			check_nearest(t, COW_UINT64, &u, u);
		}
	}
}
END_TEST

/* ---- Integers ---- */

START_TEST(float_to_integers)
{
	static const struct {
		double value;
		int64_t i64;
		uint64_t u64;
	} cases[] = {
		{ 0.99, 0, 0 }, { -0.99, 0, 0 }, { -1.5, -1, (uint64_t)-1 },
		{ 255.9, 255, 255 }, { 256, 256, 256 }, { 3e9, 3000000000, 3000000000 },
		{ -3e9, -3000000000, (uint64_t)-3000000000 },
		{ 2147483648.0, 2147483648, 2147483648 },
		{ -2147483649.0, -2147483649, (uint64_t)-2147483649 },
		{ 0x1p62, (int64_t)1 << 62, (uint64_t)1 << 62 },
		{ 0x1p63, INT64_MIN, (uint64_t)1 << 63 },
		{ -0x1p63, INT64_MIN, (uint64_t)1 << 63 },
		{ 0x1.8p63, INT64_MIN, (uint64_t)3 << 62 },
		{ 0x1p64, INT64_MIN, 0 }, { 1e300, INT64_MIN, 0 },
		{ -1e300, INT64_MIN, (uint64_t)1 << 63 },
		{ INFINITY, INT64_MIN, 0 }, { -INFINITY, INT64_MIN, (uint64_t)1 << 63 },
		{ NAN, INT64_MIN, (uint64_t)1 << 63 },
	};
	static const enum cow_dtype to[] = { COW_INT8, COW_INT16, COW_INT32, COW_INT64,
		COW_UINT8, COW_UINT16, COW_UINT32, COW_UINT64 };

	for (size_t i = 0; i < COUNT(cases); i++)
		for (size_t k = 0; k < COUNT(to); k++) {
			uint64_t want = to[k] == COW_UINT64 ? cases[i].u64
			                : (uint64_t)cases[i].i64;
			float f = (float)cases[i].value;
			uint64_t got = 0;

			cow__convert_plain(to[k], COW_FLOAT64)(&got, 8, &cases[i].value,
			                                       8, 1);
			ck_assert_msg(!memcmp(&got, &want, bytes_of(to[k])),
			              "%s of %g", cow_dtype_name(to[k]),
			              cases[i].value);
			if (f != cases[i].value && cases[i].value == cases[i].value)
				continue;
			got = 0;
			cow__convert_plain(to[k], COW_FLOAT32)(&got, 8, &f, 4, 1);
			must(!memcmp(&got, &want, bytes_of(to[k])));
		}
}
END_TEST

START_TEST(truth)
{
	const float f[] = { 0, -0.0f, NAN, 1e-45f, -3 };
	const double c[][2] = { { 0, 0 }, { 0, 1 }, { NAN, 0 }, { 0, -0.0 } };
	unsigned char b[5];

	cow__convert_plain(COW_BOOL, COW_FLOAT32)(b, 1, f, 4, 5);
	must(!memcmp(b, "\0\0\1\1\1", 5));
	cow__convert_plain(COW_BOOL, COW_COMPLEX128)(b, 1, c, 16, 4);
	must(!memcmp(b, "\0\1\1\0", 4));
}
END_TEST

START_TEST(conj_and_neg)
{
	float c[4] = { 1, 2, -0.0f, NAN }, r[4];
	double d[2];
	int8_t i[2] = { -128, 5 }, n[2];
	struct cow__conversion k;

	k = cow__conversion(COW_COMPLEX64, COW_COMPLEX64, COW__CONVERT_CONJ);
	cow__convert(&k, r, 8, c, 8, 2);
	must(r[0] == 1 && r[1] == -2 && signbit(r[2]) && r[3] != r[3]);
	k = cow__conversion(COW_COMPLEX128, COW_COMPLEX64,
	                    COW__CONVERT_CONJ | COW__CONVERT_NEG);
	cow__convert(&k, d, 16, c, 8, 1);
	must(d[0] == -1 && d[1] == 2);
	k = cow__conversion(COW_FLOAT64, COW_COMPLEX64, COW__CONVERT_NEG);
	cow__convert(&k, d, 8, c, 8, 2);
	must(d[0] == -1 && d[1] == 0 && !signbit(d[1]));
	k = cow__conversion(COW_INT8, COW_INT8, COW__CONVERT_NEG);
	cow__convert(&k, n, 1, i, 1, 2);
	must(n[0] == -128 && n[1] == -5);
	k = cow__conversion(COW_FLOAT32, COW_FLOAT32, COW__CONVERT_CONJ);
	cow__convert(&k, r, 4, c, 4, 2);
	must(r[1] == 2);
}
END_TEST

/* ---- All versions agree ---- */

#define ELEMENTS 70000

/* All patterns of 2 bytes first, then edges, then anything. */
static void inputs(enum cow_dtype type, unsigned char *x)
{
	static const double edges[] = { 0, -0.0, 1, -1, 0.5, 1.5, 2.5, 65504, 65519,
		65520, 65536, 1e-8, 5.9604644775390625e-8, 448, 464, 465, 57344, 61440,
		2147483647, 2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0,
		4294967296.0, 9.2233720368547758e18, 1.8446744073709552e19, 3.4e38,
		1e300, INFINITY, -INFINITY, NAN, 1e-40, -1e-40, 255, 256, -128, -129 };
	size_t size = bytes_of(type);
	struct prng r = prng_make(size + type);

	for (size_t i = 0; i < ELEMENTS * size; i++)
		x[i] = (unsigned char)prng_next(&r);
	for (size_t i = 0; i < 65536 && size <= 2; i++)
		memcpy(x + i * size, &i, size);
	/* Floats that integers can hold, and of which not all groups have one that
	 * does not fit. */
	for (size_t i = 0; i < 20000 && (type == COW_FLOAT32 || type == COW_FLOAT64);
	     i++) {
		float f = (float)(int32_t)prng_next(&r) / (float)(i % 300 + 1);
		double d = f;

		if (i % 100 == 0)
			d = f = (float)edges[i / 100 % COUNT(edges)];
		memcpy(x + i * size, type == COW_FLOAT32 ? (void *)&f : &d, size);
	}
}

START_TEST(versions_agree)
{
	unsigned char *x = malloc(ELEMENTS * 16 + 16), *plain = malloc(ELEMENTS * 16);
	unsigned char *y = malloc(ELEMENTS * 16 + 16);
	static const int64_t lengths[] = { ELEMENTS, 0, 1, 7, 15, 17, 31, 33, 100 };
	int found = 0;

	for (int from = 0; from < COW_QUINT8; from++) {
		inputs(from, x);
		for (int to = 0; to < COW_QUINT8; to++) {
			int64_t fs = (int64_t)bytes_of(from), ts = (int64_t)bytes_of(to);

			cow__convert_plain(to, from)(plain, ts, x, fs, ELEMENTS);
			for (int level = 0; level < COW__VECTOR_LEVELS; level++) {
				cow__convert_fn *fn = cow__convert_vector(level, to, from);

				if (!fn)
					continue;
				found++;
				for (size_t k = 0; k < COUNT(lengths); k++) {
					int64_t n = lengths[k];

					memset(y, 0x5a, (size_t)((n + 1) * ts));
					fn(y, ts, x, fs, n);
					for (int64_t i = 0; i < n; i++)
						if (memcmp(y + i * ts, plain + i * ts,
						           (size_t)ts))
							ck_abort_msg(
							        "%s of %s, level %d, of %ld: "
							        "element %ld",
							        cow_dtype_name(to),
							        cow_dtype_name(from),
							        level, (long)n, (long)i);
					must(y[n * ts] == 0x5a);
				}
				/* With strides, and at odd addresses. */
				fn(y + 1, ts, x, fs, 50);
				must(!memcmp(y + 1, plain, (size_t)(50 * ts)));
				fn(y, 2 * ts, x, fs, 50);
				must(!memcmp(y + 98 * ts, plain + 49 * ts, (size_t)ts));
			}
		}
	}
	ck_assert_int_gt(found, 40);
	free(x);
	free(y);
	free(plain);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("convert");
	TCase *c = add_case(s, "convert");

	tcase_add_test(c, narrow_to_float);
	tcase_add_test(c, float_to_narrow);
	tcase_add_test(c, float_to_integers);
	tcase_add_test(c, truth);
	tcase_add_test(c, conj_and_neg);
	tcase_add_test(c, versions_agree);
	return run_suite(s);
}

/* SPDX-License-Identifier: MIT */
/*
 * The copy engine: for all shapes and strides it writes the same bytes as a loop over all
 * indexes, and no other byte
 */
#include "tests/support/support.h"
#include "tensor/strided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)1 << 22) /* bytes that a side may span */

struct shape {
	struct cow__strided job;
	int64_t low_to, high_to, low_from, high_from; /* bytes reached */
};

static unsigned char *from, *to, *expected;

static size_t bytes_of(enum cow_dtype d)
{
	return cow_dtype_bytes(d);
}

static void naive(const struct cow__strided *j, unsigned char *out)
{
	int64_t at[COW_DIMS_MAX] = { 0 }, size = (int64_t)bytes_of(j->to.dtype);
	char *t = (char *)out + (j->to.data - (char *)to);
	int d;

	for (d = 0; d < j->dims; d++)
		if (j->sizes[d] == 0)
			return;
	for (;;) {
		int64_t a = 0, b = 0;

		for (d = 0; d < j->dims; d++) {
			a += at[d] * j->to.strides[d];
			b += at[d] * j->from.strides[d];
		}
		memcpy(t + a, j->from.data + b, (size_t)size);
		for (d = j->dims; d-- > 0;) {
			if (++at[d] < j->sizes[d])
				break;
			at[d] = 0;
		}
		if (d < 0)
			return;
	}
}

static void shuffle(struct prng *r, int *order, int n)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n; i-- > 1;) {
		int k = (int)prng_below(r, (size_t)i + 1), t = order[i];

		order[i] = order[k];
		order[k] = t;
	}
}

/* Strides for one side: in a random order, with holes now and then; of the source
 * also 0; negative ones. What is reached, in bytes, goes to low and high. */
static void strides(struct prng *r, const struct cow__strided *j, bool source,
                    int64_t size, int64_t *ret, int64_t *low, int64_t *high)
{
	int order[COW_DIMS_MAX];
	int64_t step = size;
	bool holes = prng_below(r, 3) == 0;

	shuffle(r, order, j->dims);
	if (prng_below(r, 3) == 0)
		for (int i = 0; i < j->dims; i++)
			order[i] = j->dims - 1 - i;
	*low = 0;
	*high = size;
	for (int i = 0; i < j->dims; i++) {
		int d = order[i];

		if (holes && prng_below(r, 3) == 0)
			step += size * (int64_t)prng_below(r, 4);
		ret[d] = step;
		if (source && prng_below(r, 8) == 0) {
			ret[d] = 0;
			continue;
		}
		step *= j->sizes[d] ? j->sizes[d] : 1;
		if (prng_below(r, 6) == 0)
			ret[d] = -ret[d];
		if (j->sizes[d] == 0)
			continue;
		if (ret[d] < 0)
			*low += ret[d] * (j->sizes[d] - 1);
		else
			*high += ret[d] * (j->sizes[d] - 1);
	}
	if (j->dims && prng_below(r, 6) == 0)
		for (int d = 0; d < j->dims; d++)
			if (j->sizes[d] == 1) /* has no say */
				ret[d] = (int64_t)prng_below(r, 1000) - 500;
}

static const enum cow_dtype of_size[] = { COW_UINT8, COW_INT16, COW_FLOAT32,
	                                  COW_INT64, COW_COMPLEX128 };

static void random_shape(struct prng *r, struct shape *s, int64_t elements)
{
	struct cow__strided *j = &s->job;
	int64_t total;
	enum cow_dtype type = of_size[prng_below(r, COUNT(of_size))];
	int64_t size = (int64_t)bytes_of(type);
	/* With holes, a side may get large. */
	do {
		memset(s, 0, sizeof(*s));
		j->to.dtype = j->from.dtype = type;
		j->dims = (int)prng_below(r, 7);
		total = 1;
		for (int d = 0; d < j->dims; d++) {
			size_t kind = prng_below(r, 12);
			int64_t left = elements / total;

			j->sizes[d] = kind == 0   ? 1
			              : kind < 6  ? 1 + (int64_t)prng_below(r, 9)
			              : kind < 11 ? 1 + (int64_t)prng_below(r, 80)
			                          : 1 + (int64_t)prng_below(r, 2000);
			if (j->sizes[d] > left)
				j->sizes[d] = left;
			total *= j->sizes[d];
		}
		if (j->dims && prng_below(r, 60) == 0)
			j->sizes[prng_below(r, (size_t)j->dims)] = 0;
		strides(r, j, false, size, j->to.strides, &s->low_to, &s->high_to);
		strides(r, j, true, size, j->from.strides, &s->low_from,
		        &s->high_from);
	} while (s->high_to - s->low_to > (int64_t)MOST - 256 ||
	         s->high_from - s->low_from > (int64_t)MOST - 256);
	/* Offsets that are no multiple of anything, too. */
	j->to.data = (char *)to + 64 + prng_below(r, 128) - s->low_to;
	j->from.data = (char *)from + 64 + prng_below(r, 128) - s->low_from;
}

static void check(const struct cow__strided *j, size_t span)
{
	struct cow__strided before = *j;

	memset(to, 0x5a, span);
	memset(expected, 0x5a, span);
	cow__strided_copy(j);
	naive(j, expected);
	must(memcmp(&before, j, sizeof(before)) == 0);
	if (memcmp(to, expected, span)) {
		char text[600] = "";
		size_t at = 0;

		for (int d = 0; d < j->dims && strlen(text) < 500; d++)
			sprintf(text + strlen(text), " %ld(%ld,%ld)",
			        (long)j->sizes[d], (long)j->to.strides[d],
			        (long)j->from.strides[d]);
		while (to[at] == expected[at])
			at++;
		ck_abort_msg("%zu bytes each:%s; byte %zu (first is at %ld)",
		             bytes_of(j->to.dtype), text, at,
		             (long)(j->to.data - (char *)to));
	}
}

static void buffers(void)
{
	from = malloc(MOST);
	to = malloc(MOST);
	expected = malloc(MOST);
	must(from && to && expected);
	fill(from, MOST, 7);
}

static void no_buffers(void)
{
	free(from);
	free(to);
	free(expected);
}

static void many(int threads, int rounds, int64_t elements, uint64_t seed)
{
	struct prng r = prng_make(seed);
	struct shape s;

	buffers();
	ok(cow_threads_set(threads));
	for (int i = 0; i < rounds; i++) {
		random_shape(&r, &s, elements);
		check(&s.job, (size_t)(s.high_to - s.low_to) + 256);
	}
	ok(cow_threads_set(0));
	no_buffers();
}

START_TEST(small_shapes)
{
	many(1, ROUNDS(60000), 600, 1);
}
END_TEST

START_TEST(large_shapes)
{
	many(1, ROUNDS(300), 200000, 2);
}
END_TEST

START_TEST(large_shapes_on_threads)
{
	many(4, ROUNDS(300), 200000, 3);
}
END_TEST

/* Large enough for what small copies do not take: streaming. */
START_TEST(streamed_permutations)
{
	static const int orders[][4] = { { 3, 2, 1, 0 }, { 0, 2, 1, 3 },
		                         { 1, 0, 3, 2 }, { 2, 3, 0, 1 } };
	/* Odd sizes, so that rows begin anywhere in a line. */
	static const int64_t shapes[][4] = {
		{ 33, 65, 61, 67 }, { 3, 1731, 1727, 1 }, { 1721, 3, 1733, 1 },
		{ 7, 5, 509, 501 }, { 1, 3053, 2949, 1 },
		{ 1, 256, 150, 256 },
	};
	size_t most = 40 * MIB;

	from = malloc(most);
	to = malloc(most);
	expected = malloc(most);
	must(from && to && expected);
	fill(from, most, 9);
	for (size_t t = 1; t <= 2; t++)
		for (size_t s = 0; s < COUNT(shapes); s++)
			for (size_t o = 0; o < COUNT(orders); o++)
				for (int element = 0; element < 2; element++) {
					struct cow__strided j = { .dims = 4 };
					int64_t size = element ? 4 : 1, step = size;
					int64_t in = size;

					ok(cow_threads_set((int)t * 2 - 1));
					j.to.dtype = j.from.dtype =
					        element ? COW_FLOAT32 : COW_UINT8;
					for (int d = 4; d-- > 0;) {
						j.sizes[d] = shapes[s][orders[o][d]];
						j.to.strides[d] = step;
						step *= j.sizes[d];
					}
					for (int d = 4; d-- > 0;) {
						for (int e = 0; e < 4; e++)
							if (orders[o][e] == d)
								j.from.strides[e] = in;
						in *= shapes[s][d];
					}
					j.to.data = (char *)to + 4;
					j.from.data = (char *)from;
					check(&j, (size_t)step + 64);
				}
	ok(cow_threads_set(0));
	no_buffers();
}
END_TEST

/* One long row, and rows with gaps, that begin in the middle of a line. */
START_TEST(streamed_rows_of_another_type)
{
	const int64_t n = 34 * (int64_t)MIB / 8 + 3;
	size_t most = 40 * MIB;

	float *f = malloc(most);
	char *t = malloc(most);

	must(f && t);
	for (size_t i = 0; i < most / 4; i++)
		f[i] = (float)i - 3.5f;
	for (int rows = 1; rows <= 3; rows++) {
		int64_t m = n / rows;
		struct cow__strided j = {
			.dims = 2,
			.sizes = { rows, m },
			.to = { t + 24, COW_FLOAT64, { (m + 1) * 8, 8 } },
			.from = { (char *)f, COW_FLOAT32, { (m + 3) * 4, 4 } },
		};

		memset(t, 0x5a, most);
		cow__strided_copy(&j);
		for (int64_t r = 0; r < rows; r++) {
			const double *row = (const void *)(t + 24 + r * (m + 1) * 8);

			for (int64_t i = 0; i < m; i++)
				must(row[i] == f[r * (m + 3) + i]);
			must(memcmp(row + m, "ZZZZZZZZ", 8) == 0);
		}
	}
	free(f);
	free(t);
}
END_TEST

/* Short rows are moved as elements of any size up to 255 bytes, however many. */
START_TEST(many_short_rows)
{
	static const int64_t counts[][2] = { { 1, 513 }, { 513, 1 }, { 1400, 2 },
		                             { 2, 1400 }, { 47, 53 } };

	buffers();
	for (int64_t bytes = 1; bytes < 258; bytes += SANITIZED ? 9 : 1)
		for (size_t c = 0; c < COUNT(counts); c++) {
			int64_t n = counts[c][0], m = counts[c][1];
			struct cow__strided j = {
				.dims = 3,
				.sizes = { n, m, bytes },
				.to = { .data = (char *)to + 64,
				        .dtype = COW_UINT8,
				        .strides = { m * bytes, bytes, 1 } },
				.from = { .data = (char *)from,
				          .dtype = COW_UINT8,
				          .strides = { bytes, n * bytes + 1, 1 } },
			};

			check(&j, (size_t)(n * m * bytes) + 128);
		}
	no_buffers();
}
END_TEST

/* ... also where I is two dimensions of which one alone fills a tile. */
START_TEST(short_rows_of_two_dimensions)
{
	buffers();
	for (int64_t bytes = 1; bytes < 258; bytes += SANITIZED ? 17 : 1 + bytes % 3)
		for (int64_t n = 20; n < 512; n += 93) {
			int64_t unit = bytes;
			struct cow__strided j = {
				.dims = 4,
				.sizes = { 2, 3, n, bytes },
				.to = { .data = (char *)to + 64,
				        .dtype = COW_UINT8,
				        .strides = { 3 * n * unit, n * unit, unit, 1 } },
				.from = { .data = (char *)from,
				          .dtype = COW_UINT8,
				          .strides = { unit, 2 * unit, 6 * unit, 1 } },
			};

			check(&j, (size_t)(6 * n * unit) + 128);
		}
	no_buffers();
}
END_TEST

/* A tensor negated or conjugated where it is. */
START_TEST(in_place)
{
	static const int64_t steps[] = { 8, 16, -8 };
	uint64_t *x = malloc(3000 * 8);

	for (size_t s = 0; s < COUNT(steps); s++) {
		struct cow__strided j = { .dims = 1, .sizes = { 1000 } };

		for (uint64_t i = 0; i < 3000; i++)
			x[i] = i;
		j.to.dtype = j.from.dtype = COW_INT64;
		j.to.data = j.from.data = (char *)(x + (steps[s] < 0 ? 999 : 0));
		j.to.strides[0] = j.from.strides[0] = steps[s];
		j.neg = true;
		cow__strided_copy(&j);
		for (uint64_t i = 0; i < 3000; i++) {
			bool in = steps[s] == 16 ? i < 2000 && i % 2 == 0 : i < 1000;

			must(x[i] == (in ? -i : i));
		}
		j.neg = false; /* and as it is: nothing */
		cow__strided_copy(&j);
		must(x[2] == (uint64_t)-2);
	}
	free(x);
}
END_TEST

START_TEST(simplified)
{
	/* NCHW read as NHWC: two dimensions become one. */
	struct cow__strided j = { .dims = 5, .sizes = { 2, 5, 1, 7, 3 } };
	static const int64_t t[] = { 420, 84, 999, 12, 4 };
	static const int64_t f[] = { 420, 28, 5, 4, 140 };
	char place[64];

	memcpy(j.to.strides, t, sizeof(t));
	memcpy(j.from.strides, f, sizeof(f));
	cow__strided_simplify(&j);
	ck_assert_int_eq(j.dims, 3);
	ck_assert_int_eq(j.sizes[0], 2);
	ck_assert_int_eq(j.sizes[1], 35);
	ck_assert_int_eq(j.sizes[2], 3);
	ck_assert_int_eq(j.to.strides[1], 12);
	ck_assert_int_eq(j.from.strides[1], 4);

	/* Backwards on both sides, in another order: one row. */
	j = (struct cow__strided){ .dims = 2, .sizes = { 3, 4 } };
	j.to.data = place + 32;
	j.from.data = place + 16;
	j.to.strides[0] = j.from.strides[0] = -4;
	j.to.strides[1] = j.from.strides[1] = 12;
	cow__strided_simplify(&j);
	ck_assert_int_eq(j.dims, 1);
	ck_assert_int_eq(j.sizes[0], 12);
	ck_assert_ptr_eq(j.to.data, place + 24);
	ck_assert_ptr_eq(j.from.data, place + 8);

	j = (struct cow__strided){ .dims = 3, .sizes = { 3, 0, 4 } };
	cow__strided_simplify(&j);
	ck_assert_int_eq(j.dims, 1);
	ck_assert_int_eq(j.sizes[0], 0);
}
END_TEST

/* A copy that converts gives the same as a conversion of each element by itself. */
START_TEST(converted)
{
	struct prng r = prng_make(11);
	static const enum cow_dtype pairs[][2] = {
		{ COW_BFLOAT16, COW_FLOAT32 }, { COW_FLOAT32, COW_INT16 },
		{ COW_INT64, COW_UINT8 },      { COW_COMPLEX64, COW_COMPLEX64 },
		{ COW_FLOAT64, COW_COMPLEX32 }, { COW_BOOL, COW_FLOAT64 },
	};

	buffers();
	for (int round = 0; round < ROUNDS(4000); round++) {
		const enum cow_dtype *pair = pairs[prng_below(&r, COUNT(pairs))];
		struct cow__strided j = { .dims = 3 }, one;
		int64_t low, high, low_to, high_to;
		bool large = round % 100 == 0;

		for (int d = 0; d < 3; d++)
			j.sizes[d] = 1 + (int64_t)prng_below(&r, large ? 60 : 12);
		j.to.dtype = pair[0];
		j.from.dtype = pair[1];
		j.conj = prng_below(&r, 2);
		j.neg = prng_below(&r, 2) && pair[1] != COW_BOOL;
		strides(&r, &j, true, (int64_t)bytes_of(pair[1]), j.from.strides,
		        &low, &high);
		strides(&r, &j, false, (int64_t)bytes_of(pair[0]), j.to.strides,
		        &low_to, &high_to);
		if (high - low > (int64_t)MOST || high_to - low_to > (int64_t)MOST)
			continue;
		j.from.data = (char *)from - low;
		j.to.data = (char *)to - low_to;
		memset(to, 0x5a, (size_t)(high_to - low_to));
		memset(expected, 0x5a, (size_t)(high_to - low_to));
		cow__strided_copy(&j);
		one = j;
		for (int64_t i = 0; i < j.sizes[0] * j.sizes[1] * j.sizes[2]; i++) {
			int64_t at[3] = { i / j.sizes[2] / j.sizes[1],
				          i / j.sizes[2] % j.sizes[1],
				          i % j.sizes[2] };

			one.dims = 0;
			one.to.data = (char *)expected - low_to;
			one.from.data = j.from.data;
			for (int d = 0; d < 3; d++) {
				one.to.data += at[d] * j.to.strides[d];
				one.from.data += at[d] * j.from.strides[d];
			}
			cow__strided_copy(&one);
		}
		must(memcmp(to, expected, (size_t)(high_to - low_to)) == 0);
	}
	no_buffers();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("strided");
	TCase *c = add_case(s, "strided");

	tcase_add_test(c, simplified);
	tcase_add_test(c, small_shapes);
	tcase_add_test(c, large_shapes);
	tcase_add_test(c, large_shapes_on_threads);
	tcase_add_test(c, streamed_permutations);
	tcase_add_test(c, streamed_rows_of_another_type);
	tcase_add_test(c, many_short_rows);
	tcase_add_test(c, short_rows_of_two_dimensions);
	tcase_add_test(c, in_place);
	tcase_add_test(c, converted);
	return run_suite(s);
}

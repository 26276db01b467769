/* SPDX-License-Identifier: MIT */
/*
 * Copies between tensors: those that are refused, those with nothing to do, and copies from
 * and to lazy storages. test_model.c has random ones.
 */
#include "tensor/copy.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>

static struct cow_tensor *numbers(enum cow_dtype dtype, size_t n, const void *data)
{
	struct cow_tensor *t = tensor_new(dtype, 1, SIZES((int64_t)n), COW_FORMAT_CONTIGUOUS);
	void *p;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
	memcpy(p, data, n * cow_dtype_bytes(dtype));
	return t;
}

START_TEST(broadcasts)
{
	struct cow_tensor *to = counting(2, 3), *row = counting(3);
	struct cow_tensor *column = counting(2, 1), *deep = counting(1, 1, 2, 3);

	ok(cow_tensor_copy(to, row, 0));
	ck_elements(to, 0, 1, 2, 0, 1, 2);
	ok(cow_tensor_copy(to, column, 0));
	ck_elements(to, 0, 0, 0, 1, 1, 1);
	ok(cow_tensor_copy(to, deep, 0)); /* ones in front go */
	ck_elements(to, 0, 1, 2, 3, 4, 5);
	fails(-EINVAL, cow_tensor_copy(row, to, 0));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "int32 [2, 3]"));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "int32 [3]"));
	fails(-EINVAL, cow_tensor_copy(column, to, 0));
	fails(-EINVAL, cow_tensor_copy(NULL, to, 0));
	fails(-EINVAL, cow_tensor_copy(to, NULL, 0));
	fails(-EINVAL, cow_tensor_copy(to, row, 1u << 20));
	ck_elements(to, 0, 1, 2, 3, 4, 5);
	cow_tensor_unref(to);
	cow_tensor_unref(row);
	cow_tensor_unref(column);
	cow_tensor_unref(deep);
}
END_TEST

START_TEST(no_elements)
{
	struct cow_tensor *none = tensor(COW_INT8, 0, 3), *row = tensor(COW_INT8, 3);
	struct cow_tensor *meta = tensor_on_meta(COW_INT8, 2, SIZES(0, 3));

	ok(cow_tensor_copy(none, row, 0)); /* goes, and there is nothing to do */
	ok(cow_tensor_copy(none, meta, 0));
	fails(-EINVAL, cow_tensor_copy(row, none, 0));
	cow_tensor_unref(none);
	cow_tensor_unref(row);
	cow_tensor_unref(meta);
}
END_TEST

START_TEST(meta_tensors)
{
	struct cow_tensor *meta = tensor_on_meta(COW_FLOAT32, 2, SIZES(1 << 20, 1 << 20));
	struct cow_tensor *t = counting(2, 3), *small = tensor_on_meta(COW_INT32, 2, SIZES(2, 3));
	struct cow_tensor *u;

	ck_assert_ptr_null(cow_tensor_data(meta));
	ok(cow_tensor_copy(small, t, 0));
	ok(cow_tensor_copy(small, small, 0));
	fails(-EINVAL, cow_tensor_copy(meta, t, 0));
	fails(-ENODATA, cow_tensor_copy(t, small, 0));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "meta"));
	fails(-ENODATA, cow_tensor_equal(t, small));
	ok(cow_tensor_clone(meta, COW_FORMAT_PRESERVE, &u));
	ck_assert_int_eq(cow_tensor_device(u).type, COW_DEVICE_META);
	cow_tensor_unref(u);
	ok(cow_tensor_lazy_clone(meta, &u));
	cow_tensor_unref(u);
	ok(cow_tensor_fill(small, COW_INT8, "x"));
	{
		void *p;

		fails(-ENODEV, cow_tensor_data_mut(small, COW_WRITE_ALL, &p));
	}
	ck_elements(t, 0, 1, 2, 3, 4, 5);
	cow_tensor_unref(meta);
	cow_tensor_unref(small);
	cow_tensor_unref(t);
}
END_TEST

/* ---- Overlap -------------------------------------------------------------------- */

START_TEST(one_place_for_several)
{
	struct cow_tensor *base = counting(1, 3), *t, *u = counting(2, 3), *v;

	ok(cow_tensor_expand(base, 2, SIZES(2, 3), &t));
	fails(-EINVAL, cow_tensor_copy(t, u, 0));
	ok(cow_tensor_as_strided(u, 2, SIZES(2, 2), SIZES(1, 1), 0, &v));
	fails(-EINVAL, cow_tensor_copy(v, t, 0));
	ok(cow_tensor_copy(t, u, COW_COPY_IGNORE_OVERLAP));
	ok(cow_tensor_fill(t, COW_INT32, &(int32_t){ 7 }));
	ck_elements(base, 7, 7, 7);
	cow_tensor_unref(base);
	cow_tensor_unref(t);
	cow_tensor_unref(u);
	cow_tensor_unref(v);
}
END_TEST

START_TEST(both_in_one_storage)
{
	struct cow_tensor *t = counting(4, 4), *a, *b;

	ok(cow_tensor_slice(t, 0, 0, 3, 1, &a));
	ok(cow_tensor_slice(t, 0, 1, 4, 1, &b));
	fails(-EINVAL, cow_tensor_copy(a, b, 0));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "int32 [3, 4]"));
	ok(cow_tensor_copy(a, b, COW_COPY_IGNORE_OVERLAP));
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(t);
	t = counting(4, 4); /* columns, and blocks of columns */
	ok(cow_tensor_slice(t, 1, 0, 2, 1, &a));
	ok(cow_tensor_slice(t, 1, 2, 4, 1, &b));
	ok(cow_tensor_copy(a, b, 0));
	ck_elements(t, 2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15);
	cow_tensor_unref(a);
	ok(cow_tensor_slice(t, 1, 1, 3, 1, &a));
	fails(-EINVAL, cow_tensor_copy(a, b, 0));
	cow_tensor_unref(a);
	ok(cow_tensor_transpose(t, 0, 1, &a));
	fails(-EINVAL, cow_tensor_copy(t, a, 0));
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(t);
}
END_TEST

/* Parts that are said to be apart are apart: two random parts of a matrix, checked place by
 * place. Of rows, columns, blocks and steps no harmless copy is refused. */
START_TEST(apart_is_apart)
{
	struct prng prng = prng_make((uint64_t)_i + 1);
	int round, apart = 0, vain = 0;

	for (round = 0; round < ROUNDS(10000); round++) {
		struct cow_tensor *t = tensor(COW_INT16, 6, 7), *v[2];
		bool seen[42] = { false }, met = false, itself = false;
		enum cow__overlap said;
		int k;

		for (k = 0; k < 2; k++) {
			int64_t a = (int64_t)prng_below(&prng, 6);
			int64_t b = (int64_t)prng_below(&prng, 7), i, j;
			const int64_t *n, *s;

			v[k] = slice(cow_tensor_ref(t), 0, a, a + 1 + (int64_t)prng_below(&prng, 5),
			             1 + (int64_t)prng_below(&prng, 2));
			v[k] = slice(v[k], 1, b,
			             b + 1 + (int64_t)prng_below(&prng, 6),
			             1 + (int64_t)prng_below(&prng, 2));
			n = cow_tensor_sizes(v[k]);
			s = cow_tensor_strides(v[k]);
			for (i = 0; i < n[0]; i++)
				for (j = 0; j < n[1]; j++) {
					int64_t at = cow_tensor_offset(v[k]) +
					             i * s[0] + j * s[1];

					met = met || (k && seen[at]);
					seen[at] = seen[at] || !k;
				}
			itself = itself || cow__overlaps_itself(v[k]);
		}
		said = cow__overlap_of(v[0], v[1]);
		must(!itself);
		must(said != COW__OVERLAP_NONE || !met);
		apart += said == COW__OVERLAP_NONE;
		vain += said == COW__OVERLAP_SOME && !met;
		cow_tensor_unref(v[0]);
		cow_tensor_unref(v[1]);
		cow_tensor_unref(t);
	}
	must(apart > ROUNDS(10000) / 4);
	ck_assert_msg(vain < apart / 4, "%d refused in vain, %d not", vain, apart);
}
END_TEST

/* Two storages on one piece of memory from elsewhere. */
START_TEST(two_storages_one_memory)
{
	static int32_t memory[8];
	struct cow_tensor *t[2];
	int i;

	for (i = 0; i < 2; i++) {
		struct cow_data_ptr ptr = cow_data_ptr_make(
			memory + i, NULL, NULL, (struct cow_device){ 0, 0 });
		struct cow_storage *s;

		ok(cow_storage_new_external(&ptr, 16, NULL, &s));
		ok(cow_tensor_on(s, COW_INT32, 1, SIZES(4), NULL, 0, &t[i]));
		cow_storage_unref(s);
	}
	fails(-EINVAL, cow_tensor_copy(t[0], t[1], 0));
	cow_tensor_unref(t[0]);
	cow_tensor_unref(t[1]);
}
END_TEST

/* ---- Bits and types ------------------------------------------------------------- */

START_TEST(bits_resolved)
{
	const float in[] = { 1, 2, -3, 4 };
	struct cow_tensor *t = numbers(COW_COMPLEX64, 2, in), *c, *n, *to;
	const float *p;

	ok(cow_tensor_conj(t, &c));
	ok(cow_tensor_neg(c, &n));
	to = tensor(COW_COMPLEX64, 2);
	ok(cow_tensor_copy(to, n, 0));
	p = cow_tensor_data(to);
	must(p[0] == -1 && p[1] == 2 && p[2] == 3 && p[3] == 4);
	/* In place: the same places, other bits. */
	ok(cow_tensor_copy(t, n, 0));
	p = cow_tensor_data(t);
	must(p[0] == -1 && p[1] == 2 && p[2] == 3 && p[3] == 4);
	/* To one with bits: what is read back is what was given. */
	ok(cow_tensor_copy(n, to, 0));
	p = cow_tensor_data(t);
	must(p[0] == 1 && p[1] == 2 && p[2] == -3 && p[3] == 4);
	must(cow_tensor_equal(n, to) == 1);
	cow_tensor_unref(c);
	cow_tensor_unref(n);
	cow_tensor_unref(to);
	cow_tensor_unref(t);
}
END_TEST

/* Of another type, a destination's bits apply after the conversion. */
START_TEST(bits_of_the_destination)
{
	struct cow_tensor *from = numbers(COW_UINT8, 2, "\5\377");
	struct cow_tensor *to = tensor(COW_INT16, 2), *n;
	const int16_t *p;

	ok(cow_tensor_neg(to, &n));
	ok(cow_tensor_copy(n, from, 0));
	p = cow_tensor_data(to);
	must(p[0] == -5 && p[1] == -255);
	cow_tensor_unref(n);
	cow_tensor_unref(to);
	cow_tensor_unref(from);
}
END_TEST

static int warnings;

static void warn(void *user, const char *sentence)
{
	must(strstr(sentence, "imaginary") != NULL);
	must(user == &warnings);
	warnings++;
}

START_TEST(warns_once)
{
	struct cow_tensor *c = tensor(COW_COMPLEX64, 2), *r = tensor(COW_FLOAT32, 2);
	struct cow_tensor *b = tensor(COW_BOOL, 2);

	ok(cow_tensor_copy(r, c, 0)); /* there is no warning function, so this one does not count */
	cow_warning_set(warn, &warnings);
	ok(cow_tensor_copy(b, c, 0));
	ok(cow_tensor_copy(c, r, 0));
	ck_assert_int_eq(warnings, 0);
	ok(cow_tensor_copy(r, c, 0));
	ok(cow_tensor_copy(r, c, 0));
	ck_assert_int_eq(warnings, 1);
	cow_warning_set(NULL, NULL);
	cow_tensor_unref(c);
	cow_tensor_unref(r);
	cow_tensor_unref(b);
}
END_TEST

/* ---- Copy-on-write --------------------------------------------------------------- */

enum { ROWS = 512, COLUMNS = 1024 }; /* 2 MiB of int32 */

START_TEST(nothing_to_do)
{
	struct cow_tensor *t = counting(ROWS, COLUMNS), *c, *same, *front;
	struct cow_stats before;

	ok(cow_tensor_lazy_clone(t, &c));
	ok(cow_tensor_slice(c, 0, 0, ROWS, 1, &same));
	ok(cow_tensor_unsqueeze(c, 0, &front));
	before = stats_now();
	ok(cow_tensor_copy(c, c, 0));
	ok(cow_tensor_copy(c, same, 0));
	ok(cow_tensor_copy(c, front, 0));
	ck_assert_uint_eq(stats_now().bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(state_of(cow_tensor_storage(c)), COW_STATE_LAZY);
	ck_assert_ptr_eq(cow_tensor_data(c), cow_tensor_data(t));
	cow_tensor_unref(same);
	cow_tensor_unref(front);
	cow_tensor_unref(c);
	cow_tensor_unref(t);
}
END_TEST

/* A full overwrite of a lazy clone copies nothing old; its source is not touched. */
START_TEST(overwrite_of_a_lazy_clone)
{
	struct cow_tensor *t = counting(ROWS, COLUMNS), *c, *from = tensor(COW_INT16, ROWS, COLUMNS);
	struct cow_tensor *from_clone;
	struct cow_stats before, after;

	ok(cow_tensor_fill(from, COW_INT8, "\3"));
	ok(cow_tensor_lazy_clone(t, &c));
	ok(cow_tensor_lazy_clone(from, &from_clone));
	before = stats_now();
	if (_i)
		ok(cow_tensor_copy(c, from, 0));
	else
		ok(cow_tensor_fill(c, COW_INT8, "\3"));
	after = stats_now();
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(state_of(cow_tensor_storage(from)), COW_STATE_LAZY);
	ck_assert_ptr_eq(cow_tensor_data(from), cow_tensor_data(from_clone));
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[77], 77);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(c))[77], 3);
	cow_tensor_unref(from_clone);
	cow_tensor_unref(from);
	cow_tensor_unref(c);
	cow_tensor_unref(t);
}
END_TEST

/* Of a part, the rest is kept, and no more is copied than that. */
START_TEST(overwrite_of_a_part)
{
	struct cow_tensor *t = counting(ROWS, COLUMNS), *c, *half;
	struct cow_stats before, after;
	const int32_t *p;

	ok(cow_tensor_lazy_clone(t, &c));
	ok(cow_tensor_slice(c, 0, 0, ROWS / 2, 1, &half));
	before = stats_now();
	ok(cow_tensor_fill(half, COW_INT8, "\3"));
	after = stats_now();
	must(after.bytes_copied - before.bytes_copied <= ROWS / 2 * COLUMNS * 4);
	p = cow_tensor_data(c);
	must(p[0] == 3 && p[ROWS / 2 * COLUMNS - 1] == 3 &&
	     p[ROWS / 2 * COLUMNS] == ROWS / 2 * COLUMNS);
	cow_tensor_unref(half);
	cow_tensor_unref(c);
	cow_tensor_unref(t);
}
END_TEST

/* One half of a lazy storage to the other: the source moves along. */
START_TEST(within_a_lazy_storage)
{
	struct cow_tensor *t = counting(ROWS, COLUMNS), *c, *a, *b;
	const int32_t *p;
	int64_t i, half = ROWS / 2 * COLUMNS;

	ok(cow_tensor_lazy_clone(t, &c));
	ok(cow_tensor_slice(c, 0, 0, ROWS / 2, 1, &a));
	ok(cow_tensor_slice(c, 0, ROWS / 2, ROWS, 1, &b));
	ok(cow_tensor_copy(a, b, 0));
	p = cow_tensor_data(c);
	for (i = 0; i < half; i++)
		must(p[i] == half + i && p[half + i] == half + i);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[0], 0);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(c);
	cow_tensor_unref(t);
}
END_TEST

/* The same places with other bits, in a lazy clone: each element is read before it is
 * overwritten. So is one that overlaps with the caller's consent. */
START_TEST(in_place_of_a_lazy_one)
{
	struct cow_tensor *t = counting(ROWS, COLUMNS), *c, *n, *a, *b;
	const int32_t *p;
	int32_t i;

	ok(cow_tensor_lazy_clone(t, &c));
	ok(cow_tensor_neg(c, &n));
	ok(cow_tensor_copy(c, n, 0));
	p = cow_tensor_data(c);
	for (i = 0; i < ROWS * COLUMNS; i++)
		must(p[i] == -i);
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(t))[7], 7);
	cow_tensor_unref(c);
	cow_tensor_unref(n);
	ok(cow_tensor_lazy_clone(t, &c));
	ok(cow_tensor_slice(c, 0, 0, ROWS - 1, 1, &a));
	ok(cow_tensor_slice(c, 0, 1, ROWS, 1, &b));
	ok(cow_tensor_copy(a, b, COW_COPY_IGNORE_OVERLAP));
	p = cow_tensor_data(c); /* any of the old elements, but those */
	for (i = 0; i < ROWS * COLUMNS; i++)
		must(p[i] % COLUMNS == i % COLUMNS && (i == 0 || p[i] > 0));
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(c);
	cow_tensor_unref(t);
}
END_TEST

/* COW_COPY_LAZY between whole storages: pages, and other views see the copy, too. */
START_TEST(lazy_pages)
{
	struct cow_tensor *from = counting(ROWS, COLUMNS), *to = tensor(COW_INT32, ROWS, COLUMNS);
	struct cow_tensor *row;
	struct cow_stats before, after;
	void *p;

	ok(cow_tensor_fill(to, COW_INT8, "\1"));
	ok(cow_tensor_slice(to, 0, 1, 2, 1, &row));
	before = stats_now();
	ok(cow_tensor_copy(to, from, COW_COPY_LAZY));
	after = stats_now();
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	ck_assert_uint_eq(after.clones_lazy, before.clones_lazy + 1);
	ck_assert_ptr_eq(cow_tensor_data(to), cow_tensor_data(from));
	ck_assert_int_eq(*(const int32_t *)cow_tensor_data(row), COLUMNS);
	ok(cow_tensor_data_mut(row, COW_WRITE_AUTO, &p));
	*(int32_t *)p = -1;
	ck_assert_int_eq(((const int32_t *)cow_tensor_data(from))[COLUMNS], COLUMNS);
	must(cow_tensor_equal(from, to) == 0);
	cow_tensor_unref(row);
	cow_tensor_unref(to);
	cow_tensor_unref(from);
}
END_TEST

/* If pages can't be shared, bytes are copied. A transparent storage must keep its address. */
START_TEST(lazy_refused)
{
	struct cow_tensor *from = counting(ROWS, COLUMNS), *to, *v;
	struct cow_storage *s;
	void *at;

	s = new_storage((size_t)ROWS * COLUMNS * 4, COW_STORAGE_TRANSPARENT);
	at = expose(s);
	ok(cow_tensor_on(s, COW_INT32, 2, SIZES(ROWS, COLUMNS), NULL, 0, &to));
	ok(cow_tensor_copy(to, from, COW_COPY_LAZY));
	ck_assert_ptr_eq(cow_tensor_data(to), at);
	must(cow_tensor_equal(to, from) == 1);
	cow_tensor_unref(to);
	cow_storage_unref(s);
	/* Larger storage, other strides. */
	to = tensor(COW_INT32, ROWS + 1, COLUMNS);
	ok(cow_tensor_slice(to, 0, 0, ROWS, 1, &v));
	ok(cow_tensor_copy(v, from, COW_COPY_LAZY));
	must(cow_tensor_data(v) != cow_tensor_data(from));
	must(cow_tensor_equal(v, from) == 1);
	cow_tensor_unref(v);
	cow_tensor_unref(to);
	to = transpose(tensor(COW_INT32, COLUMNS, ROWS), 0, 1);
	ok(cow_tensor_copy(to, from, COW_COPY_LAZY));
	must(cow_tensor_equal(to, from) == 1);
	cow_tensor_unref(to);
	cow_tensor_unref(from);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_copy");
	TCase *tcase = add_case(suite, "copy");

	tcase_add_test(tcase, broadcasts);
	tcase_add_test(tcase, no_elements);
	tcase_add_test(tcase, meta_tensors);
	tcase_add_test(tcase, one_place_for_several);
	tcase_add_test(tcase, both_in_one_storage);
	tcase_add_loop_test(tcase, apart_is_apart, 0, 4);
	tcase_add_test(tcase, two_storages_one_memory);
	tcase_add_test(tcase, bits_resolved);
	tcase_add_test(tcase, bits_of_the_destination);
	tcase_add_test(tcase, warns_once);
	tcase_add_test(tcase, nothing_to_do);
	tcase_add_loop_test(tcase, overwrite_of_a_lazy_clone, 0, 2);
	tcase_add_test(tcase, overwrite_of_a_part);
	tcase_add_test(tcase, within_a_lazy_storage);
	tcase_add_test(tcase, in_place_of_a_lazy_one);
	tcase_add_test(tcase, lazy_pages);
	tcase_add_test(tcase, lazy_refused);
	return run_suite(suite);
}

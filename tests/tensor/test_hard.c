/* SPDX-License-Identifier: MIT */
/*
 * Tensors at their limits: sizes, strides and offsets at the ends of int64, storages larger
 * than memory, 64 dimensions, storages that shrink under their views
 */
#include "tests/support/tensors.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* A storage of any size, of which not a byte is there. */
static struct cow_storage *meta_storage(size_t bytes)
{
	struct cow_data_ptr none = { .device = { COW_DEVICE_META, 0 } };
	struct cow_storage *s;

	ok(cow_storage_new_external(&none, bytes, NULL, &s));
	return s;
}

static struct cow_tensor *on(struct cow_storage *s, enum cow_dtype dtype, int dims,
                             const int64_t *sizes, const int64_t *strides)
{
	struct cow_tensor *t;

	ok(cow_tensor_on(s, dtype, dims, sizes, strides, 0, &t));
	return t;
}

/* Without elements strides may be anything, and so may those of views. */
START_TEST(empty_tensors_with_any_strides)
{
	static const int64_t strides[] = { 0, 1, INT64_MAX / 2 + 1, INT64_MAX };
	struct cow_storage *s = new_storage(64, 0);
	struct cow_tensor *t, *u, *v;
	size_t a, b;

	for (a = 0; a < COUNT(strides); a++)
		for (b = 0; b < COUNT(strides); b++) {
			t = on(s, COW_FLOAT64, 2, SIZES(0, 10), SIZES(strides[a], strides[b]));
			u = slice(cow_tensor_ref(t), 1, 1, INT64_MAX, 3);
			ck_sizes(u, 0, 3);
			must(cow_tensor_strides(u)[1] >= 0);
			ok(cow_tensor_unsqueeze(u, 1, &v));
			cow_tensor_unref(v);
			ok(cow_tensor_view(u, 3, SIZES(7, 0, 3), &v));
			ok(cow_tensor_copy(v, v, 0));
			cow_tensor_unref(v);
			ok(cow_tensor_clone(u, COW_FORMAT_PRESERVE, &v));
			must(cow_tensor_equal(u, v) == 1);
			cow_tensor_unref(v);
			ok(cow_tensor_select(u, 1, 2, &v));
			ok(cow_tensor_copy(v, v, 0));
			cow_tensor_unref(v);
			cow_tensor_unref(u);
			cow_tensor_unref(t);
		}
	/* The address does not matter. */
	ok(cow_tensor_on(s, COW_INT8, 1, SIZES(0), NULL, INT64_MAX, &t));
	must(cow_tensor_data(t) == NULL);
	cow_tensor_unref(t);
	cow_storage_unref(s);
}
END_TEST

/* Elements at both ends of all that can be counted. */
START_TEST(as_large_as_numbers)
{
	struct cow_storage *s = meta_storage(INT64_MAX);
	const int64_t half = (int64_t)1 << 62;
	struct cow_tensor *t, *u;

	t = on(s, COW_INT8, 2, SIZES(3, 2), SIZES(0, half));
	fails(-EXDEV, cow_tensor_view(t, 1, SIZES(6), &u));
	ok(cow_tensor_view(t, 4, SIZES(3, 1, 2, 1), &u));
	cow_tensor_unref(u);
	fails(-EXDEV, cow_tensor_view(t, 2, SIZES(2, 3), &u));
	for (int d = 0; d < 3; d++) {
		ok(cow_tensor_unsqueeze(t, d, &u));
		for (int i = 0; i < 3; i++)
			must(cow_tensor_strides(u)[i] >= 0);
		cow_tensor_unref(u);
	}
	must(!cow_tensor_is_dense(t));
	cow_tensor_unref(t);
	t = on(s, COW_INT8, 1, SIZES(INT64_MAX), NULL);
	ck_assert_int_eq(cow_tensor_numel(t), INT64_MAX);
	ok(cow_tensor_view(t, 2, SIZES(7, -1), &u));
	cow_tensor_unref(u);
	u = slice(cow_tensor_ref(t), 0, INT64_MIN, INT64_MAX, INT64_MAX);
	ck_sizes(u, 1);
	cow_tensor_unref(u);
	u = slice(cow_tensor_ref(t), 0, -INT64_MAX, INT64_MAX, INT64_MAX - 1);
	ck_sizes(u, 2);
	cow_tensor_unref(u);
	ok(cow_tensor_lazy_clone(t, &u));
	cow_tensor_unref(u);
	/* On the host there is no such memory. */
	ck_assert_int_lt(cow_tensor_to(t, &(struct cow_to){ .size = sizeof(struct cow_to),
	                                       .dtype = -1, .set_device = true }, &u), 0);
	cow_tensor_unref(t);
	fails(-EINVAL, cow_tensor_on(s, COW_INT16, 1, SIZES(INT64_MAX), NULL, 0, &t));
	fails(-EINVAL, cow_tensor_on(s, COW_INT8, 3, SIZES(INT64_MAX, 2, 0), NULL, 0, &t));
	fails(-ERANGE, cow_tensor_on(s, COW_INT8, 1, SIZES(2), SIZES(INT64_MAX), 0, &t));
	fails(-ERANGE, cow_tensor_on(s, COW_INT8, 1, SIZES(1), SIZES(1), INT64_MAX, &t));
	fails(-ERANGE, cow_tensor_on(s, COW_INT16, 1, SIZES(1), SIZES(1), INT64_MAX / 2, &t));
	cow_storage_unref(s);
}
END_TEST

START_TEST(absurd_numbers)
{
	struct cow_tensor *t = counting(2, 3), *u;
	int64_t many[COW_DIMS_MAX + 1] = { 0 };

	fails(-EINVAL, cow_tensor_expand(t, INT_MIN, SIZES(1), &u));
	fails(-EINVAL, cow_tensor_expand(t, INT_MAX, SIZES(1), &u));
	fails(-EINVAL, cow_tensor_expand(t, -1, SIZES(1), &u));
	fails(-EINVAL, cow_tensor_expand(t, 4, SIZES(INT64_MAX, INT64_MAX, 2, 3), &u));
	fails(-EINVAL, cow_tensor_expand(t, COW_DIMS_MAX + 1, many, &u));
	fails(-EINVAL, cow_tensor_view(t, INT_MIN, SIZES(1), &u));
	fails(-EINVAL, cow_tensor_view(t, COW_DIMS_MAX + 1, many, &u));
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(INT64_MIN, -1), &u));
	fails(-EINVAL, cow_tensor_as_strided(t, INT_MIN, SIZES(1), SIZES(1), 0, &u));
	fails(-EINVAL, cow_tensor_as_strided(t, 1, SIZES(2), SIZES(INT64_MIN), 0, &u));
	fails(-EINVAL, cow_tensor_as_strided(t, 1, SIZES(2), SIZES(1), INT64_MIN, &u));
	fails(-EINVAL, cow_tensor_select(t, INT_MIN, 0, &u));
	fails(-EINVAL, cow_tensor_select(t, INT_MAX, 0, &u));
	fails(-EINVAL, cow_tensor_select(t, 0, INT64_MIN, &u));
	fails(-EINVAL, cow_tensor_slice(t, INT_MIN, 0, 1, 1, &u));
	fails(-EINVAL, cow_tensor_slice(t, 0, 0, 1, INT64_MIN, &u));
	fails(-EINVAL, cow_tensor_transpose(t, INT_MIN, INT_MAX, &u));
	fails(-EINVAL, cow_tensor_unsqueeze(t, INT_MIN, &u));
	fails(-EINVAL, cow_tensor_squeeze(t, INT_MAX, &u));
	fails(-EINVAL, cow_tensor_permute(t, (const int[]){ INT_MIN, INT_MAX }, &u));
	fails(-EINVAL, cow_tensor_clone(t, (enum cow_format)-1, &u));
	fails(-EINVAL, cow_tensor_contiguous(t, (enum cow_format)77, 0, &u));
	must(!cow_tensor_is_contiguous(t, (enum cow_format)-1));
	fails(-EINVAL, cow_tensor_new((enum cow_dtype)-1, 1, SIZES(1), NULL, &u));
	fails(-EINVAL, cow_tensor_new(COW_INT8, INT_MIN, SIZES(1), NULL, &u));
	fails(-EINVAL, cow_tensor_new(COW_INT8, 1, SIZES(INT64_MIN), NULL, &u));
	fails(-EINVAL, cow_tensor_fill(t, (enum cow_dtype)99, "x"));
	ck_assert_int_lt(cow_tensor_new(COW_INT8, 1, SIZES(INT64_MAX), NULL, &u), 0);
	cow_tensor_unref(t);
}
END_TEST

/* 64 dimensions of 2: some stand still, the others are turned around. */
START_TEST(sixty_four_dimensions)
{
	int64_t sizes[COW_DIMS_MAX], strides[COW_DIMS_MAX];
	int order[COW_DIMS_MAX];
	struct cow_tensor *t, *u, *v, *w, *x;
	int i, n = 12;

	for (i = 0; i < COW_DIMS_MAX; i++) {
		sizes[i] = i < n ? 2 : 1;
		strides[i] = i < n ? (int64_t)1 << i : INT64_MAX;
		order[i] = COW_DIMS_MAX - 1 - i;
	}
	u = counting(4096);
	ok(cow_tensor_as_strided(u, COW_DIMS_MAX, sizes, strides, 0, &t));
	must(cow_tensor_is_dense(t));
	fails(-EINVAL, cow_tensor_unsqueeze(t, 0, &v));
	ok(cow_tensor_permute(t, order, &v)); /* 2 x 2 x ..., contiguous */
	must(cow_tensor_is_contiguous(v, COW_FORMAT_CONTIGUOUS));
	ok(cow_tensor_clone(t, COW_FORMAT_CONTIGUOUS, &w));
	must(cow_tensor_equal(t, w) == 1);
	ok(cow_tensor_permute(w, order, &x));
	must(cow_tensor_equal(x, v) == 1);
	cow_tensor_unref(x);
	cow_tensor_unref(w);
	ok(cow_tensor_view(v, 1, SIZES(4096), &w));
	must(cow_tensor_equal(w, u) == 1);
	cow_tensor_unref(w);
	/* And repeated ones: a copy that would be larger than memory can be is refused. */
	for (i = 0; i < COW_DIMS_MAX; i++)
		sizes[i] = 2;
	cow_tensor_unref(v);
	ok(cow_tensor_select(u, 0, 0, &v));
	cow_tensor_unref(u);
	fails(-EINVAL, cow_tensor_expand(v, COW_DIMS_MAX, sizes, &u));
	ok(cow_tensor_expand(v, 60, sizes, &u));
	ck_assert_int_lt(cow_tensor_clone(u, COW_FORMAT_CONTIGUOUS, &w), 0);
	fails(-EINVAL, cow_tensor_copy(u, v, 0)); /* one place for all */
	ck_assert_int_lt(cow_tensor_equal(u, u), 0);
	cow_tensor_unref(u);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

/* A program may shrink a storage under its views. Their elements are gone, and the library
 * never reads what lies there. */
START_TEST(a_storage_that_shrinks)
{
	struct cow_tensor *t = counting(1000), *all = counting(1000), *u;
	struct cow_storage *s = cow_tensor_storage(t);
	int32_t one = 1;
	char text[100];
	void *p;

	ok(cow_storage_resize(s, 400));
	u = slice(cow_tensor_ref(t), 0, 100, 200, 1);
	fails(-ERANGE, cow_tensor_copy(all, t, 0));
	fails(-ERANGE, cow_tensor_copy(t, all, 0));
	fails(-ERANGE, cow_tensor_fill(u, COW_INT32, &one));
	fails(-ERANGE, cow_tensor_equal(t, all));
	must(cow_tensor_data(u) == NULL);
	fails(-ERANGE, cow_tensor_data_mut(u, COW_WRITE_AUTO, &p));
	must(cow_tensor_print(t, 0, text, sizeof(text)) < 0);
	cow_tensor_unref(u);
	u = slice(cow_tensor_ref(t), 0, 0, 100, 1);
	ok(cow_tensor_fill(u, COW_INT32, &one)); /* this much is left */
	fails(-ERANGE, cow_tensor_clone(t, COW_FORMAT_PRESERVE, &all));
	fails(-ERANGE, cow_tensor_lazy_clone(t, &all));
	fails(-ERANGE, cow_tensor_to_dlpack(t, true, true, &p));
	fails(-ERANGE, cow_tensor_to_dlpack(t, true, false, &p));
	ok(cow_storage_resize(s, 4000));
	ok(cow_tensor_copy(t, all, 0));
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	cow_tensor_unref(all);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_hard");
	TCase *tcase = add_case(suite, "limits");

	tcase_add_test(tcase, empty_tensors_with_any_strides);
	tcase_add_test(tcase, as_large_as_numbers);
	tcase_add_test(tcase, absurd_numbers);
	tcase_add_test(tcase, sixty_four_dimensions);
	tcase_add_test(tcase, a_storage_that_shrinks);
	return run_suite(suite);
}

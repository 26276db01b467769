/* SPDX-License-Identifier: MIT */
/*
 * Views of tensors: the limits of each kind. test_model.c has random ones.
 */
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>

START_TEST(slices)
{
	struct cow_tensor *t = counting(3, 4), *v = (void *)1;

	ok(cow_tensor_slice(t, 1, -3, INT64_MAX, 2, &v));
	ck_sizes(v, 3, 2);
	ck_elements(v, 1, 3, 5, 7, 9, 11);
	ck_assert_ptr_eq(cow_tensor_storage(v), cow_tensor_storage(t));
	cow_tensor_unref(v);
	ok(cow_tensor_slice(t, -2, INT64_MIN, 2, INT64_MAX, &v));
	ck_elements(v, 0, 1, 2, 3);
	cow_tensor_unref(v);
	ok(cow_tensor_slice(t, 0, 3, 1, 1, &v));
	ck_sizes(v, 0, 4);
	cow_tensor_unref(v);
	v = (void *)1;
	fails(-EINVAL, cow_tensor_slice(t, 0, 0, 1, 0, &v));
	fails(-EINVAL, cow_tensor_slice(t, 0, 0, 1, -1, &v));
	fails(-EINVAL, cow_tensor_slice(t, 2, 0, 1, 1, &v));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "int32 [3, 4]"));
	fails(-EINVAL, cow_tensor_slice(t, -3, 0, 1, 1, &v));
	fails(-EINVAL, cow_tensor_slice(NULL, 0, 0, 1, 1, &v));
	fails(-EINVAL, cow_tensor_slice(t, 0, 0, 1, 1, NULL));
	ck_assert_ptr_eq(v, (void *)1);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(selects)
{
	struct cow_tensor *t = counting(3, 4), *v = (void *)1;

	fails(-EINVAL, cow_tensor_select(t, 0, 3, &v));
	fails(-EINVAL, cow_tensor_select(t, 0, -4, &v));
	fails(-EINVAL, cow_tensor_select(t, 2, 0, &v));
	fails(-EINVAL, cow_tensor_select(NULL, 0, 0, &v));
	ck_assert_ptr_eq(v, (void *)1);
	ok(cow_tensor_select(t, 1, -1, &v));
	ck_elements(v, 3, 7, 11);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(permutes)
{
	struct cow_tensor *t = counting(2, 3, 2), *v = (void *)1;

	fails(-EINVAL, cow_tensor_permute(t, (int[]){ 0, 1, 1 }, &v));
	fails(-EINVAL, cow_tensor_permute(t, (int[]){ 0, 1, -2 }, &v));
	fails(-EINVAL, cow_tensor_permute(t, (int[]){ 0, 1, 3 }, &v));
	fails(-EINVAL, cow_tensor_permute(t, NULL, &v));
	fails(-EINVAL, cow_tensor_transpose(t, 0, 3, &v));
	fails(-EINVAL, cow_tensor_transpose(NULL, 0, 1, &v));
	ck_assert_ptr_eq(v, (void *)1);
	ok(cow_tensor_permute(t, (int[]){ 2, 0, 1 }, &v));
	ck_sizes(v, 2, 2, 3);
	ck_elements(v, 0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11);
	cow_tensor_unref(v);
	t = transpose(t, -1, 1);
	ck_elements(t, 0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(expands)
{
	struct cow_tensor *t = counting(2, 1), *v = (void *)1;

	fails(-EINVAL, cow_tensor_expand(t, 1, SIZES(2), &v));
	fails(-EINVAL, cow_tensor_expand(t, 2, SIZES(3, 1), &v));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "[3, 1]"));
	fails(-EINVAL, cow_tensor_expand(t, 3, SIZES(-1, 2, 1), &v));
	fails(-EINVAL, cow_tensor_expand(t, 2, SIZES(2, -2), &v));
	fails(-EINVAL, cow_tensor_expand(t, 65, SIZES(2, -2), &v));
	fails(-EINVAL, cow_tensor_expand(t, 3, SIZES(INT64_MAX, 2, 1), &v));
	fails(-EINVAL, cow_tensor_expand(t, 2, NULL, &v));
	ck_assert_ptr_eq(v, (void *)1);
	ok(cow_tensor_expand(t, 3, SIZES(2, -1, 3), &v));
	ck_elements(v, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1);
	ck_strides(v, 0, 1, 0);
	must(!cow_tensor_is_dense(v));
	cow_tensor_unref(v);
	ok(cow_tensor_expand(t, 2, SIZES(2, 0), &v));
	ck_assert_int_eq(cow_tensor_numel(v), 0);
	cow_tensor_unref(v);
	/* More elements than there is memory, in no memory. */
	ok(cow_tensor_expand(t, 2, SIZES(2, 1LL << 50), &v));
	fails(-ENOMEM, cow_tensor_clone(v, COW_FORMAT_CONTIGUOUS, &t));
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(squeezes)
{
	struct cow_tensor *t = counting(2, 1, 3), *v = (void *)1;
	int64_t sizes[COW_DIMS_MAX];
	int i;

	fails(-EINVAL, cow_tensor_unsqueeze(t, 4, &v));
	fails(-EINVAL, cow_tensor_unsqueeze(t, -5, &v));
	fails(-EINVAL, cow_tensor_squeeze(t, 3, &v));
	fails(-EINVAL, cow_tensor_squeeze(NULL, 0, &v));
	ck_assert_ptr_eq(v, (void *)1);
	ok(cow_tensor_unsqueeze(t, -1, &v));
	ck_sizes(v, 2, 1, 3, 1);
	cow_tensor_unref(v);
	ok(cow_tensor_squeeze(t, 0, &v)); /* not of size 1 */
	ck_sizes(v, 2, 1, 3);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
	for (i = 0; i < COW_DIMS_MAX; i++)
		sizes[i] = 1;
	t = tensor_new(COW_INT8, COW_DIMS_MAX, sizes, COW_FORMAT_CONTIGUOUS);
	fails(-EINVAL, cow_tensor_unsqueeze(t, 0, &v));
	cow_tensor_unref(t);
}
END_TEST

START_TEST(other_sizes)
{
	struct cow_tensor *t = counting(2, 3, 4), *u, *v = (void *)1;

	ok(cow_tensor_view(t, 3, SIZES(6, 2, -1), &v));
	ck_sizes(v, 6, 2, 2);
	ck_strides(v, 4, 2, 1);
	cow_tensor_unref(v);
	ok(cow_tensor_slice(t, 2, 0, 2, 1, &u)); /* rows of 2, 4 apart */
	ok(cow_tensor_view(u, 3, SIZES(6, 1, 2), &v));
	ck_strides(v, 4, 2, 1);
	cow_tensor_unref(v);
	v = (void *)1;
	fails(-EXDEV, cow_tensor_view(u, 1, SIZES(12), &v));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "[2, 3, 2]"));
	fails(-EXDEV, cow_tensor_view(u, 2, SIZES(3, 4), &v));
	cow_tensor_unref(u);
	fails(-EINVAL, cow_tensor_view(t, 1, SIZES(23), &v));
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(5, -1), &v));
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(-1, -1), &v));
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(-2, -12), &v));
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(0, -1), &v));
	fails(-EINVAL, cow_tensor_view(t, 3, SIZES(INT64_MAX, INT64_MAX, 2), &v));
	fails(-EINVAL, cow_tensor_view(t, -1, SIZES(24), &v));
	fails(-EINVAL, cow_tensor_view(NULL, 1, SIZES(24), &v));
	ck_assert_ptr_eq(v, (void *)1);
	t = slice(t, 0, 0, 0, 1);
	ok(cow_tensor_view(t, 2, SIZES(7, 0), &v));
	cow_tensor_unref(v);
	fails(-EINVAL, cow_tensor_view(t, 2, SIZES(0, -1), &v));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "-1 can be any"));
	cow_tensor_unref(t);
	ok(cow_tensor_new(COW_INT8, 0, NULL, NULL, &t));
	ok(cow_tensor_view(t, 2, SIZES(1, 1), &v));
	ok(cow_tensor_view(v, 0, NULL, &u));
	ck_assert_int_eq(cow_tensor_dims(u), 0);
	cow_tensor_unref(u);
	cow_tensor_unref(v);
	cow_tensor_unref(t);
}
END_TEST

/* The elements of each view are those of the tensor, in order. */
START_TEST(random_other_sizes)
{
	struct prng prng = prng_make(5);
	int round, views = 0;

	for (round = 0; round < ROUNDS(20000); round++) {
		struct cow_tensor *t = counting(4, 6, 4), *v;
		int64_t sizes[4], left, n;
		int dims = 0, r;
		int32_t want[96];

		t = slice(t, (int)prng_below(&prng, 3), 0,
		          1 + (int64_t)prng_below(&prng, 6), 1);
		t = transpose(t, (int)prng_below(&prng, 3),
		              (int)prng_below(&prng, 3));
		n = left = cow_tensor_numel(t);
		while (dims < 3) {
			int64_t size = 1 + (int64_t)prng_below(&prng, 8);

			if (left % size == 0) {
				sizes[dims++] = size;
				left /= size;
			}
		}
		sizes[dims++] = left;
		r = cow_tensor_view(t, dims, sizes, &v);
		must(r == 0 || r == -EXDEV);
		must(r == 0 || !cow_tensor_is_contiguous(t, COW_FORMAT_CONTIGUOUS));
		if (r == 0) {
			const int64_t *s = cow_tensor_strides(t);
			const int64_t *z = cow_tensor_sizes(t);
			const int32_t *at = cow_tensor_data(t);
			int64_t i;

			for (i = 0; i < n; i++)
				want[i] = at[i % z[2] * s[2] +
				             i / z[2] % z[1] * s[1] +
				             i / z[2] / z[1] * s[0]];
			tensor_is(v, n, want);
			cow_tensor_unref(v);
			views++;
		}
		cow_tensor_unref(t);
	}
	must(views > ROUNDS(20000) / 4);
}
END_TEST

START_TEST(anything_in_the_storage)
{
	struct cow_tensor *t = counting(4, 4), *u, *v = (void *)1;

	t = slice(t, 0, 1, 2, 1);
	ok(cow_tensor_as_strided(t, 2, SIZES(3, 3), SIZES(1, 1), 0, &u));
	ck_elements(u, 0, 1, 2, 1, 2, 3, 2, 3, 4);
	cow_tensor_unref(u);
	fails(-ERANGE, cow_tensor_as_strided(t, 1, SIZES(2), SIZES(1), 15, &v));
	fails(-EINVAL, cow_tensor_as_strided(t, 1, SIZES(2), SIZES(-1), 5, &v));
	fails(-EINVAL, cow_tensor_as_strided(NULL, 1, SIZES(2), SIZES(1), 5, &v));
	ck_assert_ptr_eq(v, (void *)1);
	cow_tensor_unref(t);
}
END_TEST

START_TEST(bits)
{
	struct cow_tensor *t = tensor(COW_COMPLEX64, 3), *u, *v, *w;

	ok(cow_tensor_conj(t, &u));
	must(cow_tensor_is_conj(u) && !cow_tensor_is_neg(u) && !cow_tensor_is_conj(t));
	ok(cow_tensor_neg(u, &v));
	must(cow_tensor_is_conj(v) && cow_tensor_is_neg(v));
	ok(cow_tensor_as_strided(v, 1, SIZES(1), SIZES(1), 2, &w));
	must(cow_tensor_is_conj(w) && cow_tensor_is_neg(w));
	cow_tensor_unref(w);
	ok(cow_tensor_conj(v, &w));
	must(!cow_tensor_is_conj(w) && cow_tensor_is_neg(w));
	cow_tensor_unref(w);
	cow_tensor_unref(v);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
	t = tensor(COW_BOOL, 3);
	fails(-EINVAL, cow_tensor_neg(t, &u));
	fails(-EINVAL, cow_tensor_neg(NULL, &u));
	fails(-EINVAL, cow_tensor_conj(t, NULL));
	ok(cow_tensor_conj(t, &u));
	ck_assert_ptr_eq(u, t);
	cow_tensor_unref(u);
	cow_tensor_unref(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_view");
	TCase *tcase = add_case(suite, "view");

	tcase_add_test(tcase, slices);
	tcase_add_test(tcase, selects);
	tcase_add_test(tcase, permutes);
	tcase_add_test(tcase, expands);
	tcase_add_test(tcase, squeezes);
	tcase_add_test(tcase, other_sizes);
	tcase_add_test(tcase, random_other_sizes);
	tcase_add_test(tcase, anything_in_the_storage);
	tcase_add_test(tcase, bits);
	return run_suite(suite);
}

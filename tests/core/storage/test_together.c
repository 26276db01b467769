/* SPDX-License-Identifier: MIT */
/*
 * Many transparent storages that are cloned with one call
 */
#include "tests/support/support.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* The third was rewritten beside a clone: it is copied, and that is told. */
START_TEST(many_are_cloned_at_once)
{
	struct cow_storage *from[4], *to[4] = { NULL }, *beside;
	uint64_t copied = 1, counted;

	ck_assert_int_eq(cow_storages_lazy_clone(NULL, 0, &copied, NULL), 0);
	ck_assert_uint_eq(copied, 0);
	from[0] = new_filled(100, COW_STORAGE_TRANSPARENT, 1);
	from[1] = new_filled(8 * MIB, COW_STORAGE_TRANSPARENT, 2);
	from[2] = new_filled(4 * MIB, COW_STORAGE_TRANSPARENT, 3);
	from[3] = new_filled(4 * MIB, 0, 4);
	beside = lazy(from[2]);
	fill(expose(from[2]), 4 * MIB, 3);
	counted = stats_now().fallbacks[COW_FALLBACK_REWRITTEN];
	ck_assert_int_eq(cow_storages_lazy_clone(from, 4, &copied, to), 0);
	ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_REWRITTEN],
	                  counted + 1);
	ck_assert_uint_eq(copied, 100 + 4 * MIB);
	for (int i = 0; i < 4; i++) {
		size_t bytes = cow_storage_bytes(from[i]);

		memset(mut(from[i]), 0, bytes);
		ck_assert_uint_eq(cow_storage_bytes(to[i]), bytes);
		ck_pattern(data(to[i]), bytes, (uint64_t)i + 1);
		cow_storage_unref(to[i]);
		cow_storage_unref(from[i]);
		from[i] = to[i] = beside;
	}
	from[2] = NULL;
	ck_assert_int_eq(cow_storages_lazy_clone(from, 4, &copied, to),
	                 -EINVAL);
	ck_assert_ptr_eq(to[0], beside);
	cow_storage_unref(beside);
}
END_TEST

/* Their sizes are no multiples of 2 MiB, and yet they are frozen with few calls, the first
 * time and after they were rewritten. Gaps between them get no pages. */
START_TEST(neighbours_freeze_together)
{
	enum { N = 24, BYTES = 2 * MIB + 3 * PAGE + 7 };
	struct cow_storage *s[N], *c[N];
	uint64_t copied, before;
	unsigned char *p[N];

	cow_trim();
	before = memfd_bytes();
	for (unsigned i = 0; i < N; i++) {
		s[i] = _i ? new_apart(BYTES) : new_storage(BYTES, COW_STORAGE_TRANSPARENT);
		p[i] = expose(s[i]);
		fill(p[i], BYTES, i);
	}
	for (unsigned n = 1; n < 6; n++) {
		ck_assert_int_eq(cow_storages_lazy_clone(s, N, &copied, c), 0);
		ck_assert_uint_eq(copied, 0);
		ck_assert_uint_lt(mappings_between(p, N, BYTES), N / 2);
		ok(cow_storages_write_intent(s, N, n % 2 ? COW_WRITE_ALL : COW_WRITE_AUTO,
		                             NULL));
		for (unsigned i = 0; i < N; i++)
			fill(p[i], BYTES, n * N + i);
		for (unsigned i = 0; i < N; i++) {
			ck_pattern(data(c[i]), BYTES, (n - 1) * N + i);
			ck_assert_uint_eq(info_of(s[i]).frozen, 0);
			cow_storage_unref(c[i]);
		}
		ck_assert_uint_le(memfd_bytes(), before + 2 * N * (BYTES + PAGE) + 8 * MIB);
	}
	for (unsigned i = 0; i < N; i++)
		cow_storage_unref(s[i]);
}
END_TEST

/* A block stays as large as it was, may use its last page, and grows. */
START_TEST(blocks_are_cloned_at_once)
{
	const size_t bytes = 3 * MIB + 100;
	struct cow_storage *s[3], *c[3];
	unsigned char *p[3];
	void *moved;

	for (unsigned i = 0; i < 3; i++) {
		p[i] = new_block(bytes, 0);
		fill(p[i], 3 * MIB + PAGE, i);
		ok(cow_storage_from_ptr(p[i], NULL, &s[i]));
	}
	for (unsigned n = 0; n < 3; n++) {
		ck_assert_int_eq(cow_storages_lazy_clone(s, 3, NULL, c), 0);
		for (unsigned i = 0; i < 3; i++) {
			ck_assert_uint_eq(cow_block_bytes(p[i]), 3 * MIB + PAGE);
			ok(cow_write_intent(&(struct cow_range){ p[i], bytes }, 1,
			                    n ? COW_WRITE_AUTO : COW_WRITE_ALL, NULL));
			fill(p[i], bytes, i);
			ck_pattern(p[i], 3 * MIB + PAGE, i);
			ck_pattern(data(c[i]), bytes, i);
			cow_storage_unref(c[i]);
		}
	}
	for (unsigned i = 0; i < 3; i++) {
		cow_storage_unref(s[i]);
		ok(cow_block_resize(p[i], bytes + MIB / 2 * (i + 1), &moved));
		ck_pattern(moved, 3 * MIB + PAGE, i);
		ck_assert_uint_ge(cow_block_bytes(moved), bytes + MIB / 2 * (i + 1));
		memset(moved, 0, bytes + MIB / 2 * (i + 1));
		cow_block_free(moved);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("together");
	TCase *tcase = add_case(suite, "together");

	tcase_add_test(tcase, many_are_cloned_at_once);
	tcase_add_loop_test(tcase, neighbours_freeze_together, 0, 2);
	tcase_add_test(tcase, blocks_are_cloned_at_once);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Swapping an empty storage freed what its clones had
 *
 * A storage of no bytes is not materialized, so lazy clones still share its allocation
 * when cow_storage_swap_data_ptr() takes it out. That was given back all the same, and
 * the clones counted down in what was somebody else's by then.
 */
#include "tests/support/support.h"

#include <string.h>

START_TEST(clones_of_nothing_live)
{
	struct cow_storage *s = new_storage(0, 0), *clone = lazy(s), *others[16];
	struct cow_data_ptr ptr;

	ok(cow_allocator_allocate(cow_allocator_default(), PAGE, &ptr));
	memset(ptr.data, 7, PAGE);
	ok(cow_storage_swap_data_ptr(s, &ptr, PAGE));
	ck_assert_ptr_null(ptr.data);
	ck_assert_ptr_null(ptr.context);
	cow_data_ptr_clear(&ptr);
	for (size_t i = 0; i < COUNT(others) / 2; i++)
		others[i] = new_filled(PAGE, 0, i);
	cow_storage_unref(clone);
	for (size_t i = COUNT(others) / 2; i < COUNT(others); i++)
		others[i] = new_filled(PAGE, 0, i);
	for (size_t i = 0; i < COUNT(others); i++) {
		ck_pattern(data(others[i]), PAGE, i);
		cow_storage_unref(others[i]);
	}
	ck_bytes(data(s), PAGE, 7);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("swapping_no_bytes_frees_the_clones");
	TCase *tcase = add_case(suite, "nothing");

	tcase_add_test(tcase, clones_of_nothing_live);
	return run_suite(suite);
}

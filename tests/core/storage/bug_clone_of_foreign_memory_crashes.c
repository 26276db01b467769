/* SPDX-License-Identifier: MIT */
/*
 * Clones of memory without a tile crashed
 *
 * An exposed storage of another allocator was taken for one of the engine's,
 * and a meta storage, which has a size and no bytes, was copied from NULL. Also
 * here: naming the default allocator got the registered one instead.
 */
#include "tests/support/counting.h"
#include "tests/support/support.h"

#include <errno.h>

START_TEST(exposed_foreign)
{
	struct counting device;
	struct cow_storage_options options = { .size = sizeof(options) };
	struct cow_storage *a, *b;
	unsigned char *p;

	counting_make(&device);
	options.allocator = &device.base;
	ok(cow_storage_new(MIB, &options, &a));
	p = expose(a);
	fill(p, MIB, 1);
	b = lazy(a);
	p[0] ^= 1;
	ck_pattern(data(b), MIB, 1);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

START_TEST(meta)
{
	struct cow_data_ptr none = {
		.device = { COW_DEVICE_META, 0 },
	};
	struct cow_storage *a, *b;

	ok(cow_storage_new_external(&none, MIB, NULL, &a));
	b = lazy(a);
	ck_assert_uint_eq(cow_storage_bytes(b), MIB);
	ck_assert_int_eq(cow_storage_device(b).type, COW_DEVICE_META);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

START_TEST(a_device_without_allocator)
{
	static unsigned char somewhere[64];
	struct cow_data_ptr ptr = {
		.data = somewhere,
		.device = { COW_DEVICE_CUDA, 0 },
	};
	struct cow_storage *a, *b = NULL;

	ok(cow_storage_new_external(&ptr, sizeof(somewhere), NULL, &a));
	fails(-ENODEV, cow_storage_lazy_clone(a, &b));
	ck_assert_ptr_null(b);
	cow_storage_unref(a);
}
END_TEST

START_TEST(default_by_name)
{
	struct counting device;
	struct cow_storage_options options = { .size = sizeof(options) };
	struct cow_storage *a;

	counting_make(&device);
	device.base.device = (struct cow_device){ COW_DEVICE_CPU, 0 };
	ok(cow_allocator_set(device.base.device, &device.base, 0));
	options.allocator = cow_allocator_default();
	ok(cow_storage_new(MIB, &options, &a));
	ck_assert_int_eq(device.allocations, 0);
	cow_storage_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clone_of_foreign_memory_crashes");
	TCase *tcase = add_case(suite, "foreign");

	tcase_add_test(tcase, exposed_foreign);
	tcase_add_test(tcase, meta);
	tcase_add_test(tcase, a_device_without_allocator);
	tcase_add_test(tcase, default_by_name);
	return run_suite(suite);
}

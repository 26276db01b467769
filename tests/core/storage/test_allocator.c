/* SPDX-License-Identifier: MIT */
/*
 * Allocators: the registry, the raw form, and observers of memory
 *
 * A counting allocator stands in for a third party's device. It can be told to
 * fail, so that what happens to callers and observers then is a test as well.
 */
#include "tests/support/counting.h"
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>

static const struct cow_device nowhere = { -7, 7 };
static const struct cow_device cpu_device = { COW_DEVICE_CPU, 0 };
static const struct cow_device private_device = { COW_DEVICE_PRIVATE, 2 };
static const struct cow_device cuda_device = { COW_DEVICE_CUDA, 0 };

/* ---- The engine's own ---------------------------------------------------- */

START_TEST(default_is_complete)
{
	struct cow_allocator *cpu = cow_allocator_default(), *registered = NULL;

	ck_assert_ptr_nonnull(cpu);
	ck_assert_uint_eq(cpu->size, sizeof(*cpu));
	ck_assert_ptr_nonnull(cpu->name);
	ck_assert_int_eq(cpu->device.type, COW_DEVICE_CPU);
	ck_assert(cpu->allocate != NULL);
	ck_assert(cpu->raw_deleter != NULL);
	ok(cow_allocator_get(cpu_device, &registered));
	ck_assert_ptr_eq(registered, cpu);
}
END_TEST

static const size_t sizes[] = {
	1,        63,           64,     65,      4095,
	PAGE,     PAGE + 1,     65535,  65536,   100 * KIB + 3,
	MIB - 1,  2 * MIB,      2 * MIB + 1, 5 * MIB + PAGE,
};

START_TEST(default_aligns)
{
	size_t bytes = sizes[_i];
	size_t alignment = bytes >= PAGE ? PAGE : 64;
	struct cow_data_ptr ptr;

	ok(cow_allocator_allocate(cow_allocator_default(), bytes, &ptr));
	ck_assert_ptr_nonnull(ptr.data);
	ck_assert_uint_eq((uintptr_t)ptr.data % alignment, 0);
	ck_assert_ptr_eq(ptr.data, ptr.context);
	ck_assert(ptr.deleter == cow_allocator_default()->raw_deleter);
	ck_assert_int_eq(ptr.device.type, COW_DEVICE_CPU);
	fill(ptr.data, bytes, 1);
	ck_pattern(ptr.data, bytes, 1);
	cow_data_ptr_clear(&ptr);
}
END_TEST

START_TEST(default_allocations_do_not_overlap)
{
	enum { EACH = 40 };
	struct cow_data_ptr ptrs[COUNT(sizes)][EACH];
	struct cow_allocator *cpu = cow_allocator_default();
	size_t i, j;

	for (j = 0; j < EACH; j++)
		for (i = 0; i < COUNT(sizes); i++) {
			ok(cow_allocator_allocate(cpu, sizes[i], &ptrs[i][j]));
			fill(ptrs[i][j].data, sizes[i], i * EACH + j);
		}
	for (j = 0; j < EACH; j++)
		for (i = 0; i < COUNT(sizes); i++) {
			ck_pattern(ptrs[i][j].data, sizes[i], i * EACH + j);
			cow_data_ptr_clear(&ptrs[i][j]);
		}
}
END_TEST

START_TEST(zero_bytes_are_no_error)
{
	struct counting device;
	struct cow_data_ptr ptr = { .data = &ptr };

	ok(cow_allocator_allocate(cow_allocator_default(), 0, &ptr));
	ck_assert_ptr_null(ptr.data);
	ck_assert_int_eq(ptr.device.type, COW_DEVICE_CPU);
	cow_data_ptr_clear(&ptr);

	/* The implementer is not bothered with them. */
	counting_make(&device);
	ptr.data = &ptr;
	ok(cow_allocator_allocate(&device.base, 0, &ptr));
	ck_assert_ptr_null(ptr.data);
	ck_assert_int_eq(ptr.device.type, COW_DEVICE_PRIVATE);
	ck_assert_int_eq(ptr.device.index, 2);
	ck_assert_int_eq(device.allocations, 0);
	cow_data_ptr_clear(&ptr);
}
END_TEST

START_TEST(clone_copies)
{
	struct cow_allocator *cpu = cow_allocator_default();
	struct counting device;
	struct cow_data_ptr a, b;

	ok(cow_allocator_allocate(cpu, 300000, &a));
	fill(a.data, 300000, 3);
	ok(cow_allocator_clone(cpu, a.data, 300000, &b));
	ck_assert_ptr_ne(a.data, b.data);
	memset(a.data, 0, 300000);
	cow_data_ptr_clear(&a);
	ck_pattern(b.data, 300000, 3);
	cow_data_ptr_clear(&b);

	counting_make(&device);
	ok(cow_allocator_allocate(&device.base, 1000, &a));
	fill(a.data, 1000, 4);
	ok(cow_allocator_clone(&device.base, a.data, 1000, &b));
	ck_assert_int_eq(device.copies, 1);
	ck_pattern(b.data, 1000, 4);
	cow_data_ptr_clear(&a);
	cow_data_ptr_clear(&b);
	ck_assert_int_eq(counting_live(&device), 0);
}
END_TEST

/* Without copy_data it is memcpy. */
START_TEST(clone_without_copy_data)
{
	struct counting device;
	struct cow_data_ptr a, b;

	counting_make(&device);
	device.base.copy_data = NULL;
	ok(cow_allocator_allocate(&device.base, 1000, &a));
	fill(a.data, 1000, 5);
	ok(cow_allocator_clone(&device.base, a.data, 1000, &b));
	ck_pattern(b.data, 1000, 5);
	cow_data_ptr_clear(&a);
	cow_data_ptr_clear(&b);
	ck_assert_int_eq(counting_live(&device), 0);
}
END_TEST

/* A copy that fails leaves no half-made clone behind. */
START_TEST(clone_that_fails)
{
	struct counting device;
	struct cow_data_ptr a, b = { .device = nowhere };

	counting_make(&device);
	ok(cow_allocator_allocate(&device.base, 1000, &a));
	device.fail_copy = -EIO;
	ck_assert_int_eq(cow_allocator_clone(&device.base, a.data, 1000, &b),
	                 -EIO);
	ck_assert_int_eq(b.device.type, nowhere.type);
	ck_assert_int_eq(counting_live(&device), 1);
	device.fail_copy = 0;
	device.fail = -ENOMEM;
	ck_assert_int_eq(cow_allocator_clone(&device.base, a.data, 1000, &b),
	                 -ENOMEM);
	ck_assert_int_eq(b.device.type, nowhere.type);
	cow_data_ptr_clear(&a);
	ck_assert_int_eq(counting_live(&device), 0);
}
END_TEST

START_TEST(raw_form)
{
	struct cow_allocator *cpu = cow_allocator_default();
	size_t bytes = sizes[_i];
	void *raw = NULL;

	ok(cow_allocator_raw_allocate(cpu, bytes, &raw));
	ck_assert_ptr_nonnull(raw);
	fill(raw, bytes, 6);
	ck_pattern(raw, bytes, 6);
	ok(cow_allocator_raw_deallocate(cpu, raw));
	ok(cow_allocator_raw_deallocate(cpu, NULL));
}
END_TEST

static void
nothing(void *context)
{
	(void)context;
}

START_TEST(raw_form_of_others)
{
	struct counting device;
	void *raw = &device;

	counting_make(&device);
	ok(cow_allocator_raw_allocate(&device.base, 50, &raw));
	memset(raw, 1, 50);
	ck_assert_int_eq(counting_live(&device), 1);
	ok(cow_allocator_raw_deallocate(&device.base, raw));
	ck_assert_int_eq(counting_live(&device), 0);

	device.base.raw_deleter = NULL;
	raw = &device;
	fails(-ENOTSUP, cow_allocator_raw_allocate(&device.base, 50, &raw));
	ck_assert_ptr_eq(raw, &device);
	fails(-ENOTSUP, cow_allocator_raw_deallocate(&device.base, raw));
	ck_assert_int_eq(device.allocations, 1);

	/* One that doesn't free this memory. */
	device.base.raw_deleter = nothing;
	fails(-EINVAL, cow_allocator_raw_allocate(&device.base, 50, &raw));
	ck_assert_ptr_eq(raw, &device);
	ck_assert_int_eq(counting_live(&device), 0);
}
END_TEST

/* ---- The registry -------------------------------------------------------- */

START_TEST(registry_starts_empty_but_for_the_cpu)
{
	struct cow_allocator *found = (struct cow_allocator *)&found;

	fails(-ENODEV, cow_allocator_get(private_device, &found));
	ck_assert_ptr_eq(found, (struct cow_allocator *)&found);
	fails(-ENODEV, cow_allocator_get(cuda_device, &found));
	ok(cow_allocator_get(cpu_device, &found));
}
END_TEST

START_TEST(registry_keeps_the_higher_priority)
{
	struct cow_device type = { COW_DEVICE_PRIVATE, 2 };
	struct counting first, second, third;
	struct cow_allocator *found;

	counting_make(&first);
	counting_make(&second);
	counting_make(&third);
	ok(cow_allocator_set(type, &first.base, 5));
	ok(cow_allocator_get(type, &found));
	ck_assert_ptr_eq(found, &first.base);

	/* Less: the present one stays, which is no error. */
	ck_assert_int_eq(cow_allocator_set(type, &second.base, 4), 1);
	ok(cow_allocator_get(type, &found));
	ck_assert_ptr_eq(found, &first.base);

	/* As much, or more: replaced. */
	ck_assert_int_eq(cow_allocator_set(type, &second.base, 5), 0);
	ok(cow_allocator_get(type, &found));
	ck_assert_ptr_eq(found, &second.base);
	ck_assert_int_eq(cow_allocator_set(type, &third.base, 9), 0);
	ck_assert_int_eq(cow_allocator_set(type, &second.base, 8), 1);
	ok(cow_allocator_get(type, &found));
	ck_assert_ptr_eq(found, &third.base);

	ck_assert_int_eq(cow_allocator_set(type, NULL, 9), 0);
	fails(-ENODEV, cow_allocator_get(type, &found));
	ck_assert_ptr_eq(found, &third.base);
}
END_TEST

START_TEST(registry_refuses_nonsense)
{
	struct counting device;
	struct cow_allocator *found;

	counting_make(&device);
	fails(-EINVAL, cow_allocator_set((struct cow_device){ -1, 0 },
	                                 &device.base, 0));
	fails(-EINVAL, cow_allocator_set((struct cow_device){ COW_DEVICE_TYPES, 0 }, &device.base, 0));
	fails(-EINVAL, cow_allocator_get((struct cow_device){ COW_DEVICE_TYPES, 0 }, &found));
	device.base.allocate = NULL;
	fails(-EINVAL, cow_allocator_set(private_device, &device.base, 0));
	fails(-EINVAL, cow_allocator_set(cuda_device, &device.base, 0));
	counting_make(&device);
	fails(-EINVAL, cow_allocator_set(cuda_device, &device.base, 0));
	device.base.size = 0;
	fails(-EINVAL, cow_allocator_set(private_device, &device.base, 0));
	fails(-ENODEV, cow_allocator_get(private_device, &found));
}
END_TEST

/* Storages that name no allocator get the registered one of the CPU. */
START_TEST(registry_serves_storages)
{
	struct cow_storage *storage, *none = NULL;
	struct cow_allocator *found;
	struct counting device;

	counting_make(&device);
	device.base.device = (struct cow_device){ COW_DEVICE_CPU, 0 };
	ok(cow_allocator_set(cpu_device, &device.base, 1));
	storage = new_filled(1000, 0, 7);
	ck_assert_int_eq(device.allocations, 1);
	ck_assert_int_eq(state_of(storage), COW_STATE_FOREIGN);

	/* What an allocator made outlives its registration. */
	ok(cow_allocator_set(cpu_device, NULL, 1));
	fails(-ENODEV, cow_allocator_get(cpu_device, &found));
	fails(-ENODEV, cow_storage_new(1000, NULL, &none));
	ck_assert_ptr_null(none);
	ok(cow_allocator_set(cpu_device, cow_allocator_default(), 1));
	ck_pattern(data(storage), 1000, 7);
	cow_storage_unref(storage);
	ck_assert_int_eq(counting_live(&device), 0);

	storage = new_storage(1000, 0);
	ck_assert_int_eq(state_of(storage), COW_STATE_OWNED);
	cow_storage_unref(storage);
}
END_TEST

/* ---- Observers ----------------------------------------------------------- */

struct observer {
	struct cow_profiler profiler;
	int calls, failures;
	const void *last_data;
	int64_t last_delta;
	int64_t sum;
	uint64_t last_total;
	size_t failed_bytes;
	int16_t last_type;
	bool calls_back, inside;
};

static void on_memory(void *user, const void *where, int64_t delta,
                      uint64_t total, struct cow_device device)
{
	struct observer *o = user;
	struct cow_storage *own;

	if (o->inside)
		return;
	o->calls++;
	o->last_data = where;
	o->last_delta = delta;
	o->sum += delta;
	o->last_total = total;
	o->last_type = device.type;
	if (!o->calls_back)
		return;
	o->inside = true;
	own = new_filled(3 * MIB, 0, 1);
	cow_storage_unref(own);
	o->inside = false;
}

static void on_out_of_memory(void *user, size_t bytes, uint64_t total,
                             struct cow_device device)
{
	struct observer *o = user;

	(void)total;
	o->failures++;
	o->failed_bytes = bytes;
	o->last_type = device.type;
}

static struct observer observer;

static void observe(void)
{
	memset(&observer, 0, sizeof(observer));
	observer.profiler.size = sizeof(observer.profiler);
	observer.profiler.on_memory = on_memory;
	observer.profiler.on_out_of_memory = on_out_of_memory;
	observer.profiler.user = &observer;
	ok(cow_profiler_set(&observer.profiler));
}

START_TEST(observers_see_both_ends)
{
	size_t bytes = sizes[_i];
	struct cow_data_ptr ptr;
	uint64_t total;
	void *where;

	observe();
	ok(cow_allocator_allocate(cow_allocator_default(), bytes, &ptr));
	where = ptr.data;
	ck_assert_int_eq(observer.calls, 1);
	ck_assert_ptr_eq(observer.last_data, where);
	ck_assert_int_ge(observer.last_delta, (int64_t)bytes);
	ck_assert_int_eq(observer.last_type, COW_DEVICE_CPU);
	total = observer.last_total;
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(observer.calls, 2);
	ck_assert_ptr_eq(observer.last_data, where);
	ck_assert_int_lt(observer.last_delta, 0);
	ck_assert_int_eq(observer.sum, 0);
	ck_assert_uint_eq(observer.last_total,
	                  total + (uint64_t)observer.last_delta);
	ok(cow_profiler_set(NULL));
	ok(cow_allocator_allocate(cow_allocator_default(), bytes, &ptr));
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(observer.calls, 2);
}
END_TEST

START_TEST(observers_see_storages)
{
	struct cow_storage *a, *b;

	observe();
	a = new_filled(MIB, 0, 2);
	ck_assert_int_ge(observer.sum, (int64_t)MIB);
	b = lazy(a);
	mut_range(b, 0, MIB, COW_WRITE_BY_COPY);
	ck_assert_int_ge(observer.sum, (int64_t)(2 * MIB));
	cow_storage_unref(a);
	cow_storage_unref(b);
	ck_assert_int_eq(observer.sum, 0);
	ok(cow_profiler_set(NULL));
}
END_TEST

START_TEST(observers_hear_of_failures)
{
	struct cow_storage *storage = (struct cow_storage *)&storage;
	struct cow_data_ptr ptr = { .device = nowhere };
	struct cow_storage_options options = { .size = sizeof(options) };
	struct counting device;

	counting_make(&device);
	device.fail = -ENOMEM;
	observe();
	ck_assert_int_eq(cow_allocator_allocate(&device.base, 12345, &ptr),
	                 -ENOMEM);
	ck_assert_int_eq(ptr.device.type, nowhere.type);
	ck_assert_int_eq(observer.failures, 1);
	ck_assert_uint_eq(observer.failed_bytes, 12345);
	ck_assert_int_eq(observer.last_type, COW_DEVICE_PRIVATE);
	ck_assert_int_eq(observer.calls, 0);

	options.allocator = &device.base;
	fails(-ENOMEM, cow_storage_new(54321, &options, &storage));
	ck_assert_ptr_eq(storage, (struct cow_storage *)&storage);
	ck_assert_int_eq(observer.failures, 2);
	ck_assert_uint_eq(observer.failed_bytes, 54321);

	/* More than any machine's address space. */
	refuses(cow_allocator_allocate(cow_allocator_default(),
	                               (size_t)1 << 52, &ptr));
	ck_assert_int_eq(ptr.device.type, nowhere.type);
	ck_assert_int_eq(observer.sum, 0);
	ok(cow_profiler_set(NULL));
}
END_TEST

/* They are called without locks, so they may call the library. */
START_TEST(observers_may_call_the_library)
{
	struct cow_storage *storage;
	struct cow_data_ptr ptr;

	observe();
	observer.calls_back = true;
	ok(cow_allocator_allocate(cow_allocator_default(), MIB, &ptr));
	cow_data_ptr_clear(&ptr);
	storage = new_filled(MIB, 0, 3);
	ok(cow_storage_resize(storage, 3 * MIB));
	ck_pattern(data(storage), MIB, 3);
	cow_storage_unref(storage);
	ck_assert_int_ge(observer.calls, 4);
	ck_assert_int_eq(observer.sum, 0);
	ok(cow_profiler_set(NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("allocator");
	TCase *tcase = add_case(suite, "allocator");
	int n = (int)COUNT(sizes);

	tcase_add_test(tcase, default_is_complete);
	tcase_add_loop_test(tcase, default_aligns, 0, n);
	tcase_add_test(tcase, default_allocations_do_not_overlap);
	tcase_add_test(tcase, zero_bytes_are_no_error);
	tcase_add_test(tcase, clone_copies);
	tcase_add_test(tcase, clone_without_copy_data);
	tcase_add_test(tcase, clone_that_fails);
	tcase_add_loop_test(tcase, raw_form, 0, n);
	tcase_add_test(tcase, raw_form_of_others);
	tcase_add_test(tcase, registry_starts_empty_but_for_the_cpu);
	tcase_add_test(tcase, registry_keeps_the_higher_priority);
	tcase_add_test(tcase, registry_refuses_nonsense);
	tcase_add_test(tcase, registry_serves_storages);
	tcase_add_loop_test(tcase, observers_see_both_ends, 0, n);
	tcase_add_test(tcase, observers_see_storages);
	tcase_add_test(tcase, observers_hear_of_failures);
	tcase_add_test(tcase, observers_may_call_the_library);
	return run_suite(suite);
}

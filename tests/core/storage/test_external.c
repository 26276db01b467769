/* SPDX-License-Identifier: MIT */
/*
 * Memory from elsewhere: external storages, swapped data, addresses found again
 *
 * Whatever owns the bytes is disposed of exactly once, by the last who has a
 * claim to them, and not at all by a call that failed.
 */
#include "tests/support/counting.h"
#include "tests/support/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct cow_device cpu = { COW_DEVICE_CPU, 0 };

struct owner {
	unsigned char *bytes;
	size_t count;
	int runs;
};

static void free_bytes(void *context)
{
	struct owner *owner = context;

	owner->runs++;
	free(owner->bytes);
}

static void unmap_bytes(void *context)
{
	struct owner *owner = context;

	owner->runs++;
	munmap(owner->bytes, owner->count);
}

static struct cow_data_ptr from_malloc(struct owner *owner, size_t bytes,
                                       uint64_t seed)
{
	owner->bytes = malloc(bytes);
	ck_assert_ptr_nonnull(owner->bytes);
	owner->count = bytes;
	owner->runs = 0;
	fill(owner->bytes, bytes, seed);
	return cow_data_ptr_make(owner->bytes, owner, free_bytes, cpu);
}

static struct cow_storage *new_external(struct cow_data_ptr *ptr, size_t bytes)
{
	struct cow_storage *storage = NULL;

	ok(cow_storage_new_external(ptr, bytes, NULL, &storage));
	ck_assert_ptr_null(ptr->data);
	ck_assert_ptr_null(ptr->context);
	return storage;
}

START_TEST(external_is_used_in_place)
{
	struct owner owner;
	struct cow_data_ptr ptr = from_malloc(&owner, 100000, 1);
	struct cow_storage *storage = new_external(&ptr, 100000);

	ck_assert_ptr_eq(data(storage), owner.bytes);
	ck_assert_ptr_eq(mut(storage), owner.bytes);
	ck_assert_ptr_eq(expose(storage), owner.bytes);
	ck_assert_uint_eq(cow_storage_bytes(storage), 100000);
	ck_assert_uint_eq(state_of(storage), COW_STATE_FOREIGN);
	ck_pattern(data(storage), 100000, 1);
	cow_storage_ref(storage);
	cow_storage_unref(storage);
	ck_assert_int_eq(owner.runs, 0);
	cow_storage_unref(storage);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(external_with_any_deleter)
{
	static unsigned char bytes[5000];
	struct owner owner = { .count = 8 * PAGE };
	struct cow_storage *storage;
	struct cow_data_ptr ptr;

	owner.bytes = mmap(NULL, owner.count, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ptr = cow_data_ptr_make(owner.bytes, &owner, unmap_bytes, cpu);
	storage = new_external(&ptr, owner.count);
	fill(mut(storage), owner.count, 2);
	cow_storage_unref(storage);
	ck_assert_int_eq(owner.runs, 1);

	/* Nobody's, or with nothing to dispose of. */
	ptr = cow_data_ptr_make(bytes, NULL, NULL, cpu);
	storage = new_external(&ptr, sizeof(bytes));
	ck_assert_ptr_eq(data(storage), bytes);
	cow_storage_unref(storage);
	ptr = cow_data_ptr_make(bytes, bytes, NULL, cpu);
	storage = new_external(&ptr, sizeof(bytes));
	cow_storage_unref(storage);

	/* A context without data still wants its deleter. */
	owner = (struct owner){ 0 };
	ptr = cow_data_ptr_make(NULL, &owner, free_bytes, cpu);
	storage = new_external(&ptr, 0);
	ck_assert_ptr_null(data(storage));
	cow_storage_unref(storage);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(external_refused)
{
	struct cow_storage_options options = { .size = sizeof(options) };
	struct cow_storage *storage = (struct cow_storage *)&storage;
	struct owner owner;
	struct cow_data_ptr ptr = from_malloc(&owner, 1000, 3);

	options.flags = (uint32_t)1 << 30;
	fails(-EINVAL, cow_storage_new_external(&ptr, 1000, &options,
	                                        &storage));
	ck_assert_ptr_eq(storage, (struct cow_storage *)&storage);
	ck_assert_ptr_eq(ptr.data, owner.bytes);
	ck_assert_ptr_eq(ptr.context, &owner);
	ck_assert_int_eq(owner.runs, 0);
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

/* PyTorch refuses these clones. Here they are copies, and say so. */
START_TEST(external_clones_are_copies)
{
	static const size_t sizes[] = { 1, 1000, 100000, 3 * MIB };
	size_t bytes = sizes[_i];
	struct cow_stats before = stats_now(), after;
	struct owner owner;
	struct cow_data_ptr ptr = from_malloc(&owner, bytes, 4);
	struct cow_storage *a = new_external(&ptr, bytes), *b = lazy(a), *c;

	after = stats_now();
	ck_assert_uint_eq(after.clones_eager, before.clones_eager + 1);
	ck_assert_uint_eq(after.fallbacks[COW_FALLBACK_FOREIGN],
	                  before.fallbacks[COW_FALLBACK_FOREIGN] + 1);
	ck_assert_uint_eq(after.fallback_bytes[COW_FALLBACK_FOREIGN],
	                  before.fallback_bytes[COW_FALLBACK_FOREIGN] +
	                          after.bytes_copied - before.bytes_copied);
	ck_assert_ptr_ne(data(a), data(b));
	memset(mut(a), 0, bytes);
	ck_pattern(data(b), bytes, 4);
	cow_storage_unref(a);
	ck_assert_int_eq(owner.runs, 1);
	c = lazy(b);
	fill(mut(b), bytes, 5);
	ck_pattern(data(c), bytes, 4);
	cow_storage_unref(b);
	cow_storage_unref(c);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(external_resizes_only_with_an_allocator)
{
	struct cow_storage_options options = { .size = sizeof(options) };
	struct cow_storage *storage;
	struct owner owner;
	struct cow_data_ptr ptr = from_malloc(&owner, 1000, 6);

	storage = new_external(&ptr, 1000);
	fails(-EPERM, cow_storage_resize(storage, 2000));
	ck_assert_uint_eq(cow_storage_bytes(storage), 1000);
	ck_pattern(data(storage), 1000, 6);
	cow_storage_unref(storage);

	ptr = from_malloc(&owner, 1000, 7);
	options.allocator = cow_allocator_default();
	ok(cow_storage_new_external(&ptr, 1000, &options, &storage));
	ck_assert_ptr_eq(data(storage), owner.bytes);
	ok(cow_storage_resize(storage, 200000));
	ck_assert_int_eq(owner.runs, 1);
	ck_pattern(data(storage), 1000, 7);
	fill(mut(storage), 200000, 8);
	cow_storage_unref(storage);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

/* ---- Swap ---------------------------------------------------------------- */

START_TEST(swap_in_foreign_memory)
{
	static const size_t sizes[] = { 100, PAGE, 300000, 4 * MIB };
	size_t bytes = sizes[_i];
	struct cow_storage *storage = new_filled(bytes, 0, 9);
	const void *old = data(storage);
	struct owner owner;
	struct cow_data_ptr ptr = from_malloc(&owner, 5000, 10);

	ok(cow_storage_swap_data_ptr(storage, &ptr, 5000));
	ck_assert_ptr_eq(data(storage), owner.bytes);
	ck_assert_uint_eq(cow_storage_bytes(storage), 5000);
	ck_pattern(data(storage), 5000, 10);
	ck_assert_ptr_eq(ptr.data, old);
	ck_pattern(ptr.data, bytes, 9);
	fill(ptr.data, bytes, 11);
	fails(-EPERM, cow_storage_resize(storage, 6000));
	cow_storage_unref(storage);
	ck_assert_int_eq(owner.runs, 1);
	ck_pattern(ptr.data, bytes, 11);
	cow_data_ptr_clear(&ptr);
}
END_TEST

/* With memory of its own allocator it stays resizable. */
START_TEST(swap_in_own_memory)
{
	struct cow_storage *storage = new_filled(1000, 0, 12);
	struct cow_data_ptr ptr;

	ok(cow_allocator_allocate(cow_allocator_default(), 70000, &ptr));
	fill(ptr.data, 70000, 13);
	ok(cow_storage_swap_data_ptr(storage, &ptr, 70000));
	ck_pattern(data(storage), 70000, 13);
	ck_pattern(ptr.data, 1000, 12);
	cow_data_ptr_clear(&ptr);
	ok(cow_storage_resize(storage, 100000));
	ck_pattern(data(storage), 70000, 13);
	cow_storage_unref(storage);
}
END_TEST

/* The old data comes back writable, so nobody else may be reading it. */
START_TEST(swap_materializes)
{
	static const size_t sizes[] = { 100, PAGE, 300000, 4 * MIB };
	size_t bytes = sizes[_i / 3];
	struct cow_storage *a = new_filled(bytes, 0, 14), *b = lazy(a);
	struct owner owner;
	struct cow_data_ptr ptr = from_malloc(&owner, 10, 15);

	if (_i % 3 == 1)
		mut_range(b, 0, 1, COW_WRITE_BY_PAGE);
	if (_i % 3 == 2)
		expose(b);
	ok(cow_storage_swap_data_ptr(b, &ptr, 10));
	ck_pattern(ptr.data, bytes, 14);
	memset(ptr.data, 0, bytes);
	ck_pattern(data(a), bytes, 14);
	fill(mut(a), bytes, 16);
	ck_bytes(ptr.data, bytes, 0);
	cow_storage_unref(a);
	ck_bytes(ptr.data, bytes, 0);
	cow_data_ptr_clear(&ptr);
	ck_pattern(data(b), 10, 15);
	cow_storage_unref(b);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(swap_with_nothing)
{
	struct cow_storage *storage = new_filled(100000, 0, 17);
	struct cow_data_ptr ptr = cow_data_ptr_make(NULL, NULL, NULL, cpu);

	ok(cow_storage_swap_data_ptr(storage, &ptr, 0));
	ck_assert_uint_eq(cow_storage_bytes(storage), 0);
	ck_assert_ptr_null(data(storage));
	ck_pattern(ptr.data, 100000, 17);
	ok(cow_storage_swap_data_ptr(storage, &ptr, 100000));
	ck_assert_ptr_null(ptr.data);
	ck_pattern(data(storage), 100000, 17);
	fill(mut(storage), 100000, 18);
	cow_data_ptr_clear(&ptr);
	cow_storage_unref(storage);
}
END_TEST

/* ---- From an address ----------------------------------------------------- */

START_TEST(found_by_address)
{
	static const size_t sizes[] = { 1, 100, PAGE, 65536, 3 * MIB + 1 };
	size_t bytes = sizes[_i], offset = 77, at[3] = { 0, bytes / 2,
		                                         bytes - 1 };
	struct cow_storage *storage =
		new_filled(bytes, COW_STORAGE_TRANSPARENT, 19);
	struct cow_storage *found = NULL;
	int i;

	for (i = 0; i < 3; i++) {
		ok(cow_storage_from_ptr(data(storage) + at[i], &offset,
		                        &found));
		ck_assert_ptr_eq(found, storage);
		ck_assert_uint_eq(offset, at[i]);
		ck_assert_uint_eq(refs_of(storage), 2);
		cow_storage_unref(found);
	}
	/* Behind the last byte is not inside. */
	fails(-ENOENT, cow_storage_from_ptr(data(storage) + bytes, NULL,
	                                    &found));
	ok(cow_storage_from_ptr(data(storage), NULL, &found));
	cow_storage_unref(storage);
	ck_pattern(data(found), bytes, 19);
	cow_storage_unref(found);
}
END_TEST

START_TEST(not_found_by_address)
{
	struct cow_storage *found = (struct cow_storage *)&found;
	struct cow_storage *tracked = new_filled(MIB, 0, 20);
	struct cow_storage *transparent =
		new_filled(3 * MIB, COW_STORAGE_TRANSPARENT, 20);
	const unsigned char *gone = data(transparent);
	size_t offset = 55;
	void *heap = malloc(100);
	uintptr_t start, end;

	fails(-ENOENT, cow_storage_from_ptr(heap, &offset, &found));
	fails(-ENOENT, cow_storage_from_ptr(&heap, &offset, &found));
	fails(-ENOENT, cow_storage_from_ptr(data(tracked), &offset, &found));
	fails(-ENOENT, cow_storage_from_ptr((void *)1, &offset, &found));
	cow_window(&start, &end);
	fails(-ENOENT, cow_storage_from_ptr((void *)(end - 1), &offset,
	                                    &found));
	cow_storage_unref(transparent);
	fails(-ENOENT, cow_storage_from_ptr(gone, &offset, &found));
	fails(-ENOENT, cow_storage_from_ptr(gone + MIB, &offset, &found));
	ck_assert_uint_eq(offset, 55);
	ck_assert_ptr_eq(found, (struct cow_storage *)&found);
	cow_storage_unref(tracked);
	free(heap);
}
END_TEST

/* Exposed storages are transparent ones, and so are found. */
START_TEST(exposed_is_found)
{
	struct cow_storage *a = new_filled(MIB, 0, 21), *b = lazy(a), *found;
	unsigned char *p = expose(b);

	ok(cow_storage_from_ptr(p + 5, NULL, &found));
	ck_assert_ptr_eq(found, b);
	cow_storage_unref(found);
	fails(-ENOENT, cow_storage_from_ptr(data(a), NULL, &found));
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("external");
	TCase *tcase = add_case(suite, "external");

	tcase_add_test(tcase, external_is_used_in_place);
	tcase_add_test(tcase, external_with_any_deleter);
	tcase_add_test(tcase, external_refused);
	tcase_add_loop_test(tcase, external_clones_are_copies, 0, 4);
	tcase_add_test(tcase, external_resizes_only_with_an_allocator);
	tcase_add_loop_test(tcase, swap_in_foreign_memory, 0, 4);
	tcase_add_test(tcase, swap_in_own_memory);
	tcase_add_loop_test(tcase, swap_materializes, 0, 12);
	tcase_add_test(tcase, swap_with_nothing);
	tcase_add_loop_test(tcase, found_by_address, 0, 5);
	tcase_add_test(tcase, not_found_by_address);
	tcase_add_test(tcase, exposed_is_found);
	return run_suite(suite);
}

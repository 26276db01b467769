/* SPDX-License-Identifier: MIT */
/*
 * Resize: allocate, copy, free, behind the back of nobody
 *
 * A clone keeps the bytes of its own time, whatever its sibling is resized to.
 * New bytes are zero where the storage was made so, however often it shrank
 * and grew.
 */
#include "tests/support/counting.h"
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>

static const size_t sizes[] = {
	0,      1,         100,         PAGE,        PAGE + 1, 65536,
	300000, MIB + 100, 2 * MIB,     5 * MIB + 1, 9 * MIB,
};
enum { SIZES = COUNT(sizes) };

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

START_TEST(every_pair_of_sizes)
{
	size_t from = sizes[_i / SIZES], to = sizes[_i % SIZES];
	struct cow_storage *storage = new_filled(from, 0, 1);

	ok(cow_storage_resize(storage, to));
	ck_assert_uint_eq(cow_storage_bytes(storage), to);
	ck_pattern(data(storage), least(from, to), 1);
	fill(mut(storage), to, 2);
	ck_pattern(data(storage), to, 2);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(every_pair_of_sizes_zero)
{
	size_t from = sizes[_i / SIZES], to = sizes[_i % SIZES];
	struct cow_storage *storage;

	/* Something for the new bytes to show, if they could. */
	storage = new_storage(9 * MIB, 0);
	memset(mut(storage), 0xcc, 9 * MIB);
	cow_storage_unref(storage);

	storage = new_storage(from, COW_STORAGE_ZERO);
	fill(mut(storage), from, 3);
	ok(cow_storage_resize(storage, to));
	ck_pattern(data(storage), least(from, to), 3);
	if (to > from)
		ck_bytes(data(storage) + from, to - from, 0);
	/* Down and up again: what was cut off does not come back. */
	ok(cow_storage_resize(storage, to / 2));
	ok(cow_storage_resize(storage, to));
	ck_pattern(data(storage), least(from, to / 2), 3);
	if (to / 2 > from)
		ck_bytes(data(storage) + from, to / 2 - from, 0);
	ck_bytes(data(storage) + to / 2, to - to / 2, 0);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(in_small_steps)
{
	struct cow_storage *storage = new_storage(0, COW_STORAGE_ZERO);
	size_t bytes = 0, step;
	unsigned char *p;

	for (step = 1; bytes < 2 * MIB; step += step / 3 + 1) {
		ok(cow_storage_resize(storage, bytes + step));
		ck_bytes(data(storage), bytes, 0xab);
		ck_bytes(data(storage) + bytes, step, 0);
		p = mut(storage);
		memset(p + bytes, 0xab, step);
		bytes += step;
	}
	cow_storage_unref(storage);
}
END_TEST

/* Lazy siblings, views, and what they were resized from. */
START_TEST(clones_are_not_affected)
{
	static const size_t at[] = { 100, PAGE, 300000, 2 * MIB, 5 * MIB };
	size_t bytes = at[_i / 3];
	size_t to = _i % 3 == 0 ? bytes / 3 : _i % 3 == 1 ? bytes : 2 * bytes;
	struct cow_storage *a = new_filled(bytes, 0, 4);
	struct cow_storage *b = lazy(a), *c = lazy(b), *d = lazy(c);

	mut_range(d, 0, 1, COW_WRITE_BY_PAGE)[0] ^= 1;
	ok(cow_storage_resize(a, to));
	ck_pattern(data(a), least(bytes, to), 4);
	ck_pattern(data(b), bytes, 4);
	fill(mut(a), to, 5);
	ck_pattern(data(b), bytes, 4);
	ok(cow_storage_resize(d, to));
	mut(d)[0] ^= 1;
	ck_pattern(data(d), least(bytes, to), 4);
	ck_pattern(data(c), bytes, 4);
	cow_storage_unref(b);
	ok(cow_storage_resize(c, to));
	ck_pattern(data(c), least(bytes, to), 4);
	ck_pattern(data(a), to, 5);
	cow_storage_unref(a);
	cow_storage_unref(c);
	cow_storage_unref(d);
}
END_TEST

START_TEST(transparent_alone)
{
	struct cow_storage *storage =
		new_filled(MIB, COW_STORAGE_TRANSPARENT, 6);
	struct cow_storage *found;
	unsigned char *p;

	ok(cow_storage_resize(storage, 3 * MIB));
	ck_pattern(data(storage), MIB, 6);
	ck_assert_uint_ne(info_of(storage).flags & COW_STORAGE_TRANSPARENT, 0);
	p = expose(storage);
	fill(p, 3 * MIB, 7);
	ok(cow_storage_from_ptr(p, NULL, &found));
	ck_assert_ptr_eq(found, storage);
	cow_storage_unref(found);
	cow_storage_unref(storage);
}
END_TEST

/* Its address is with somebody else, who may be using it now. */
START_TEST(transparent_held_by_another)
{
	struct cow_storage *storage =
		new_filled(MIB, COW_STORAGE_TRANSPARENT, 8);
	const void *p = data(storage);

	cow_storage_ref(storage);
	fails(-EBUSY, cow_storage_resize(storage, 3 * MIB));
	fails(-EBUSY, cow_storage_resize(storage, 100));
	ck_assert_uint_eq(cow_storage_bytes(storage), MIB);
	ck_assert_ptr_eq(data(storage), p);
	ck_pattern(p, MIB, 8);
	cow_storage_unref(storage);
	ok(cow_storage_resize(storage, 3 * MIB));
	ck_pattern(data(storage), MIB, 8);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(block_held_by_its_owner)
{
	unsigned char *block = new_block(MIB, 0);
	struct cow_storage *storage;

	fill(block, MIB, 9);
	ok(cow_storage_from_ptr(block, NULL, &storage));
	fails(-EBUSY, cow_storage_resize(storage, 3 * MIB));
	ck_pattern(block, MIB, 9);
	cow_storage_unref(storage);
	cow_block_free(block);
}
END_TEST

/* Through the storage's own allocator: one allocation, one copy, one free. */
START_TEST(foreign_allocator)
{
	struct cow_storage_options options = { .size = sizeof(options) };
	struct cow_storage *storage, *clone;
	struct counting device;

	counting_make(&device);
	options.allocator = &device.base;
	ok(cow_storage_new(1000, &options, &storage));
	ck_assert_int_eq(cow_storage_device(storage).type, COW_DEVICE_PRIVATE);
	ck_assert_int_eq(cow_storage_device(storage).index, 2);
	fill(mut(storage), 1000, 10);
	ok(cow_storage_resize(storage, 2000));
	ck_assert_int_eq(device.allocations, 2);
	ck_assert_int_eq(device.copies, 1);
	ck_assert_int_eq(counting_live(&device), 1);
	ck_pattern(data(storage), 1000, 10);

	device.fail = -ENOMEM;
	fails(-ENOMEM, cow_storage_resize(storage, 3000));
	device.fail = 0;
	device.fail_copy = -EIO;
	fails(-EIO, cow_storage_resize(storage, 3000));
	device.fail_copy = 0;
	ck_assert_uint_eq(cow_storage_bytes(storage), 2000);
	ck_pattern(data(storage), 1000, 10);
	ck_assert_int_eq(counting_live(&device), 1);

	clone = lazy(storage);
	memset(mut(storage), 0, 2000);
	ck_pattern(data(clone), 1000, 10);
	ck_assert_int_eq(device.copies, 2);
	cow_storage_unref(storage);
	ok(cow_storage_resize(clone, 5000));
	ck_pattern(data(clone), 1000, 10);
	cow_storage_unref(clone);
	ck_assert_int_eq(counting_live(&device), 0);
}
END_TEST

START_TEST(to_and_from_nothing)
{
	struct cow_storage *storage = new_filled(MIB, 0, 11);
	int i;

	for (i = 0; i < 20; i++) {
		ok(cow_storage_resize(storage, 0));
		ck_assert_ptr_null(data(storage));
		ok(cow_storage_resize(storage, MIB << i % 3));
		fill(mut(storage), MIB << i % 3, 12);
		ck_pattern(data(storage), MIB << i % 3, 12);
	}
	cow_storage_unref(storage);
}
END_TEST

/* Nobody sees it but the storage: the bytes did not move. */
START_TEST(grows_in_place)
{
	struct cow_storage *storage = new_filled(2 * MIB, 0, 13), *clone;
	struct cow_stats before, after;
	const void *at;
	int moves = 0;

	before.size = after.size = sizeof(before);
	ok(cow_storage_resize(storage, 4 * MIB)); /* has room from now on */
	ok(cow_stats_get(&before));
	for (size_t bytes = 4 * MIB; bytes < 12 * MIB;) {
		at = data(storage);
		bytes += MIB + 12345;
		ok(cow_storage_resize(storage, bytes));
		moves += data(storage) != at;
		ck_assert_uint_eq(cow_storage_bytes(storage), bytes);
		ck_pattern(data(storage), 2 * MIB, 13);
		fill(mut(storage) + 2 * MIB, bytes - 2 * MIB, 14);
		ck_pattern(data(storage) + 2 * MIB, bytes - 2 * MIB, 14);
	}
	ok(cow_stats_get(&after));
	ck_assert_int_eq(moves, 0);
	ck_assert_uint_eq(after.bytes_copied, before.bytes_copied);
	/* A lazy sibling: it moves, and the sibling stays. */
	clone = lazy(storage);
	at = data(storage);
	ok(cow_storage_resize(storage, 16 * MIB));
	ck_assert_ptr_ne(data(storage), at);
	ck_assert_ptr_eq(data(clone), at);
	memset(mut(storage), 0, 16 * MIB);
	ck_pattern(data(clone), 2 * MIB, 13);
	cow_storage_unref(clone);
	cow_storage_unref(storage);
}
END_TEST

/* Frozen by a fork, or read by a view of its pages: those keep what they see. */
START_TEST(frozen_ones_move)
{
	struct cow_storage *storage = new_filled(2 * MIB, 0, 15), *view;

	ok(cow_storage_resize(storage, 4 * MIB));
	fill(mut(storage), 4 * MIB, 15);
	view = lazy(storage);
	mut_range(view, 5, 1, COW_WRITE_BY_PAGE)[5] ^= 1;
	ok(cow_storage_resize(storage, 5 * MIB));
	memset(mut(storage), 0, 5 * MIB);
	mut(view)[5] ^= 1;
	ck_pattern(data(view), 4 * MIB, 15);
	ok(cow_storage_resize(view, 6 * MIB)); /* a view itself */
	ck_pattern(data(view), 4 * MIB, 15);
	cow_storage_unref(view);
	cow_storage_unref(storage);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("resize");
	TCase *tcase = add_case(suite, "resize");

	tcase_add_loop_test(tcase, every_pair_of_sizes, 0, SIZES * SIZES);
	tcase_add_loop_test(tcase, every_pair_of_sizes_zero, 0, SIZES * SIZES);
	tcase_add_test(tcase, in_small_steps);
	tcase_add_loop_test(tcase, clones_are_not_affected, 0, 15);
	tcase_add_test(tcase, transparent_alone);
	tcase_add_test(tcase, transparent_held_by_another);
	tcase_add_test(tcase, block_held_by_its_owner);
	tcase_add_test(tcase, foreign_allocator);
	tcase_add_test(tcase, to_and_from_nothing);
	tcase_add_test(tcase, grows_in_place);
	tcase_add_test(tcase, frozen_ones_move);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Storages: sizes from nothing to more than memory, zeroes, references, options
 *
 * The sizes are those at which an engine of pages, huge pages and packed small
 * storages changes its ways, and their neighbours.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const size_t sizes[] = {
	1,           63,          64,           65,          1000,
	PAGE - 1,    PAGE,        PAGE + 1,     3 * PAGE + 7, 65535,
	65536,       65537,       131073,       400 * KIB,   MIB - 1,
	MIB,         2 * MIB - 1, 2 * MIB,      2 * MIB + 1, 5 * MIB + PAGE,
	8 * MIB,     32 * MIB + 5,
};
enum { SIZES = COUNT(sizes) };

START_TEST(every_size)
{
	size_t bytes = sizes[_i];
	struct cow_storage *storage = new_storage(bytes, 0);
	struct cow_storage_info info;

	ck_assert_uint_eq(cow_storage_bytes(storage), bytes);
	ck_assert_int_eq(cow_storage_device(storage).type, COW_DEVICE_CPU);
	ck_assert_int_eq(cow_storage_device(storage).index, 0);
	ck_assert_uint_eq(refs_of(storage), 1);
	ck_assert_uint_eq((uintptr_t)data(storage) % 64, 0);
	if (bytes >= PAGE)
		ck_assert_uint_eq((uintptr_t)data(storage) % PAGE, 0);
	ck_assert_ptr_eq(mut(storage), data(storage));
	fill(mut(storage), bytes, 1);
	ck_pattern(data(storage), bytes, 1);
	info = info_of(storage);
	ck_assert_uint_eq(info.state, COW_STATE_OWNED);
	ck_assert_uint_eq(info.flags, 0);
	ck_assert_uint_eq(info.sharers, 1);
	ck_assert_uint_eq(info.frozen, 0);
	ck_assert_ptr_null(cow_storage_unref(storage));
}
END_TEST

START_TEST(no_bytes_at_all)
{
	static const uint32_t flags[] = {
		0, COW_STORAGE_ZERO, COW_STORAGE_TRANSPARENT,
		COW_STORAGE_STRICT,
	};
	struct cow_storage *storage = new_storage(0, flags[_i]), *clone;
	void *p = &p;

	ck_assert_uint_eq(cow_storage_bytes(storage), 0);
	ck_assert_ptr_null(data(storage));
	ok(cow_storage_data_mut(storage, &p));
	ck_assert_ptr_null(p);
	ok(cow_storage_data_mut_range(storage, 0, 0, COW_WRITE_ALL, &p));
	clone = lazy(storage);
	ck_assert_uint_eq(cow_storage_bytes(clone), 0);
	ck_assert_ptr_null(data(clone));
	cow_storage_unref(clone);
	ok(cow_storage_clone(storage, &clone));
	cow_storage_unref(clone);
	ok(cow_storage_resize(storage, 0));
	ok(cow_storage_resize(storage, 10000));
	fill(mut(storage), 10000, 2);
	ok(cow_storage_resize(storage, 0));
	ck_assert_ptr_null(data(storage));
	cow_storage_unref(storage);
}
END_TEST

/* Far more than the machine has; only what is touched costs anything. */
START_TEST(sparse)
{
	static const size_t large[] = { 1 * GIB, 16 * GIB, 64 * GIB };
	size_t bytes = large[_i / 2], step = bytes / 16, at;
	uint32_t flags = _i % 2 ? COW_STORAGE_TRANSPARENT : 0;
	struct cow_storage *a = new_storage(bytes, flags | COW_STORAGE_ZERO);
	struct cow_storage *b;
	unsigned char *p = mut_range(a, 0, bytes, COW_WRITE_SPARSE);

	ck_assert_uint_eq(cow_storage_bytes(a), bytes);
	p[0] = 1;
	for (at = step; at < bytes; at += step)
		p[at] = (unsigned char)(at / step);
	p[bytes - 1] = 99;
	b = lazy(a);
	p = mut_range(a, 5 * step, 2, COW_WRITE_SPARSE);
	p[5 * step + 1] = 55;
	ck_assert_uint_eq(data(b)[5 * step + 1], 0);
	ck_assert_uint_eq(data(a)[5 * step + 1], 55);
	for (at = step; at < bytes; at += step) {
		ck_assert_uint_eq(data(b)[at], at / step);
		ck_assert_uint_eq(data(a)[at], at / step);
		ck_assert_uint_eq(data(b)[at - 2], 0);
	}
	ck_assert_uint_eq(data(b)[bytes - 1], 99);
	cow_storage_unref(a);
	ck_assert_uint_eq(data(b)[bytes - 1], 99);
	cow_storage_unref(b);
}
END_TEST

/* ---- Zeroes -------------------------------------------------------------- */

START_TEST(zero_when_fresh)
{
	size_t bytes = sizes[_i];
	struct cow_storage *storage = new_storage(bytes, COW_STORAGE_ZERO);

	ck_bytes(data(storage), bytes, 0);
	ck_bytes(mut(storage), bytes, 0);
	cow_storage_unref(storage);
}
END_TEST

/* What others left behind in recycled memory never shows through. */
START_TEST(zero_when_recycled)
{
	size_t bytes = sizes[_i], other = sizes[(_i + 7) % SIZES];
	struct cow_storage *storage;
	uint32_t transparent;
	int round;

	for (round = 0; round < 6; round++) {
		transparent = round % 2 ? COW_STORAGE_TRANSPARENT : 0;
		storage = new_storage(round < 3 ? bytes : other, transparent);
		memset(mut(storage), 0xa5, cow_storage_bytes(storage));
		cow_storage_unref(storage);
		transparent = round % 3 ? COW_STORAGE_TRANSPARENT : 0;
		storage = new_storage(bytes, COW_STORAGE_ZERO | transparent);
		ck_bytes(data(storage), bytes, 0);
		memset(mut(storage), 0x5a, bytes);
		cow_storage_unref(storage);
	}
}
END_TEST

/* The same where recycled memory was a view, whose pages are not the file's. */
START_TEST(zero_when_recycled_from_a_view)
{
	size_t bytes = 4 * MIB;
	struct cow_storage *a, *b, *zero[3];
	int round, i;

	for (round = 0; round < 4; round++) {
		a = new_storage(bytes, 0);
		memset(mut(a), 0x11, bytes);
		b = lazy(a);
		memset(mut_range(b, 0, MIB, COW_WRITE_BY_PAGE), 0x22, MIB);
		cow_storage_unref(round % 2 ? a : b);
		cow_storage_unref(round % 2 ? b : a);
		for (i = 0; i < 3; i++) {
			zero[i] = new_storage(bytes - (size_t)i,
			                      COW_STORAGE_ZERO);
			ck_bytes(data(zero[i]), bytes - (size_t)i, 0);
		}
		for (i = 0; i < 3; i++)
			cow_storage_unref(zero[i]);
	}
}
END_TEST

/* Between a storage's end and its page's there is nothing to be seen. */
START_TEST(zero_to_the_end_of_the_page)
{
	const size_t whole = 16 * PAGE;
	size_t tail;
	struct cow_storage *storage;

	for (tail = 1; tail < PAGE; tail += 511) {
		storage = new_storage(whole, 0);
		memset(mut(storage), 0xee, whole);
		cow_storage_unref(storage);
		storage = new_storage(whole - PAGE + tail, COW_STORAGE_ZERO);
		ck_bytes(data(storage), whole - PAGE + tail, 0);
		memset(mut(storage), 0xdd, whole - PAGE + tail);
		ok(cow_storage_resize(storage, whole));
		ck_bytes(data(storage), whole - PAGE + tail, 0xdd);
		ck_bytes(data(storage) + whole - PAGE + tail, PAGE - tail, 0);
		cow_storage_unref(storage);
	}
}
END_TEST

/* ---- Strict -------------------------------------------------------------- */

static size_t resident_pages(const void *p, size_t bytes)
{
	static unsigned char map[64 * MIB / PAGE];
	size_t i, pages = (bytes + PAGE - 1) / PAGE, resident = 0;

	ck_assert_int_eq(mincore((void *)(uintptr_t)p, bytes, map), 0);
	for (i = 0; i < pages; i++)
		resident += map[i] & 1;
	return resident;
}

START_TEST(strict_commits_now)
{
	size_t bytes = sizes[_i];
	struct cow_storage *storage =
		new_storage(bytes, COW_STORAGE_STRICT | COW_STORAGE_ZERO);

	if (bytes >= PAGE)
		ck_assert_uint_eq(resident_pages(data(storage), bytes),
		                  (bytes + PAGE - 1) / PAGE);
	ck_bytes(data(storage), bytes, 0);
	fill(mut(storage), bytes, 3);
	ck_pattern(data(storage), bytes, 3);
	ck_assert_uint_ne(info_of(storage).flags & COW_STORAGE_STRICT, 0);
	cow_storage_unref(storage);
}
END_TEST

/* ---- References and options ---------------------------------------------- */

START_TEST(references_are_counted)
{
	struct cow_storage *storage = new_filled(5000, 0, 4);
	int i;

	for (i = 1; i <= 1000; i++) {
		ck_assert_ptr_eq(cow_storage_ref(storage), storage);
		ck_assert_uint_eq(refs_of(storage), (uint64_t)i + 1);
	}
	for (i = 1000; i >= 1; i--) {
		ck_assert_ptr_null(cow_storage_unref(storage));
		ck_assert_uint_eq(refs_of(storage), (uint64_t)i);
		ck_pattern(data(storage), 5000, 4);
	}
	cow_storage_unref(storage);
	ck_assert_ptr_null(cow_storage_unref(NULL));
}
END_TEST

/* A program built with a later header may run with this library, as long as it
 * asks for nothing that this library does not know. */
struct longer_options {
	struct cow_storage_options options;
	uint64_t news[4];
};

START_TEST(longer_options)
{
	struct cow_storage *storage = (struct cow_storage *)&storage;
	struct longer_options longer;

	memset(&longer, 0, sizeof(longer));
	longer.options.size = sizeof(longer);
	longer.news[3] = 1;
	fails(-E2BIG, cow_storage_new(100, &longer.options, &storage));
	ck_assert_ptr_eq(storage, (struct cow_storage *)&storage);
	longer.news[3] = 0;
	ok(cow_storage_new(100, &longer.options, &storage));
	fill(mut(storage), 100, 5);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(options_refused)
{
	struct cow_storage *storage = (struct cow_storage *)&storage;
	struct cow_storage_options options = { .size = sizeof(options) };

	options.flags = (uint32_t)1 << 30;
	fails(-EINVAL, cow_storage_new(100, &options, &storage));
	options.flags = COW_STORAGE_ZERO | (uint32_t)1 << 4;
	fails(-EINVAL, cow_storage_new(100, &options, &storage));
	options.flags = 0;
	options.reserved = 1;
	fails(-EINVAL, cow_storage_new(100, &options, &storage));
	options.reserved = 0;
	options.size = 0;
	fails(-EINVAL, cow_storage_new(100, &options, &storage));
	ck_assert_ptr_eq(storage, (struct cow_storage *)&storage);
}
END_TEST

START_TEST(absurd_sizes)
{
	static const size_t absurd[] = {
		SIZE_MAX,     SIZE_MAX - 1,    SIZE_MAX - PAGE + 1,
		SIZE_MAX / 2, SIZE_MAX / 2 + 1, (size_t)1 << 60,
		(size_t)1 << 50,
	};
	struct cow_storage *storage = (struct cow_storage *)&storage, *fine;
	struct cow_storage_options options = { .size = sizeof(options) };
	uint32_t flags;
	int code;

	for (flags = 0; flags < 8; flags++) {
		options.flags = flags;
		code = cow_storage_new(absurd[_i], &options, &storage);
		ck_assert_msg(code == -EINVAL || code == -ENOMEM, "%d", code);
		ck_assert_str_ne(cow_last_error(), "");
		ck_assert_ptr_eq(storage, (struct cow_storage *)&storage);
	}
	fine = new_filled(100, 0, 6);
	code = cow_storage_resize(fine, absurd[_i]);
	ck_assert_msg(code == -EINVAL || code == -ENOMEM, "%d", code);
	ck_assert_uint_eq(cow_storage_bytes(fine), 100);
	ck_pattern(data(fine), 100, 6);
	fill(mut(fine), 100, 7);
	cow_storage_unref(fine);
}
END_TEST

START_TEST(info_of_a_shorter_struct)
{
	struct cow_storage *storage = new_storage(100, COW_STORAGE_ZERO);
	struct cow_storage_info info;

	memset(&info, 0x77, sizeof(info));
	info.size = offsetof(struct cow_storage_info, sharers);
	ok(cow_storage_get_info(storage, &info));
	ck_assert_uint_eq(info.state, COW_STATE_OWNED);
	ck_assert_uint_eq(info.flags, COW_STORAGE_ZERO);
	ck_bytes(&info.sharers, sizeof(info) - info.size, 0x77);
	cow_storage_unref(storage);
}
END_TEST

/* Many of them, small and large, freed in another order. */
START_TEST(many_at_once)
{
	enum { MANY = 3000 };
	static struct cow_storage *all[MANY];
	struct prng prng = prng_make((uint64_t)_i);
	size_t i, j, bytes;
	struct cow_storage *swapped;

	for (i = 0; i < MANY; i++) {
		bytes = prng_below(&prng, 100) < 97
		                ? 1 + prng_below(&prng, 20000)
		                : 1 + prng_below(&prng, 2 * MIB);
		all[i] = new_filled(bytes, 0, i);
	}
	for (i = MANY - 1; i > 0; i--) {
		j = prng_below(&prng, i + 1);
		swapped = all[i];
		all[i] = all[j];
		all[j] = swapped;
	}
	for (i = 0; i < MANY / 2; i++)
		cow_storage_unref(all[i]);
	for (i = 0; i < MANY / 2; i++)
		all[i] = new_storage(1 + prng_below(&prng, 30000),
		                     COW_STORAGE_ZERO);
	for (i = 0; i < MANY; i++) {
		if (i < MANY / 2)
			ck_bytes(data(all[i]), cow_storage_bytes(all[i]), 0);
		cow_storage_unref(all[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("storage");
	TCase *tcase = add_case(suite, "storage");

	tcase_add_loop_test(tcase, every_size, 0, SIZES);
	tcase_add_loop_test(tcase, no_bytes_at_all, 0, 4);
	tcase_add_loop_test(tcase, sparse, 0, 6);
	tcase_add_loop_test(tcase, zero_when_fresh, 0, SIZES);
	tcase_add_loop_test(tcase, zero_when_recycled, 0, SIZES);
	tcase_add_test(tcase, zero_when_recycled_from_a_view);
	tcase_add_test(tcase, zero_to_the_end_of_the_page);
	tcase_add_loop_test(tcase, strict_commits_now, 0, SIZES);
	tcase_add_test(tcase, references_are_counted);
	tcase_add_test(tcase, longer_options);
	tcase_add_test(tcase, options_refused);
	tcase_add_loop_test(tcase, absurd_sizes, 0, 7);
	tcase_add_test(tcase, info_of_a_shorter_struct);
	tcase_add_loop_test(tcase, many_at_once, 0, 3);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Blocks: what malloc is made of
 *
 * A block is an address and nothing else. Whoever frees one twice, or frees
 * what is not one, gets a trap at once and never silent corruption; those
 * mistakes are made in a child, whose end is looked at.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t sizes[] = {
	1,           100,     PAGE,    PAGE + 1,    65535,
	65536,       131073,  MIB - 1, 2 * MIB - 1, 2 * MIB,
	3 * MIB,     5 * MIB + 1,      9 * MIB,     20 * MIB + 7,
};
enum { SIZES = COUNT(sizes) };

START_TEST(every_size)
{
	size_t bytes = sizes[_i], usable;
	unsigned char *block = new_block(bytes, 0);
	uintptr_t start, end;

	ck_assert_uint_eq((uintptr_t)block % PAGE, 0);
	usable = cow_block_bytes(block);
	ck_assert_uint_ge(usable, bytes);
	fill(block, usable, 1);
	ck_pattern(block, usable, 1);
	cow_window(&start, &end);
	ck_assert_uint_ge((uintptr_t)block, start);
	ck_assert_uint_le((uintptr_t)block + usable, end);
	cow_block_free(block);
}
END_TEST

START_TEST(every_alignment)
{
	size_t alignment = (size_t)1 << _i, i;
	void *block[3];

	for (i = 0; i < 3; i++) {
		ok(cow_block_new(300000 + i, alignment, 0, &block[i]));
		ck_assert_uint_eq((uintptr_t)block[i] % alignment, 0);
		fill(block[i], 300000 + i, i);
	}
	for (i = 0; i < 3; i++) {
		ck_pattern(block[i], 300000 + i, i);
		cow_block_free(block[i]);
	}
}
END_TEST

START_TEST(nonsense_is_refused)
{
	size_t bad[] = { 3, 4097, 6 * MIB, SIZE_MAX }, i;
	size_t absurd[] = { SIZE_MAX, SIZE_MAX - PAGE, SIZE_MAX / 2,
		            (size_t)1 << 50 };
	void *block = &block, *live;
	int code;

	for (i = 0; i < COUNT(bad); i++)
		fails(-EINVAL, cow_block_new(MIB, bad[i], 0, &block));
	fails(-EINVAL, cow_block_new(MIB, 0, 1U << 20, &block));
	for (i = 0; i < COUNT(absurd); i++) {
		code = cow_block_new(absurd[i], 0, 0, &block);
		ck_assert_msg(code == -EINVAL || code == -ENOMEM, "%d", code);
		ck_assert_str_ne(cow_last_error(), "");
	}
	ck_assert_ptr_eq(block, &block);
	live = new_block(MIB, 0);
	fill(live, MIB, 2);
	for (i = 0; i < COUNT(absurd); i++) {
		code = cow_block_resize(live, absurd[i], &block);
		ck_assert_msg(code == -EINVAL || code == -ENOMEM, "%d", code);
		ck_assert_ptr_eq(block, &block);
		ck_pattern(live, MIB, 2);
	}
	cow_block_free(live);
}
END_TEST

/* Nothing was asked for: either that is an error, or it is a block. */
START_TEST(no_bytes)
{
	void *block = &block;
	int code = cow_block_new(0, 0, 0, &block);

	if (code == 0) {
		ck_assert_ptr_nonnull(block);
		cow_block_free(block);
	} else {
		ck_assert_int_eq(code, -EINVAL);
		ck_assert_ptr_eq(block, &block);
	}
	cow_block_free(NULL);
}
END_TEST

/* All that is usable, whoever had it before. */
START_TEST(zeroes)
{
	size_t bytes = sizes[_i], usable, other = sizes[(_i + 5) % SIZES];
	unsigned char *block;
	int round;

	for (round = 0; round < 6; round++) {
		block = new_block(round % 2 ? bytes : other, 0);
		memset(block, 0x99, cow_block_bytes(block));
		cow_block_free(block);
		block = new_block(bytes, COW_BLOCK_ZERO);
		usable = cow_block_bytes(block);
		ck_bytes(block, usable, 0);
		memset(block, 0x77, usable);
		cow_block_free(block);
	}
}
END_TEST

START_TEST(resize_every_pair)
{
	size_t from = sizes[_i / SIZES], to = sizes[_i % SIZES];
	unsigned char *block = new_block(from, 0);
	void *moved = NULL;

	fill(block, from, 3);
	ok(cow_block_resize(block, to, &moved));
	ck_assert_uint_ge(cow_block_bytes(moved), to);
	ck_pattern(moved, from < to ? from : to, 3);
	fill(moved, cow_block_bytes(moved), 4);
	ok(cow_block_resize(moved, from, &moved));
	ck_pattern(moved, from < to ? from : to, 4);
	cow_block_free(moved);
}
END_TEST

/* A block that grows beside others must not grow into them. */
START_TEST(resize_among_neighbours)
{
	enum { MANY = 24 };
	void *block[MANY];
	size_t bytes[MANY], more;
	struct prng prng = prng_make((uint64_t)_i);
	int i, n;

	for (i = 0; i < MANY; i++) {
		bytes[i] = 1 + prng_below(&prng, 300000);
		block[i] = new_block(bytes[i], 0);
		fill(block[i], bytes[i], (uint64_t)i);
	}
	for (n = 0; n < ROUNDS(1000); n++) {
		i = (int)prng_below(&prng, MANY);
		more = 1 + prng_below(&prng, n % 10 ? 300000 : 5 * MIB);
		ck_pattern(block[i], bytes[i], (uint64_t)i);
		ok(cow_block_resize(block[i], more, &block[i]));
		ck_pattern(block[i], more < bytes[i] ? more : bytes[i],
		           (uint64_t)i);
		bytes[i] = more;
		fill(block[i], bytes[i], (uint64_t)i);
	}
	for (i = 0; i < MANY; i++) {
		ck_pattern(block[i], bytes[i], (uint64_t)i);
		cow_block_free(block[i]);
	}
}
END_TEST

/* A block that was cloned is resized like any other; the clone stays. */
START_TEST(resize_after_a_clone)
{
	size_t bytes = sizes[_i];
	unsigned char *block = new_block(bytes, 0);
	struct cow_storage *storage, *clone;
	void *moved;

	fill(block, bytes, 5);
	ok(cow_storage_from_ptr(block, NULL, &storage));
	clone = lazy(storage);
	cow_storage_unref(storage);
	ok(cow_block_resize(block, 2 * bytes + 1, &moved));
	ck_pattern(moved, bytes, 5);
	fill(moved, 2 * bytes + 1, 6);
	ck_pattern(data(clone), bytes, 5);
	ok(cow_block_resize(moved, bytes, &moved));
	ck_pattern(moved, bytes, 6);
	cow_block_free(moved);
	ck_pattern(data(clone), bytes, 5);
	cow_storage_unref(clone);
}
END_TEST

START_TEST(interior_pointers)
{
	size_t bytes = sizes[_i], offset = 0;
	unsigned char *block = new_block(bytes, 0);
	struct cow_storage *storage;

	ok(cow_storage_from_ptr(block + bytes - 1, &offset, &storage));
	ck_assert_uint_eq(offset, bytes - 1);
	ck_assert_ptr_eq(data(storage), block);
	ck_assert_uint_ge(cow_storage_bytes(storage), bytes);
	fill(block, bytes, 7);

	/* It outlives the block's owner. */
	cow_block_free(block);
	ck_pattern(data(storage), bytes, 7);
	fill(mut(storage), bytes, 8);
	ck_pattern(data(storage), bytes, 8);
	cow_storage_unref(storage);
	fails(-ENOENT, cow_storage_from_ptr(block, &offset, &storage));
}
END_TEST

/* ---- Mistakes ------------------------------------------------------------ */

static void free_twice(void *arg)
{
	void *block = new_block(*(size_t *)arg, 0);

	cow_block_free(block);
	cow_block_free(block);
}

static void free_twice_late(void *arg)
{
	void *block = new_block(*(size_t *)arg, 0), *other = new_block(100, 0);

	cow_block_free(block);
	cow_block_free(other);
	cow_trim();
	cow_block_free(block);
}

static void free_the_middle(void *arg)
{
	size_t bytes = *(size_t *)arg;
	unsigned char *block = new_block(bytes + 2 * PAGE, 0);

	cow_block_free(block + PAGE);
}

static void free_off_by_a_bit(void *arg)
{
	unsigned char *block = new_block(*(size_t *)arg, 0);

	cow_block_free(block + 16);
}

static void free_the_heap(void *arg)
{
	(void)arg;
	cow_block_free(malloc(100));
}

static void free_the_stack(void *arg)
{
	char bytes[100];

	(void)arg;
	cow_block_free(bytes);
}

static void free_a_storage(void *arg)
{
	struct cow_storage *storage = new_storage(*(size_t *)arg, 0);

	cow_block_free((void *)(uintptr_t)data(storage));
}

static void free_an_empty_place(void *arg)
{
	uintptr_t start, end;

	(void)arg;
	(void)new_block(100, 0);
	cow_window(&start, &end);
	cow_block_free((void *)(end - PAGE));
}

static void measure_what_was_freed(void *arg)
{
	void *block = new_block(*(size_t *)arg, 0);

	cow_block_free(block);
	(void)cow_block_bytes(block);
}

static void measure_the_heap(void *arg)
{
	(void)arg;
	(void)cow_block_bytes(strdup("of the heap"));
}

static void resize_what_was_freed(void *arg)
{
	void *block = new_block(*(size_t *)arg, 0);

	cow_block_free(block);
	(void)cow_block_resize(block, 100, &block);
}

static child_fn *const mistakes[] = {
	free_twice,          free_twice_late,        free_the_middle,
	free_off_by_a_bit,   free_the_heap,          free_the_stack,
	free_a_storage,      free_an_empty_place,    measure_what_was_freed,
	measure_the_heap,    resize_what_was_freed,
};
enum { MISTAKES = COUNT(mistakes) };

START_TEST(mistakes_trap)
{
	size_t bytes[] = { 100, PAGE, 65536, 3 * MIB }, i;

	for (i = 0; i < COUNT(bytes); i++)
		in_child_traps(mistakes[_i], &bytes[i]);
}
END_TEST

/* Growing again and again moves a block once, to where it has room. */
START_TEST(growth_stays_in_place)
{
	size_t bytes = 3 * MIB + 5 * PAGE, moves = 0;
	unsigned char *p = new_block(bytes, 0);
	void *grown;

	while (bytes < 200 * MIB) {
		fill(p, bytes, 3);
		ok(cow_block_resize(p, bytes + bytes / 2 + 1, &grown));
		moves += grown != p;
		p = grown;
		ck_pattern(p, bytes, 3);
		bytes += bytes / 2 + 1;
	}
	ck_assert_uint_le(moves, 1);
	cow_block_free(p);
}
END_TEST

/* What was asked for and hardly used is cut, freed and used again: where it was
 * not known to be written, too, it is zero if zero is asked for. */
START_TEST(hardly_used)
{
	static const size_t places[] = { 0, 5 * MIB, 30 * MIB, 64 * MIB - 9 };
	const size_t bytes = 64 * MIB, kept = 9 * MIB;
	unsigned char *p;
	void *cut;
	size_t i;
	int n;

	for (n = 0; n < 8; n++) {
		p = new_block(bytes, COW_BLOCK_ZERO);
		/* Reading all of it would be using all of it. */
		for (i = 0; i < COUNT(places); i++)
			ck_bytes(p + places[i], 9, 0);
		for (i = 0; i < COUNT(places); i++)
			memset(p + places[i], 0xa5, 9);
		if (n % 3 == 2) {
			ok(cow_block_resize(p, kept, &cut));
			p = cut;
			ck_bytes(p, 9, 0xa5);
			fill(p, kept, n);
			ok(cow_block_resize(p, bytes, &cut));
			p = cut;
			ck_pattern(p, kept, n);
			fill(p, bytes, n + 1);
			ck_pattern(p, bytes, n + 1);
		}
		cow_block_free(p);
	}
}
END_TEST

/* A block that moves to where another one was hardly used: what is cleared there is
 * what has memory. */
START_TEST(moves_to_where_little_is)
{
	enum { BYTES = 64 * MIB, APART = 20 * MIB };
	static unsigned char map[BYTES / PAGE];
	struct cow_storage *storage;
	unsigned char *old, *p;
	size_t resident = 0;
	void *cut;

	/* Its last owner is not known to have left most of it alone. */
	ok(cow_option_set("collapse", "no"));
	ok(cow_option_set("backing", _i ? "anon" : "memfd"));
	old = new_block(BYTES, 0);
	for (size_t at = 0; at < BYTES; at += APART)
		memset(old + at, 0xa5, 9);
	memset(old + BYTES - 9, 0xa5, 9);
	p = new_block(2 * BYTES, 0);
	memset(p, 0x5a, 9);
	cow_block_free(old);
	/* With a storage on it, it can't be cut in place. */
	ok(cow_storage_from_ptr(p, NULL, &storage));
	ok(cow_block_resize(p, BYTES, &cut));
	p = cut;
	ck_assert_ptr_eq(p, old);
	ck_assert_int_eq(mincore(p, BYTES, map), 0);
	for (size_t i = 0; i < BYTES / PAGE; i++)
		resident += map[i] & 1;
	ck_assert_uint_le(resident, BYTES / PAGE / 4);
	ck_bytes(p, 9, 0x5a);
	ck_bytes(p + 9, BYTES - 9, 0);
	cow_storage_unref(storage);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("block");
	TCase *tcase = add_case(suite, "block");

	tcase_add_loop_test(tcase, every_size, 0, SIZES);
	tcase_add_loop_test(tcase, every_alignment, 0, 23);
	tcase_add_test(tcase, nonsense_is_refused);
	tcase_add_test(tcase, no_bytes);
	tcase_add_loop_test(tcase, zeroes, 0, SIZES);
	tcase_add_loop_test(tcase, resize_every_pair, 0, SIZES * SIZES);
	tcase_add_loop_test(tcase, resize_among_neighbours, 0, 4);
	tcase_add_loop_test(tcase, resize_after_a_clone, 0, SIZES);
	tcase_add_loop_test(tcase, interior_pointers, 0, SIZES);
	tcase_add_loop_test(tcase, mistakes_trap, 0, MISTAKES);
	tcase_add_test(tcase, growth_stays_in_place);
	tcase_add_test(tcase, hardly_used);
	tcase_add_loop_test(tcase, moves_to_where_little_is, 0, 2);
	return run_suite(suite);
}

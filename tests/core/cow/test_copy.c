/* SPDX-License-Identifier: MIT */
/*
 * Lazy copies between blocks: nobody can tell them from real ones
 *
 * Whatever is done to either side afterwards (writing, copying on, copying
 * back, freeing, forking, resizing), each holds what a program that had copied
 * would find. That copies are lazy at all is checked by the counter of bytes
 * that were not copied.
 */
#include "tests/support/copies.h"

#include <string.h>

static const size_t sizes[] = {
	2 * MIB, 2 * MIB + 1, 2 * MIB + PAGE, 4 * MIB - 1, 4 * MIB + 100 * PAGE + 7,
};

static void copied(void *to, const void *from, size_t bytes)
{
	uint64_t before = stats_now().bytes_not_copied;

	mode("lazy");
	must(copy_from(to, from, bytes, SITE));
	must(stats_now().bytes_not_copied > before);
}

static unsigned char *copy_of(const unsigned char *from, size_t bytes)
{
	unsigned char *p = new_block(bytes, 0);

	copied(p, from, bytes);
	return p;
}

/* Both sides, whichever is written first, in whichever order they die. */
static void both_sides(size_t bytes, int order)
{
	unsigned char *a = filled(bytes, 1), *b = copy_of(a, bytes);

	ck_pattern(a, bytes, 1);
	ck_pattern(b, bytes, 1);
	fill(order & 1 ? a : b, bytes, 2);
	ck_pattern(a, bytes, order & 1 ? 2 : 1);
	ck_pattern(b, bytes, order & 1 ? 1 : 2);
	fill(order & 1 ? b : a, bytes / 2, 3);
	ck_pattern(order & 1 ? b : a, bytes / 2, 3);
	ck_pattern(order & 1 ? a : b, bytes, 2);
	cow_block_free(order & 2 ? a : b);
	fill(order & 2 ? b : a, bytes, 4);
	cow_trim();
	ck_pattern(order & 2 ? b : a, bytes, 4);
	fill(order & 2 ? b : a, bytes, 5);
	ck_pattern(order & 2 ? b : a, bytes, 5);
	cow_block_free(order & 2 ? b : a);
}

/* Its own pages went when it was copied to: what is resized is read where it lies. */
START_TEST(thawed_and_moved)
{
	enum { BYTES = 64 * MIB };
	unsigned char *a = filled(BYTES, 1), *b = copy_of(a, BYTES);
	void *moved;

	cow_block_free(a);
	cow_trim();
	ok(cow_block_resize(b, 4 * BYTES, &moved));
	ck_pattern(moved, BYTES, 1);
	cow_block_free(moved);
}
END_TEST

START_TEST(writes_on_either_side)
{
	for (int order = 0; order < 4; order++)
		both_sides(sizes[_i], order);
}
END_TEST

/* What lies behind the copied bytes is the destination's own. */
START_TEST(the_rest_stays)
{
	size_t bytes = 2 * MIB + 100, whole = 2 * MIB + PAGE;
	unsigned char *a = filled(whole, 1), *b = new_block(whole, 0);

	fill(b, whole, 2);
	memset(b + bytes, 7, whole - bytes);
	copied(b, a, bytes);
	ck_pattern(b, bytes, 1);
	ck_bytes(b + bytes, whole - bytes, 7);
	memset(b + bytes, 8, whole - bytes);
	copied(b, a, bytes);
	ck_pattern(b, bytes, 1);
	ck_bytes(b + bytes, whole - bytes, 8);
	cow_block_free(a);
	cow_trim();
	ck_pattern(b, bytes, 1);
	ck_bytes(b + bytes, whole - bytes, 8);
	cow_block_free(b);
}
END_TEST

START_TEST(parts_of_a_source)
{
	unsigned char *a = filled(2 * LARGE, 1), *b = new_block(LARGE, 0);
	static const size_t offsets[] = { 0, PAGE, 77 * PAGE, LARGE };

	for (size_t i = 0; i < COUNT(offsets); i++) {
		copied(b, a + offsets[i], LARGE);
		must(memcmp(b, a + offsets[i], LARGE) == 0);
		memset(a + offsets[i] + 5 * PAGE, (int)i, 3 * PAGE);
		must(memcmp(b, a + offsets[i], LARGE) != 0);
	}
	cow_block_free(a);
	cow_block_free(b);
}
END_TEST

/* Which copies are left to memcpy. */
START_TEST(others_are_refused)
{
	unsigned char *a = filled(2 * LARGE, 1), *b = filled(LARGE, 2);
	unsigned char *small = filled(MIB, 3);
	bool watch;

	mode("lazy");
	/* in a block, part of a block, small, crooked, from elsewhere */
	must(!cow__copy_lazily(a, a + LARGE, LARGE, SITE, &watch));
	must(!cow__copy_lazily(a, b, LARGE, SITE, &watch));
	must(!cow__copy_lazily(b, a, LARGE / 2, SITE, &watch));
	must(!cow__copy_lazily(b + PAGE, a, LARGE - PAGE, SITE, &watch));
	must(!cow__copy_lazily(small, a, MIB, SITE, &watch));
	must(!cow__copy_lazily(b, a + 8, LARGE, SITE, &watch));
	must(!cow__copy_lazily(b, a + LARGE + PAGE, LARGE, SITE, &watch));
	must(!cow__copy_lazily(&watch, a, LARGE, SITE, &watch));
	must(!cow__copy_lazily(b, &watch, LARGE, SITE, &watch));
	mode("off");
	must(!cow__copy_lazily(b, a, LARGE, SITE, &watch));
	ck_pattern(a, 2 * LARGE, 1);
	ck_pattern(b, LARGE, 2);
	cow_block_free(a);
	cow_block_free(b);
	cow_block_free(small);
}
END_TEST

/* A storage's block may be shared in ways that a copy does not know. */
START_TEST(storages_are_refused)
{
	unsigned char *a = filled(LARGE, 1), *b = filled(LARGE, 2);
	struct cow_storage *s = NULL;
	bool watch;

	mode("lazy");
	ck_assert_int_eq(cow_storage_from_ptr(b, NULL, &s), 0);
	must(!cow__copy_lazily(b, a, LARGE, SITE, &watch));
	must(!cow__copy_lazily(a, b, LARGE, SITE, &watch));
	cow_storage_unref(s);
	cow_block_free(a);
	cow_block_free(b);
}
END_TEST

/* a to b to c, and every order of freeing them. */
START_TEST(chains)
{
	static const int orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
		                         { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	size_t bytes = LARGE + 33;
	unsigned char *p[3];
	uint64_t seeds[3] = { 1, 1, 1 };

	p[0] = filled(bytes, 1);
	p[1] = copy_of(p[0], bytes);
	if (_i & 1) {
		fill(p[1], MIB, 9); /* in the middle of a chain: a layer */
		fill(p[1], MIB, 1);
	}
	p[2] = copy_of(p[1], bytes);
	for (int i = 0; i < 3; i++) {
		int k = orders[_i][i];

		fill(p[k], bytes, seeds[k] = (uint64_t)k + 20);
		for (int j = i; j < 3; j++)
			ck_pattern(p[orders[_i][j]], bytes,
			           seeds[orders[_i][j]]);
		cow_block_free(p[k]);
		cow_trim();
	}
}
END_TEST

START_TEST(there_and_back)
{
	unsigned char *a = filled(LARGE, 1), *b = copy_of(a, LARGE);

	for (uint64_t i = 2; i < 12; i++) {
		unsigned char *from = i & 1 ? a : b, *to = i & 1 ? b : a;
		size_t some = (size_t)(i % 4) * 100 * PAGE;

		fill(from, LARGE, i - 1);
		fill(from, some, i);
		(void)copy_from(to, from, LARGE, SITE);
		ck_pattern(to, some, i);
		must(memcmp(a, b, LARGE) == 0);
		fill(from, LARGE, 99);
		ck_pattern(to, some, i);
		fill(to, LARGE, i);
		ck_pattern(from, LARGE, 99);
		cow_trim();
	}
	cow_block_free(a);
	cow_block_free(b);
}
END_TEST

/* One source, one destination, again and again: as a game draws its frames. */
START_TEST(again_and_again)
{
	unsigned char *a = filled(LARGE, 1), *b = new_block(LARGE, 0);
	uint64_t held;

	copied(b, a, LARGE);
	held = memory_held();
	for (int i = 0; i < 50; i++) {
		memset(a + (size_t)(i * 13 % 1000) * PAGE, i, PAGE);
		memset(b + (size_t)(i * 17 % 1000) * PAGE, i, PAGE);
		copied(b, a, LARGE);
		must(memcmp(a, b, LARGE) == 0);
	}
	ck_assert_uint_lt(memory_held(), held + 2 * LARGE);
	cow_block_free(a);
	cow_block_free(b);
}
END_TEST

/* The destination's own pages are gone, and come back zeroed or not at all. */
START_TEST(memory_is_not_held_twice)
{
	size_t bytes = 32 * MIB;
	unsigned char *a = filled(bytes, 1), *b = filled(bytes, 2);
	uint64_t held = memory_held();

	copied(b, a, bytes);
	ck_assert_uint_lt(memory_held(), held - bytes + 4 * MIB);
	ck_pattern(b, bytes, 1);
	ck_assert_uint_lt(memory_held(), held - bytes + 4 * MIB);
	cow_block_free(b);
	b = new_block(bytes, COW_BLOCK_ZERO);
	ck_bytes(b, bytes, 0);
	cow_block_free(b);
	ck_pattern(a, bytes, 1);
	cow_block_free(a);
}
END_TEST

/* New blocks are filled by copies while the helper commits ahead of that. */
START_TEST(beside_the_helper)
{
	size_t bytes = 48 * MIB;
	unsigned char *a = filled(bytes, 1), *b;

	mode("lazy");
	ck_assert_int_eq(cow_option_set("helper", "yes"), 0);
	for (uint64_t i = 0; i < 8; i++) {
		fill(a, MIB, i);
		b = new_block(bytes, 0);
		(void)copy_from(b, a, bytes, SITE);
		ck_pattern(b, MIB, i);
		must(memcmp(a, b, bytes) == 0);
		cow_block_free(b);
	}
	cow_block_free(a);
}
END_TEST

static void child_writes(void *arg)
{
	unsigned char **p = arg;

	ck_pattern(p[0], LARGE, 1);
	ck_pattern(p[1], LARGE, 1);
	fill(p[1], LARGE, 5);
	ck_pattern(p[0], LARGE, 1);
	/* Now of memory that was inherited. */
	(void)copy_from(p[0], p[1], LARGE, SITE);
	ck_pattern(p[0], LARGE, 5);
	p[2] = filled(LARGE, 6);
	(void)copy_from(p[2], p[0], LARGE, SITE);
	ck_pattern(p[2], LARGE, 5);
	fill(p[0], LARGE, 7);
	ck_pattern(p[2], LARGE, 5);
	for (int i = 0; i < 3; i++)
		cow_block_free(p[i]);
}

START_TEST(over_forks)
{
	unsigned char *p[3] = { filled(LARGE, 1) };

	p[1] = copy_of(p[0], LARGE);
	for (int i = 0; i < 3; i++) {
		in_child(child_writes, p);
		fill(p[0], LARGE, 3);
		ck_pattern(p[1], LARGE, 1);
		fill(p[0], LARGE, 1);
		(void)copy_from(p[1], p[0], LARGE, SITE);
	}
	cow_block_free(p[0]);
	p[0] = new_block(LARGE, 0);
	(void)copy_from(p[0], p[1], LARGE, SITE);
	in_child(child_writes, p);
	ck_pattern(p[1], LARGE, 1);
	cow_block_free(p[0]);
	cow_block_free(p[1]);
}
END_TEST

/* The child of a fork before the copy reads the old pages on. */
static void reads_on(void *arg)
{
	void **all = arg;

	gate_wait(all[2]);
	ck_pattern(all[0], LARGE, 1);
	ck_pattern(all[1], LARGE, 2);
}

START_TEST(beside_a_child)
{
	struct gate gate;
	void *all[3] = { filled(LARGE, 1), filled(LARGE, 2), &gate };
	pid_t child;

	mode("lazy");
	gate_make(&gate);
	child = child_start(reads_on, all);
	(void)copy_from(all[1], all[0], LARGE, SITE);
	fill(all[0], LARGE, 3);
	ck_pattern(all[1], LARGE, 1);
	gate_open(&gate);
	child_finish(child);
	cow_trim();
	(void)copy_from(all[1], all[0], LARGE, SITE);
	ck_pattern(all[1], LARGE, 3);
	gate_free(&gate);
	cow_block_free(all[0]);
	cow_block_free(all[1]);
}
END_TEST

START_TEST(resized)
{
	unsigned char *a = filled(LARGE, 1), *b = copy_of(a, LARGE);
	void *at;

	ck_assert_int_eq(cow_block_resize(b, 2 * LARGE, &at), 0);
	ck_pattern(at, LARGE, 1);
	memset((unsigned char *)at + LARGE, 3, LARGE);
	ck_assert_int_eq(cow_block_resize(at, 3 * MIB, &at), 0);
	ck_pattern(at, 3 * MIB, 1);
	cow_block_free(at);
	ck_assert_int_eq(cow_block_resize(a, 5 * MIB, &at), 0);
	ck_pattern(at, LARGE, 1);
	cow_block_free(at);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy");
	TCase *tcase = add_case(suite, "copy");

	tcase_add_loop_test(tcase, writes_on_either_side, 0, COUNT(sizes));
	tcase_add_test(tcase, thawed_and_moved);
	tcase_add_test(tcase, the_rest_stays);
	tcase_add_test(tcase, parts_of_a_source);
	tcase_add_test(tcase, others_are_refused);
	tcase_add_test(tcase, storages_are_refused);
	tcase_add_loop_test(tcase, chains, 0, 6);
	tcase_add_test(tcase, there_and_back);
	tcase_add_test(tcase, again_and_again);
	tcase_add_test(tcase, memory_is_not_held_twice);
	tcase_add_test(tcase, beside_the_helper);
	tcase_add_test(tcase, over_forks);
	tcase_add_test(tcase, beside_a_child);
	tcase_add_test(tcase, resized);
	return run_suite(suite);
}

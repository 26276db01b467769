/* SPDX-License-Identifier: MIT */
/*
 * Copying ahead stopped behind each block whose end is clean
 *
 * So one chunk was ready before a slice, and not as many as it has time for.
 */
#include "core/cow/ahead.h"
#include "core/cow/heal.h"
#include "core/memory/state.h"
#include "memfd/wait.h"
#include "memfd/watch.h"
#include "tests/support/support.h"

static const uint64_t second = 1000000000;

static void exits_at_once(void *arg)
{
	(void)arg;
}

static unsigned copy_ahead(void)
{
	int n;

	cow__engine_lock();
	n = cow__ahead_prepare(10 * second);
	cow__engine_unlock();
	must(n >= 0);
	return (unsigned)n;
}

static void heal(uint64_t ns)
{
	cow__engine_lock();
	cow__heal(ns);
	cow__engine_unlock();
}

START_TEST(blocks_with_clean_ends)
{
	enum { BLOCKS = 10 };
	const size_t each = 4 * MIB;
	unsigned char *block[BLOCKS];

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	ck_assert_int_eq(cow_option_set("backing", "memfd"), 0);
	for (int i = 0; i < BLOCKS; i++) {
		block[i] = new_block(each, 0);
		fill(block[i], each, 1);
	}
	in_child(exits_at_once, NULL);
	for (int i = 0; i < BLOCKS; i++)
		fill(block[i], each / 4, (unsigned)i + 2);
	cow__engine_lock();
	cow__watch_keep();
	cow__engine_unlock();
	/* All of them, unless something else wants the lock. */
	ck_assert_uint_ge(copy_ahead(), cow__ahead_usable() ? 2 : 0);
	heal(UINT64_MAX);
	for (int i = 0; i < BLOCKS; i++) {
		ck_pattern(block[i], each / 4, (unsigned)i + 2);
		cow_block_free(block[i]);
	}
	cow__watch_forget();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ahead_stops");
	TCase *tcase = add_case(suite, "ahead");

	tcase_add_test(tcase, blocks_with_clean_ends);
	return run_suite(suite);
}

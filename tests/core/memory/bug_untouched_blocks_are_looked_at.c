/* SPDX-License-Identifier: MIT */
/*
 * A program that allocated thousands of blocks and filled none made the engine look at all
 * of them, in each later allocation
 */
#include "core/memory/state.h"
#include "core/memory/tile.h"
#include "memfd/probe.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 400
#define BYTES (16 * MIB)

static unsigned char *block[BLOCKS];

static int young(void)
{
	int n = 0;

	cow__engine_lock();
	for (int i = 0; i < BLOCKS; i++)
		n += cow__tile_find((uintptr_t)block[i])->filling.age == COW__AGE_YOUNG;
	cow__engine_unlock();
	return n;
}

/* Few of them are looked at, and little is committed ahead of them. */
START_TEST(few_are_young)
{
	uint64_t before = memory_held();

	ck_assert_int_eq(cow_option_set("helper", _i ? "yes" : "no"), 0);
	for (int i = 0; i < BLOCKS; i++)
		block[i] = new_block(BYTES, 0);
	ck_assert_int_le(young(), BLOCKS / 8);
	ck_assert_uint_le(memory_held(), before + 16 * MIB);
	for (int i = 0; i < BLOCKS; i++)
		cow_block_free(block[i]);
}
END_TEST

/* A block that is filled stays young, however many come after it. */
START_TEST(who_gets_on_stays_young)
{
	enum { STEPS = 100, CHUNK = 2 * MIB };
	unsigned char *filled = new_block(2 * STEPS * CHUNK, 0);
	struct cow__tile *t;
	bool is_young;

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	for (int i = 0; i < STEPS; i++) {
		memset(filled + (size_t)i * CHUNK, 1, CHUNK);
		block[i] = new_block(BYTES, 0);
	}
	cow__engine_lock();
	t = cow__tile_find((uintptr_t)filled);
	is_young = t->filling.age == COW__AGE_YOUNG && t->filling.touched >= (STEPS - 2) * CHUNK;
	cow__engine_unlock();
	ck_assert(is_young);
	for (int i = 0; i < STEPS; i++)
		cow_block_free(block[i]);
	cow_block_free(filled);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_untouched_blocks_are_looked_at");
	TCase *tcase = add_case(suite, "untouched");

	tcase_add_loop_test(tcase, few_are_young, 0, 2);
	/* No block is looked at where no huge pages can come ahead of it. */
	if (cow__probe_collapse())
		tcase_add_test(tcase, who_gets_on_stays_young);
	else
		puts("skip who_gets_on_stays_young the kernel refuses MADV_COLLAPSE");
	return run_suite(suite);
}

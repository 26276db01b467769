/* SPDX-License-Identifier: MIT */
/*
 * The program's own mappings: parts end one by one, and nothing is left
 */
#include "core/advise.h"
#include "core/mapping.h"
#include "tests/support/support.h"

#include <errno.h>

enum { PARTS = 8, PART = 3 << 20, BYTES = PARTS * PART, BOTH = 3 };

static unsigned char *mapping(void)
{
	static bool parted;
	uintptr_t start;
	void *p;

	if (!parted)
		ok(cow__mapping_init(&start));
	parted = true;
	ok(cow__mapping_new(BYTES, BOTH, &p));
	ck_bytes(p, BYTES, 0);
	for (int k = 0; k < PARTS; k++)
		fill((unsigned char *)p + (size_t)k * PART, PART, k + 1);
	return p;
}

static void unmap(unsigned char *p, int part)
{
	ok(cow__unmap((uintptr_t)p + (size_t)part * PART, PART));
}

/* From both ends and out of the middle. */
static const int order[PARTS] = { 3, 0, 7, 5, 1, 2, 6, 4 };

static void unmap_all(unsigned char *p, bool cut)
{
	struct cow_stats before = stats_now();
	bool gone[PARTS] = { false };

	for (int i = 0; i < PARTS; i++) {
		unmap(p, order[i]);
		gone[order[i]] = true;
		if (cut)
			ck_assert_uint_eq(stats_now().bytes_live,
			                  before.bytes_live -
			                          (size_t)(i + 1) * PART);
		for (int k = 0; k < PARTS; k++)
			if (!gone[k])
				ck_pattern(p + (size_t)k * PART, PART, k + 1);
	}
}

START_TEST(parts_are_cut_out)
{
	struct cow_stats before;

	/* While it commits or mends a mapping, that can't be cut. */
	ok(cow_option_set("helper", "no"));
	before = stats_now();
	unmap_all(mapping(), true);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
	ck_assert_uint_eq(stats_now().blocks_live, before.blocks_live);
}
END_TEST

static void waits(void *arg)
{
	gate_wait(arg);
}

/* A frozen one can't be cut; its notes tell when all of it is gone. */
START_TEST(parts_of_a_frozen_one)
{
	struct cow_stats before = stats_now();
	unsigned char *p = mapping();
	struct gate gate;
	pid_t child;

	gate_make(&gate);
	child = child_start(waits, &gate);
	unmap_all(p, false);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
	ck_assert_uint_eq(stats_now().blocks_live, before.blocks_live);
	gate_open(&gate);
	child_finish(child);
	gate_free(&gate);
}
END_TEST

static int mapped_times;

static bool counts(void *arg)
{
	(void)arg;
	mapped_times++;
	return false; /* the kernel refuses */
}

/* Its addresses can be had again, unless somebody has them still. */
START_TEST(mapped_over_when_gone)
{
	struct cow_stats before = stats_now();
	unsigned char *p = mapping();
	struct gate gate;
	pid_t child;

	unmap_all(p, false);
	ok(cow__overmap((uintptr_t)p + PART, PART, true, counts, NULL));
	ck_assert_int_eq(mapped_times, 1);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
	ck_assert_uint_eq(stats_now().blocks_live, before.blocks_live);

	p = mapping();
	gate_make(&gate);
	child = child_start(waits, &gate);
	ok(cow__unmap((uintptr_t)p, BYTES));
	ck_assert_int_eq(cow__overmap((uintptr_t)p, PART, true, counts, NULL),
	                 -EEXIST);
	ck_assert_int_eq(cow__overmap((uintptr_t)p, PART, false, counts, NULL),
	                 -ENOMEM);
	ck_assert_int_eq(mapped_times, 1);
	gate_open(&gate);
	child_finish(child);
	ok(cow__overmap((uintptr_t)p, PART, false, counts, NULL));
	ck_assert_int_eq(mapped_times, 2);
	gate_free(&gate);
	ck_assert_uint_eq(stats_now().bytes_live, before.bytes_live);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mapping");
	TCase *tcase = add_case(suite, "mapping");

	tcase_add_test(tcase, parts_are_cut_out);
	tcase_add_test(tcase, parts_of_a_frozen_one);
	tcase_add_test(tcase, mapped_over_when_gone);
	return run_suite(suite);
}

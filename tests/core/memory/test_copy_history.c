/* SPDX-License-Identifier: MIT */
/*
 * Copy history: only copies that are hardly written become lazy
 */
#include "tests/support/copies.h"

/* One life of a copy; says whether it was lazy. */
static bool life(uintptr_t site, size_t write_to, size_t write_from)
{
	unsigned char *a = filled(LARGE, 1), *b = new_block(LARGE, 0);
	bool lazy = copy_from(b, a, LARGE, site);

	fill(b, write_to, 2);
	fill(a, write_from, 3);
	ck_pattern(b, write_to ? write_to : LARGE, write_to ? 2 : 1);
	ck_pattern(a, write_from ? write_from : LARGE, write_from ? 3 : 1);
	if (write_from & 1)
		cow_block_free(a);
	cow_block_free(b);
	if (!(write_from & 1))
		cow_block_free(a);
	return lazy;
}

START_TEST(two_unwritten_ones_convince)
{
	mode("auto");
	must(!life(1, 0, 0));
	must(!life(1, 0, 0));
	must(life(1, 0, 0));
	must(!life(2, 0, 0)); /* elsewhere */
	must(life(1, 0, 0));
}
END_TEST

START_TEST(written_ones_never_do)
{
	mode("auto");
	for (int i = 0; i < 40; i++) {
		must(!life(1, LARGE, 0));
		must(!life(2, 0, LARGE));
		must(!life(3, 0, LARGE - 1));
		must(!life(4, LARGE / 2, 0));
	}
}
END_TEST

/* Once a lazy copy was written, twice as many have to be right. */
START_TEST(trust_is_lost)
{
	int n;

	mode("auto");
	for (n = 1; !life(1, 0, 0); n++)
		must(n < 10);
	ck_assert_int_eq(n, 3);
	must(life(1, LARGE, 0));
	for (n = 1; !life(1, 0, 0); n++)
		must(n < 20);
	ck_assert_int_eq(n, 5);
	must(life(1, 0, LARGE));
	for (n = 1; !life(1, 0, 0); n++)
		must(n < 40);
	ck_assert_int_eq(n, 9);
}
END_TEST

/* No more at a time than were found right: the first bad ones are few. */
START_TEST(few_at_a_time)
{
	unsigned char *a = filled(LARGE, 1), *b[20];
	int lazy = 0;

	mode("auto");
	for (int i = 0; i < 4; i++)
		(void)life(1, 0, 0);
	for (int i = 0; i < 20; i++) {
		b[i] = new_block(LARGE, 0);
		lazy += copy_from(b[i], a, LARGE, 1);
	}
	ck_assert_int_eq(lazy, 4);
	for (int i = 0; i < 20; i++) {
		ck_pattern(b[i], LARGE, 1);
		cow_block_free(b[i]);
	}
	cow_block_free(a);
}
END_TEST

/* Watched blocks are cut, moved, protected and inherited. */
static void learns_by_itself(void *arg)
{
	cow_block_free(arg);
	must(life(1, 0, 0));
	must(life(1, 0, 0));
}

START_TEST(watched_blocks_change)
{
	void *a = filled(LARGE, 1), *b = new_block(LARGE, 0), *many[100];

	mode("auto");
	(void)life(1, 0, 0);
	(void)life(1, 0, 0);
	must(!copy_from(b, a, LARGE, 2));
	in_child(learns_by_itself, b);
	ck_assert_int_eq(cow_block_resize(b, 3 * MIB, &b), 0);
	ck_assert_int_eq(cow_block_resize(a, 3 * LARGE, &a), 0);
	cow_block_free(b);
	cow_block_free(a);
	/* More than can be watched at a time. */
	for (size_t i = 0; i < COUNT(many); i++)
		many[i] = filled(2 * MIB, 1);
	for (size_t i = 1; i < COUNT(many); i++)
		must(!copy_from(many[i - 1], many[i], 2 * MIB, 3));
	for (size_t i = 0; i < COUNT(many); i++)
		cow_block_free(many[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy_history");
	TCase *tcase = add_case(suite, "copy_history");

	tcase_add_test(tcase, two_unwritten_ones_convince);
	tcase_add_test(tcase, written_ones_never_do);
	tcase_add_test(tcase, trust_is_lost);
	tcase_add_test(tcase, few_at_a_time);
	tcase_add_test(tcase, watched_blocks_change);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Beyond 62 relatives, one process was taken for all that share the last slot
 *
 * They have one bit and one lock between them. Each of them took the bit for
 * its own alone: it thawed what a child in the same slot still read, and when
 * it freed a block, the bit went for those, too, who kept it.
 */
#include "tests/support/support.h"

enum { OTHERS = 61 }; /* with this process all slots of one holder */

static struct gate out, go, done, leave;
static pid_t others[OTHERS];
static unsigned char *first;

static void waits(void *arg)
{
	gate_wait(arg);
}

static void take_all_slots(void)
{
	gate_make(&out);
	gate_make(&go);
	gate_make(&done);
	gate_make(&leave);
	first = new_block(64 * KIB, 0);
	for (int i = 0; i < OTHERS; i++)
		others[i] = child_start(waits, &out);
}

static void give_back_slots(void)
{
	for (int i = 0; i < OTHERS; i++)
		gate_open(&out);
	for (int i = 0; i < OTHERS; i++)
		child_finish(others[i]);
	cow_block_free(first);
	gate_free(&out);
	gate_free(&go);
	gate_free(&done);
	gate_free(&leave);
}

static void reads_later(void *arg)
{
	gate_wait(&go);
	ck_pattern(arg, 4 * MIB, 1);
}

static void forks_and_rewrites(void *arg)
{
	unsigned char *p = new_block(4 * MIB, 0);
	pid_t child;

	(void)arg;
	fill(p, 4 * MIB, 1);
	child = child_start(reads_later, p);
	cow_trim();
	fill(p, 4 * MIB, 2);
	gate_open(&go);
	child_finish(child);
	cow_block_free(p);
}

START_TEST(parent_and_child_share_it)
{
	take_all_slots();
	in_child(forks_and_rewrites, NULL);
	give_back_slots();
}
END_TEST

static void frees(void *arg)
{
	cow_block_free(arg);
	gate_open(&done);
	gate_wait(&leave);
}

START_TEST(one_of_them_frees)
{
	pid_t reader, freer;
	unsigned char *p;

	take_all_slots();
	p = new_block(4 * MIB, 0);
	fill(p, 4 * MIB, 1);
	reader = child_start(reads_later, p);
	freer = child_start(frees, p);
	gate_wait(&done);
	cow_trim();
	fill(p, 4 * MIB, 2);
	gate_open(&go);
	child_finish(reader);
	gate_open(&leave);
	child_finish(freer);
	cow_block_free(p);
	give_back_slots();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared_slot_counts_one");
	TCase *tcase = add_case(suite, "shared slot");

	tcase_add_test(tcase, parent_and_child_share_it);
	tcase_add_test(tcase, one_of_them_frees);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Two blocks got one word, so their last reader gave back pages that its parent had
 *
 * A tile kept the number of its word when its addresses were free again. They came into another
 * file. When the process left its family, the number was freed in that file, which had never
 * given it out, and then two blocks got it. Their parent freed one of them, and did not count as a
 * reader of the other one any more.
 */
#include "tests/support/support.h"

enum { BLOCKS = 4, BLOCK = 4 * MIB };
enum { SMALL = 6, BYTES = 64 * KIB };

static struct gate freed, gone;
static unsigned char *blocks[BLOCKS], *small[SMALL];

static void nothing(void *arg)
{
	(void)arg;
}

/* The last who reads them, as it seems. */
static void frees_all(void *arg)
{
	(void)arg;
	gate_wait(&freed);
	for (int i = 0; i < SMALL; i++)
		cow_block_free(small[i]);
	gate_open(&gone);
}

static void leaves(void *arg)
{
	pid_t child;
	int first = 0;

	(void)arg;
	cow_block_free(blocks[1]); /* the smallest hole, so the next block lies there */
	cow_block_free(new_block(BYTES, 0));
	in_child(nothing, NULL);
	ok(cow_family_leave());
	for (int i = 0; i < SMALL; i++) {
		small[i] = new_block(BYTES, 0);
		fill(small[i], BYTES, (uint64_t)i);
		first = small[i] < small[first] ? i : first;
	}
	child = child_start(frees_all, NULL);
	cow_block_free(small[first]); /* it got its word first */
	gate_open(&freed);
	gate_wait(&gone);
	for (int i = 0; i < SMALL; i++)
		if (i != first)
			must(first_wrong(small[i], BYTES, (uint64_t)i) == BYTES);
	child_finish(child);
}

START_TEST(both_keep_their_readers)
{
	ok(cow_option_set("helper", "no"));
	gate_make(&freed);
	gate_make(&gone);
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = new_block(BLOCK, 0);
		fill(blocks[i], BLOCK, 7);
	}
	in_child(leaves, NULL);
	for (int i = 0; i < BLOCKS; i++)
		cow_block_free(blocks[i]);
	gate_free(&freed);
	gate_free(&gone);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("words_of_free_memory");
	TCase *tcase = add_case(suite, "words");

	tcase_add_test(tcase, both_keep_their_readers);
	return run_suite(suite);
}

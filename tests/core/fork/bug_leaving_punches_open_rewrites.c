/* SPDX-License-Identifier: MIT */
/*
 * A child that gave up its privileges made zeros of what its parent was rewriting
 *
 * The new bytes lay in the block's own pages, which nobody read but the open rewrite. The child
 * took them for memory that was free at its fork, and gave them back when it left.
 */
#include "tests/support/support.h"

#include <string.h>

enum { BLOCK = 4 * MIB };

static struct gate end;

static void waits(void *arg)
{
	(void)arg;
	gate_wait(&end);
}

static void leaves(void *arg)
{
	(void)arg;
	ok(cow_family_leave());
}

static unsigned char *begin(unsigned char *p, struct cow_rewrite **ret)
{
	struct cow_range range = { p, BLOCK };
	void *at;

	ok(cow_rewrite_begin(&range, &at, ret));
	return at;
}

/* The second rewrite gets the block's own pages again. 1: a fork before it is filled. */
START_TEST(rewrite_keeps_its_bytes)
{
	unsigned char *p = new_block(BLOCK, 0), *other, *at;
	struct cow_rewrite *rewrite;
	pid_t child;

	gate_make(&end);
	memset(p, 'p', BLOCK);
	child = child_start(waits, NULL);
	at = begin(p, &rewrite);
	memset(at, '1', BLOCK);
	ok(cow_rewrite_end(rewrite, true));
	gate_open(&end);
	child_finish(child);
	child = child_start(waits, NULL);
	other = new_block(BLOCK, 0); /* in the file of the first pages */
	memset(other, 'o', BLOCK);
	at = begin(p, &rewrite);
	memset(at, '2', BLOCK / 2);
	if (_i)
		in_child(leaves, NULL);
	memset(at + BLOCK / 2, '2', BLOCK / 2);
	in_child(leaves, NULL);
	for (size_t i = 0; i < BLOCK; i++)
		must(at[i] == '2');
	ok(cow_rewrite_end(rewrite, true));
	for (size_t i = 0; i < BLOCK; i++)
		must(p[i] == '2' && other[i] == 'o');
	gate_open(&end);
	child_finish(child);
	cow_block_free(p);
	cow_block_free(other);
	gate_free(&end);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_leaving_punches_open_rewrites");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_loop_test(tcase, rewrite_keeps_its_bytes, 0, 2);
	return run_suite(suite);
}

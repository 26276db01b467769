/* SPDX-License-Identifier: MIT */
/*
 * A process that gave up its privileges while a thread rewrote a block crashed
 *
 * The new pages lay in a file of which a child had another block. A fork had made their mapping
 * private, so the thread could go on; leaving unmapped it with the file's free memory.
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

START_TEST(rewrite_goes_on)
{
	unsigned char *p = new_block(BLOCK, 0), *other;
	struct cow_range range = { p, BLOCK };
	struct cow_rewrite *rewrite;
	unsigned char *at;
	pid_t child[2];

	gate_make(&end);
	memset(p, 'p', BLOCK);
	child[0] = child_start(waits, NULL);
	other = new_block(BLOCK, 0); /* in the file of the new pages */
	memset(other, 'o', BLOCK);
	ok(cow_rewrite_begin(&range, (void **)&at, &rewrite));
	memset(at, '1', BLOCK / 2);
	child[1] = child_start(waits, NULL);
	ok(cow_family_leave());
	must(at[0] == '1');
	memset(at + BLOCK / 2, '2', BLOCK / 2);
	ok(cow_rewrite_end(rewrite, _i));
	must(p[0] == (_i ? '1' : 'p') && p[BLOCK - 1] == (_i ? '2' : 'p'));
	must(other[0] == 'o' && other[BLOCK - 1] == 'o');
	gate_open(&end);
	gate_open(&end);
	child_finish(child[0]);
	child_finish(child[1]);
	cow_block_free(p);
	cow_block_free(other);
	gate_free(&end);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_leaving_unmapped_open_rewrites");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_loop_test(tcase, rewrite_goes_on, 0, 2);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * A relative that left by copies wiped the words of its relatives' file
 *
 * A process that has closed its descriptors can neither lock nor seal a file, and without
 * privileges it can't open it again. So it leaves by copies. It also set the words of the file
 * to zero, as if nobody else had it. Its parent then took itself for alone, and thawed the pages
 * that a sibling read.
 */
#include "tests/support/support.h"

#include <sys/prctl.h>
#include <unistd.h>

enum { NOBODY = 65534, BYTES = 8 * MIB };

static unsigned char *block;
static struct gate look;

static void reads_later(void *arg)
{
	gate_wait(&look);
	ck_pattern(block, BYTES, 1);
	(void)arg;
}

static void leaves(void *arg)
{
	for (int fd = 3; fd < 4096; fd++)
		(void)close(fd);
	ok(cow_family_leave());
	ck_pattern(block, BYTES, 1);
	(void)arg;
}

static void family(void *arg)
{
	pid_t sibling;

	must(getuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
	must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0); /* else it could not use /proc/self */
	cow_block_free(new_block(4 * MIB, 0)); /* warm: what can't be given back without a descriptor */
	block = new_block(BYTES, 0);
	fill(block, BYTES, 1);
	must(stats_now().segments > 0 || cow_feature_probe(COW_FEATURE_MEMFD, NULL, NULL) <= 0);
	gate_make(&look);
	sibling = child_start(reads_later, NULL);
	in_child(leaves, NULL);
	for (unsigned n = 2; n < 5; n++) {
		cow_trim();
		fill(block, BYTES, n);
	}
	gate_open(&look);
	child_finish(sibling);
	ck_pattern(block, BYTES, 4);
	cow_block_free(block);
	gate_free(&look);
	(void)arg;
}

START_TEST(a_sibling_keeps_its_bytes)
{
	in_child(family, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leaving_by_copies_wipes_words");
	TCase *tcase = add_case(suite, "border");

	tcase_add_test(tcase, a_sibling_keeps_its_bytes);
	return run_suite(suite);
}

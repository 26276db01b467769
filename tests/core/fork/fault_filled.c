/* SPDX-License-Identifier: MIT */
/*
 * Pages that a stranger makes in its victim's file do not outlive it
 *
 * A stranger keeps private mappings, and can let one grow over the whole file. Where it reads a
 * hole, the kernel puts a page of zeros into the file. The owner gives these back.
 */
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK (4 * MIB)
#define FILLED (256 * MIB)
#define LEFT (8 * MIB) /* so little is not worth a look */

/* The pages of all files of the engine, in bytes. */
static size_t pages_of_files(void)
{
	size_t all = 0;
	struct stat st;

	for (const struct cow__segment *s = cow__engine.segments; s; s = s->next)
		if (fstat(s->file.fd, &st) == 0)
			all += (size_t)st.st_blocks * 512;
	return all;
}

static void fills(void *block)
{
	/* A process that keeps capabilities seals the file, which goes as a whole. */
	struct __user_cap_header_struct who = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
	unsigned char *p;

	must(syscall(SYS_capset, &who, none) == 0);
	ok(cow_family_leave());
	p = mremap(block, PAGE, FILLED, MREMAP_MAYMOVE);
	must(p != MAP_FAILED);
	for (size_t at = 0; at < FILLED; at += PAGE)
		(void)((volatile unsigned char *)p)[at];
	_exit(0);
}

/* 0: at a trim. 1: by the helper. 2: by calls of the allocator, where there is no helper. */
START_TEST(filled_holes_go_back)
{
	unsigned char *block;
	size_t before;

	if (_i != 1)
		ok(cow_option_set("helper", "no"));
	block = new_block(BLOCK, 0);
	fill(block, BLOCK, 1);
	before = pages_of_files();
	for (int round = 0; round < 2; round++) {
		in_child(fills, block);
		if (_i == 0) {
			ck_assert_uint_gt(pages_of_files(), before + FILLED / 2);
			cow_trim();
			ck_assert_uint_le(pages_of_files(), before + LEFT);
		}
		while (pages_of_files() > before + LEFT) {
			usleep(10000);
			if (_i == 2 || SANITIZED) /* which has no helper */
				cow_block_free(new_block(BLOCK, 0));
		}
		ck_pattern(block, BLOCK, 1);
	}
	cow_block_free(block);
}
END_TEST

/* Whichever call of a look fails: the next look gives all back. 1: from that call on all fail. */
START_TEST(tried_again)
{
	unsigned char *block;
	size_t before;
	int n = 0;

	ok(cow_option_set("helper", "no"));
	block = new_block(BLOCK, 0);
	fill(block, BLOCK, 1);
	before = pages_of_files();
	do {
		in_child(fills, block);
		ck_assert_uint_gt(pages_of_files(), before + FILLED / 2);
		fault_after(++n, ENOMEM | (_i ? FAULT_LASTING : 0));
		cow_trim();
		ck_pattern(block, BLOCK, 1);
		if (!fault_disarm())
			n = -n;
		cow_trim();
		ck_assert_uint_le(pages_of_files(), before + LEFT);
	} while (n > 0);
	must(n <= -2); /* one has failed */
	ck_pattern(block, BLOCK, 1);
	cow_block_free(block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_filled");
	TCase *tcase = add_case(suite, "filled");

	tcase_add_loop_test(tcase, filled_holes_go_back, 0, 3);
	tcase_add_loop_test(tcase, tried_again, 0, 2);
	return run_suite(suite);
}

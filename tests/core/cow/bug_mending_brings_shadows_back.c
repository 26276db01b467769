/* SPDX-License-Identifier: MIT */
/*
 * Memory that a thaw had given back came again
 *
 * Of a chunk with many copied pages the file pages under them are given back.
 * Mending took the copied pages for the file's, and made the whole chunk huge
 * in the file, where nobody reads it.
 */
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of our memfds, whatever their descriptors are. */
static size_t file_bytes(void)
{
	size_t sum = 0;
	struct stat st;
	char path[40], link[64];
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;

	while ((e = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/fd/%.20s", e->d_name);
		memset(link, 0, sizeof(link));
		if (readlink(path, link, sizeof(link) - 1) > 0 &&
		    strncmp(link, "/memfd:cowshed ", 15) == 0 &&
		    stat(path, &st) == 0)
			sum += (size_t)st.st_blocks * 512;
	}
	closedir(dir);
	return sum;
}

/* Calls of the library thaw, every few milliseconds at most. */
static bool thawed(void *arg)
{
	(void)arg;
	cow_block_free(new_block(MIB, 0));
	return stats_now().thaws > 0;
}

static void waits(void *arg)
{
	gate_wait(arg);
}

START_TEST(mending_after_a_thaw)
{
	const size_t bytes = 48 * MIB;
	unsigned char *p;
	struct gate gate;
	size_t at, then;
	pid_t child;

	ok(cow_option_set("backing", "memfd"));
	gate_make(&gate);
	__atomic_store_n(&hold_no_huge, 1, __ATOMIC_RELEASE);
	hold_at(SYS_mincore, HOLD_ADVICE_ANY);
	p = new_block(bytes, 0);
	memset(p, 1, bytes);
	ck_assert(wait_until(hold_is_on, NULL, 10));
	__atomic_store_n(&hold_no_huge, 0, __ATOMIC_RELEASE);
	child = child_start(waits, &gate);
	for (at = 0; at < bytes; at += 2 * MIB)
		memset(p + at, 2, MIB);
	gate_open(&gate);
	child_finish(child);
	ck_assert(wait_until(thawed, NULL, 10));
	then = file_bytes();
	hold_finish();
	ck_assert_uint_le(file_bytes(), then + MIB);
	for (at = 0; at < bytes; at += 2 * MIB) {
		ck_bytes(p + at, MIB, 2);
		ck_bytes(p + at + MIB, MIB, 1);
	}
	cow_block_free(p);
	gate_free(&gate);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_mending_brings_shadows_back");
	TCase *tcase = add_case(suite, "bug");

	if (SANITIZED)
		puts("skip mending_after_a_thaw sanitizers have no helper");
	else if (!hold_collapses())
		puts("skip mending_after_a_thaw the kernel refuses MADV_COLLAPSE");
	else
		tcase_add_test(tcase, mending_after_a_thaw);
	return run_suite(suite);
}

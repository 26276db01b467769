/* SPDX-License-Identifier: MIT */
/*
 * With thousands of descriptors each slice healed one block
 *
 * Before a slice the engine looks at all descriptors, whether one may keep memory under I/O. That
 * look took all of the slice's time. So a wait() for a child could take minutes.
 */
#include "core/cow/heal.h"
#include "core/memory/state.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BLOCKS = 1000, DESCRIPTORS = 8000, LEAST = 3000 };

static void exits_at_once(void *arg)
{
	(void)arg;
}

/* How many of one file could be opened. */
static int open_many(int *fd)
{
	char name[] = "/var/tmp/cowshed-test-XXXXXX";
	struct rlimit limit;
	int n = 1;

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < 2 * DESCRIPTORS && limit.rlim_max > limit.rlim_cur) {
		limit.rlim_cur = limit.rlim_max < 2 * DESCRIPTORS ? limit.rlim_max : 2 * DESCRIPTORS;
		must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	fd[0] = mkstemp(name);
	must(fd[0] >= 0 && unlink(name) == 0);
	while (n < DESCRIPTORS && (fd[n] = dup(fd[0])) >= 0)
		n++;
	return n;
}

START_TEST(slices_get_on)
{
	static unsigned char *block[BLOCKS];
	static int fd[DESCRIPTORS];
	unsigned slices = 0;
	bool more = true;
	int n;

	ok(cow_option_set("helper", "no"));
	ok(cow_option_set("backing", "memfd"));
	for (int i = 0; i < BLOCKS; i++)
		fill(block[i] = new_block(4 * PAGE, 0), 4 * PAGE, (unsigned)i);
	in_child(exits_at_once, NULL);
	for (int i = 0; i < BLOCKS; i++)
		fill(block[i], 4 * PAGE, (unsigned)i + 1);
	n = open_many(fd);
	cow__engine_lock();
	for (; more; slices++)
		more = cow__heal_slice();
	cow__engine_unlock();
	/* It was one for each block. */
	if (n >= LEAST)
		ck_assert_uint_le(slices, BLOCKS / 2);
	else
		puts("skip slices_get_on the limit of descriptors is too low here");
	for (int i = 0; i < BLOCKS; i++) {
		ck_pattern(block[i], 4 * PAGE, (unsigned)i + 1);
		cow_block_free(block[i]);
	}
	while (n)
		close(fd[--n]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("looks_took_all_time");
	TCase *tcase = add_case(suite, "heal");

	tcase_add_test(tcase, slices_get_on);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * A process that filtered itself kept shared mappings of its file
 *
 * The engine freezes all memory before the filter is set. A freeze moves page tables away, which the
 * helper takes down later. But then there is no helper any more, so the process kept a mapping by
 * which it could write the frozen pages. The new pages of an open rewrite must not stay shared, either.
 */
#include "core/fork/retire.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = 64 * MIB };

static bool has_shared(void)
{
	char line[256];
	FILE *maps = fopen("/proc/self/maps", "r");
	bool found = false;

	must(maps);
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, " rw-s ") && strstr(line, "/memfd:cowshed (");
	(void)fclose(maps);
	return found;
}

static struct gate end;

static void waits(void *arg)
{
	(void)arg;
	gate_wait(&end);
}

/* `arg`: is a rewrite open? */
static void retires(void *arg)
{
	pid_t child = 0;
	unsigned char *block = new_block(BYTES, 0), *at;
	struct cow_range range = { block, BYTES };
	struct cow_rewrite *rewrite = NULL;

	fill(block, BYTES, 1);
	if (arg) {
		gate_make(&end);
		child = child_start(waits, NULL); /* it reads the old pages */
		ok(cow_rewrite_begin(&range, (void **)&at, &rewrite));
		memset(at, '1', BYTES);
	}
	must(has_shared());
	cow_threads_end();
	ok(cow_family_leave());
	must(cow__retire() == 0);
	must(!has_shared());
	if (arg) {
		must(at[0] == '1' && at[BYTES - 1] == '1');
		(void)cow_rewrite_end(rewrite, false);
		gate_open(&end);
		child_finish(child);
		gate_free(&end);
	}
	ck_pattern(block, BYTES, 1);
	cow_block_free(block);
}

START_TEST(nothing_is_shared)
{
	static bool open = true;

	in_child(retires, _i ? &open : NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("retired_process_kept_shared_pages");
	TCase *tcase = add_case(suite, "retire");

	tcase_add_loop_test(tcase, nothing_is_shared, 0, 2);
	return run_suite(suite);
}

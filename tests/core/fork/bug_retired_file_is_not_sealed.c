/* SPDX-License-Identifier: MIT */
/*
 * A process that filtered itself kept a file that it could write
 *
 * The engine seals the files of such a process, since its children can make no border any more. A
 * process that had closed the file's descriptor, and could open none, left the file without a seal. A
 * later child with the same capabilities could open it by its mapping, and write its parent's
 * memory. Now the process gets copies of what it has there.
 */
#include "core/fork/retire.h"
#include "core/memory/state.h"
#include "memfd/process.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 8 * MIB };

/* Opens the file of each mapping below the block, and tries to write there. */
static void attack(const unsigned char *block)
{
	unsigned long from, to, offset;
	char line[256], path[80];
	FILE *maps = fopen("/proc/self/maps", "r");

	must(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) != 3 ||
		    to <= (uintptr_t)block || from >= (uintptr_t)block + BYTES)
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", from, to);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			must(pwrite(fd, "mallory", 7, (off_t)offset) < 0);
			close(fd);
		}
	}
	fclose(maps);
}

static void attacks(void *arg)
{
	attack(arg);
}

static void ends(void *arg)
{
	(void)arg;
}

static void retires(void *arg)
{
	struct rlimit limit, none = { 3, 0 };
	unsigned char *block = new_block(BYTES, 0);

	(void)arg;
	fill(block, BYTES, 1);
	in_child(ends, NULL); /* frozen from now on, in a file that nobody else has any more */
	ok(cow_family_leave());
	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none.rlim_max = limit.rlim_max;
	for (int fd = 3; fd < 4096; fd++)
		(void)close(fd);
	must(setrlimit(RLIMIT_NOFILE, &none) == 0);
	must(cow__retire() == 0);
	must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	ck_pattern(block, BYTES, 1);
	in_child(attacks, block);
	ck_pattern(block, BYTES, 1);
	cow_block_free(block);
}

START_TEST(its_child_attacks)
{
	ok(cow_option_set("helper", "no")); /* nothing thaws meanwhile */
	if (!cow__process_opens_mapped())
		puts("skip its_child_attacks no capability to open mapped files");
	else
		in_child(retires, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("retired_file_is_not_sealed");
	TCase *tcase = add_case(suite, "retire");

	tcase_add_test(tcase, its_child_attacks);
	return run_suite(suite);
}

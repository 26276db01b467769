/* SPDX-License-Identifier: MIT */
/*
 * More memory than the machine has, if it is told so: "swapped 700" takes 700 MiB in blocks
 * of odd sizes, forks, and both sides check all of it and rewrite half.
 */
#include "program.h"

enum { MOST = 4096, EACH = 5 };

static unsigned char *blocks[MOST];
static uint64_t seeds[MOST];
static size_t count;

static size_t size_of(size_t i)
{
	return EACH * MIB - i % 7 * 10000;
}

static void check_all(void)
{
	for (size_t i = 0; i < count; i++)
		check(holds(blocks[i], size_of(i), seeds[i]));
}

static void rewrite(size_t first, uint64_t more)
{
	for (size_t i = first; i < count; i += 2) {
		seeds[i] += more;
		fill(blocks[i], size_of(i), seeds[i]);
	}
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 40;

	count = mib / EACH;
	check(count > 0 && count <= MOST);
	for (size_t i = 0; i < count; i++) {
		seeds[i] = i;
		blocks[i] = get_filled(size_of(i), seeds[i]);
	}
	for (int round = 0; round < 2; round++) {
		int status;
		pid_t pid = fork();

		check(pid >= 0);
		rewrite(pid ? 0 : 1, 1000);
		check_all();
		if (pid == 0)
			_exit(0);
		check(waitpid(pid, &status, 0) == pid && status == 0);
		check_all();
	}
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	puts("swapped: all bytes are there");
	return 0;
}

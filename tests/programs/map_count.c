/* SPDX-License-Identifier: MIT */
/*
 * A program that has used up its mappings (vm.max_map_count), nearly
 *
 * Pages that are readable and not readable in turns are mappings of their own. The
 * program leaves fewer and fewer mappings for the allocator, which must do with those.
 * When none is left a request may fail, but nothing else may.
 */
#include "program.h"

#include <sys/mman.h>

static const size_t bytes = 2 * MIB;

static void rewrites(void *arg)
{
	check(holds(arg, bytes, 1));
	fill(arg, bytes, 2);
	check(holds(arg, bytes, 2));
	free(arg);
}

static void live(unsigned char *kept)
{
	unsigned char *p;
	pid_t child;
	int n, status;

	for (n = 0; n < 2; n++) {
		fflush(NULL);
		child = fork();
		check(child >= 0 || errno == ENOMEM);
		if (child == 0) {
			rewrites(kept);
			_exit(0);
		}
		check(child < 0 || (waitpid(child, &status, 0) == child &&
		                    status == 0));
		p = malloc(bytes + (size_t)n * 100000);
		if (p != NULL) {
			fill(p, bytes, 3);
			check(holds(p, bytes, 3));
		}
		check(holds(kept, bytes, 1));
		fill(kept, bytes, 1);
		free(p);
	}
}

int main(void)
{
	static const size_t leave[] = { 1000, 20, 4, 0 };
	const size_t pages = 1 << 20;
	unsigned char *kept = get_filled(bytes, 1), *area;
	size_t i, used = 0;

	area = mmap(NULL, pages * PAGE, PROT_NONE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(area != MAP_FAILED);
	while (used < pages && mprotect(area + used * PAGE, PAGE,
	                                PROT_READ) == 0)
		used += 2;
	if (used == pages) {
		puts("skip map_count: there is no end of mappings");
		return 77;
	}
	puts("map_count: used up");
	for (i = 0; i < COUNT(leave); i++) {
		size_t n;

		for (n = 0; n < leave[i]; n += 2)
			check(mprotect(area + (used - 2 - n) * PAGE, PAGE,
			               PROT_NONE) == 0);
		live(kept);
		for (n = 0; n < leave[i]; n += 2)
			if (mprotect(area + (used - 2 - n) * PAGE, PAGE,
			             PROT_READ) != 0)
				break;
	}
	check(munmap(area, pages * PAGE) == 0);
	live(kept);
	check(holds(kept, bytes, 1));
	free(kept);
	puts("map_count: done");
	return 0;
}

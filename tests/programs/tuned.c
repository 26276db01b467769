/* SPDX-License-Identifier: MIT */
/*
 * Programs that tune glibc's malloc, and look into it
 */
#include "program.h"

#include <malloc.h>

static void use(void)
{
	static const size_t sizes[] = { 20, 3000, 100000, 700000, 3 * MIB };
	unsigned char *p[COUNT(sizes)];
	size_t i;

	for (i = 0; i < COUNT(sizes); i++)
		p[i] = get_filled(sizes[i], i);
	for (i = 0; i < COUNT(sizes); i++) {
		check(malloc_usable_size(p[i]) >= sizes[i]);
		p[i] = realloc(p[i], 2 * sizes[i]);
		check(p[i] != NULL && holds(p[i], sizes[i], i));
	}
	for (i = 0; i < COUNT(sizes); i++)
		free(p[i]);
}

int main(void)
{
	static const int options[][2] = {
		{ M_MMAP_THRESHOLD, 64 << 10 }, { M_MMAP_THRESHOLD, 16 << 20 },
		{ M_MMAP_MAX, 0 },   { M_TRIM_THRESHOLD, 0 }, { M_TOP_PAD, 5 << 20 },
		{ M_ARENA_MAX, 1 },  { M_PERTURB, 0x55 },     { M_CHECK_ACTION, 1 },
		{ M_MXFAST, 0 },
	};
	struct mallinfo2 info;
	FILE *nowhere = fopen("/dev/null", "w");
	size_t i;

	check(nowhere != NULL);
	use();
	for (i = 0; i < COUNT(options); i++) {
		check(mallopt(options[i][0], options[i][1]) == 1);
		use();
	}
	info = mallinfo2();
	check(info.uordblks <= info.arena + info.hblkhd + 64 * MIB);
	check(malloc_info(0, nowhere) == 0);
	use();
	(void)malloc_trim(0);
	use();
	check(mallopt(-1234, 0) == 1 || errno != ENOMEM);
	fclose(nowhere);
	puts("tuned: done");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Large blocks that are hardly touched stay small when they move
 *
 * mincore() tells how much of a block has memory. A touch may bring a huge page: 2 MiB, or 32 MiB
 * with pages of 16 KiB.
 */
#include "program.h"

#include <sys/mman.h>

#define STEP (64 * MIB)
#define HUGE (PAGE / 8 * PAGE)

static size_t resident(const void *block, size_t bytes)
{
	static unsigned char map[2048 * MIB / 4096];
	uintptr_t start = ((uintptr_t)block + PAGE - 1) & -PAGE;
	size_t i, pages, n = 0;

	pages = ((uintptr_t)block + bytes - start) / PAGE;
	check(pages <= sizeof(map));
	check(mincore((void *)start, pages * PAGE, map) == 0);
	for (i = 0; i < pages; i++)
		n += map[i] & 1;
	return n * PAGE;
}

static void touch(unsigned char *p, size_t bytes)
{
	size_t at;

	for (at = 5; at < bytes; at += STEP)
		p[at] = (unsigned char)(at / STEP + 1);
}

static void touched(const unsigned char *p, size_t bytes, size_t all_of_it)
{
	size_t at;

	for (at = 5; at < bytes; at += STEP)
		check(p[at] == (unsigned char)(at / STEP + 1));
	check(resident(p, all_of_it) <=
	      2 * (HUGE * (bytes / STEP)) + 24 * MIB);
}

/* Something lies behind the block, so that it has to move. */
static void moved(void)
{
	const size_t bytes = 1024 * MIB, more = 1536 * MIB;
	unsigned char *p = get(bytes), *behind = get_filled(3 * MIB, 1);

	touch(p, bytes);
	touched(p, bytes, bytes);
	p = realloc(p, more);
	check(p != NULL);
	touched(p, bytes, more);
	p = realloc(p, bytes / 2);
	check(p != NULL);
	touched(p, bytes / 2, bytes / 2);
	check(holds(behind, 3 * MIB, 1));
	free(behind);
	free(p);
}

/* Untouched pages are zero at the new place of the block, too, whatever memory
 * was there before. */
static void zeros(void)
{
	const size_t bytes = 40 * MIB, more = 60 * MIB;
	unsigned char *p, *used, *behind;
	size_t at;

	used = get_filled(more, 3);
	p = calloc(1, bytes);
	behind = get_filled(3 * MIB, 4);
	check(p != NULL);
	free(used);
	for (at = 7 * MIB; at < bytes; at += 11 * MIB)
		memset(p + at + 1000, 9, 70000);
	p = realloc(p, more);
	check(p != NULL);
	for (at = 7 * MIB; at < bytes; at += 11 * MIB) {
		check(all(p + at - MIB, MIB + 1000, 0));
		check(all(p + at + 1000, 70000, 9));
		check(all(p + at + 71000, MIB, 0));
	}
	check(all(p, 7 * MIB, 0) && all(p + 41 * MIB - MIB - 4096, 4096, 0));
	check(holds(behind, 3 * MIB, 4));
	free(behind);
	free(p);
}

/* The next block, which must be zero, has it from one that was freed. */
static void used_again(void)
{
	const size_t bytes = 1024 * MIB;
	unsigned char *p = get(bytes);

	touch(p, bytes);
	p[bytes - 1] = 1;
	free(p);
	p = calloc(1, bytes);
	check(p != NULL && p[5] == 0 && p[bytes - 1] == 0);
	touch(p, bytes);
	touched(p, bytes, bytes);
	free(p);
}

int main(void)
{
	moved();
	used_again();
	zeros();
	puts("sparse: done");
	return 0;
}

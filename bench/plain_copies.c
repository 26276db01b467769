/* SPDX-License-Identifier: MIT */
/*
 * Copies of large blocks, and their use afterwards
 *
 * A plain program, to be run with and without lazy copies. A cycle is the whole life of
 * a copy: malloc, memcpy, the use that the mode says, free.
 *
 *      plain_copies [-m MODE] [-b BLOCK] [-n CYCLES]
 *
 *      read       all of the copy is read
 *      overwrite  all of the copy is written
 *      percent    one page in a hundred of the copy is written, all is read
 *      source     all of the source is written, then all of the copy is read
 *
 * The program checks what it reads. For each cycle it prints the time of the copy alone
 * and the wall and CPU time of the cycle, in microseconds.
 */
#include "bench/common.h"

static char *source;
static size_t bytes = 64 * MIB;

/* The sum of all words of a block; sum_of() is the sum that a pattern has. */
static uint64_t sum(const char *p)
{
	const uint64_t *words = (const void *)p;
	uint64_t s[4] = { 0 };

	for (size_t i = 0; i < bytes / 8; i += 4)
		for (int k = 0; k < 4; k++)
			s[k] += words[i + (size_t)k];
	return s[0] + s[1] + s[2] + s[3];
}

static uint64_t sum_of(int value)
{
	return bytes / 8 * (0x0101010101010101u * (uint64_t)value);
}

static void follow(const char *mode, char *copy, int cycle)
{
	int value = cycle % 100 + 2;

	if (!strcmp(mode, "overwrite")) {
		memset(copy, value, bytes);
		return;
	}
	if (!strcmp(mode, "source"))
		memset(source, value, bytes);
	if (!strcmp(mode, "percent"))
		for (size_t at = 0; at < bytes; at += 100 * PAGE)
			memset(copy + at, 1, PAGE);
	else if (strcmp(mode, "source") && strcmp(mode, "read"))
		die("there is no mode %s", mode);
	if (sum(copy) != sum_of(strcmp(mode, "source") ? 1 : value - 1))
		die("the copy has other bytes than its source had");
}

int main(int argc, char **argv)
{
	const char *mode = "read";
	int cycles = 10;

	OPTIONS({ 'm', .text = &mode }, { 'b', .size = &bytes }, { 'n', .count = &cycles });
	bytes &= -PAGE;
	source = block_of(bytes, false, 1);
	for (int i = 0; i < cycles; i++) {
		struct moment begin = moment_now();
		char *copy = block_of(bytes, false, -1);
		double t0, copied;

		use(copy);
		t0 = now_ns();
		memcpy(copy, source, bytes);
		use(copy);
		copied = us_since(t0);
		follow(mode, copy, i);
		use(copy);
		free(copy);
		printf("cycle=%d copy_us=%.1f wall_us=%.1f cpu_us=%.1f\n", i + 1, copied,
		       us_since(begin.wall), (cpu_ns() - begin.cpu) / 1e3);
	}
	return 0;
}

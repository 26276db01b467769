/* SPDX-License-Identifier: MIT */
/*
 * calloc gives zeroes to the last byte, also in memory that was used before
 */
#include "program.h"

static const size_t sizes[] = {
	1,     100,    4095,    4096,        4097,    60000,       65536,
	70001, 131072, MIB - 1, MIB + 4095,  2 * MIB, 4 * MIB + 3, 10 * MIB,
};

static void one_by_one(void)
{
	unsigned char *p;
	size_t i, j;

	for (j = 0; j < COUNT(sizes); j++)
		for (i = 0; i < COUNT(sizes); i++) {
			p = get(sizes[j]);
			memset(p, 0xee, sizes[j]);
			free(p);
			p = calloc(1, sizes[i]);
			check(p != NULL && all(p, sizes[i], 0));
			memset(p, 0xdd, sizes[i]);
			free(p);
		}
}

/* Many of random sizes, freed in random order, dirty. */
static void in_disorder(void)
{
	enum { MANY = 60 };
	unsigned char *p[MANY] = { 0 };
	size_t bytes[MANY] = { 0 }, i;
	uint64_t random = 42;
	int n;

	for (n = 0; n < 4000; n++) {
		i = below(&random, MANY);
		free(p[i]);
		bytes[i] = 1 + below(&random, n % 10 ? 150000 : 3 * MIB);
		if (n % 3) {
			p[i] = calloc(1, bytes[i]);
			check(p[i] != NULL && all(p[i], bytes[i], 0));
		} else {
			p[i] = get(bytes[i]);
		}
		memset(p[i], n | 1, bytes[i]);
	}
	for (i = 0; i < MANY; i++)
		free(p[i]);
}

/* Pages that a fork left private are recycled, too. */
static void dirty_and_free(void *arg)
{
	unsigned char *p = arg;

	check(holds(p, 3 * MIB, 1));
	memset(p, 0xcc, 3 * MIB);
	free(p);
	p = calloc(3, MIB);
	check(p != NULL && all(p, 3 * MIB, 0));
	free(p);
}

static void after_forks(void)
{
	unsigned char *p;
	int n;

	for (n = 0; n < 10; n++) {
		p = get_filled(3 * MIB, 1);
		in_child(dirty_and_free, p);
		check(holds(p, 3 * MIB, 1));
		memset(p, 0xbb, n % 2 ? 3 * MIB : MIB);
		free(p);
		p = calloc(1, 3 * MIB - (size_t)n);
		check(p != NULL && all(p, 3 * MIB - (size_t)n, 0));
		free(p);
	}
}

/* Large enough to be sparse; only what is touched may cost. A small machine refuses what is
 * larger than its memory. */
static void sparse(void)
{
	size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = memory / 4 < 2048 * MIB ? memory / 4 : 2048 * MIB, at;
	unsigned char *p = calloc(1, bytes);

	check(p != NULL);
	for (at = 0; at + 12345 < bytes; at += 64 * MIB) {
		check(p[at] == 0 && p[at + 12345] == 0);
		p[at] = 1;
	}
	free(p);
}

/* With an argument it leaves without any destructor. */
int main(int argc, char **argv)
{
	(void)argv;
	one_by_one();
	in_disorder();
	after_forks();
	sparse();
	puts("zero: done");
	fflush(NULL);
	if (argc > 1)
		_Exit(0);
	return 0;
}

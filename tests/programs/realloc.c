/* SPDX-License-Identifier: MIT */
/*
 * realloc, across the threshold and back, with every byte looked at
 */
#include "program.h"

static const size_t sizes[] = {
	1,      100,    4000,   4096,    5000,        65535,   65536,
	65537,  131072, 200000, MIB,     2 * MIB + 1, 3 * MIB, 9 * MIB,
};

static void every_pair(void)
{
	size_t i, j, least;
	unsigned char *p;

	for (i = 0; i < COUNT(sizes); i++)
		for (j = 0; j < COUNT(sizes); j++) {
			least = sizes[i] < sizes[j] ? sizes[i] : sizes[j];
			p = get_filled(sizes[i], i);
			p = realloc(p, sizes[j]);
			check(p != NULL && holds(p, least, i));
			fill(p, sizes[j], j + 50);
			p = realloc(p, sizes[i]);
			check(p != NULL && holds(p, least, j + 50));
			free(p);
		}
}

/* A buffer that grows as buffers do, among others that do as well. */
static void grow(void)
{
	enum { BUFFERS = 7 };
	unsigned char *p[BUFFERS] = { 0 };
	size_t bytes[BUFFERS] = { 0 }, more, total = 0, i;
	int round;

	for (round = 0; round < 60; round++)
		for (i = 0; i < BUFFERS; i++) {
			more = bytes[i] + bytes[i] / 4 + 100 * (i + 1);
			p[i] = realloc(p[i], more);
			check(p[i] != NULL && holds(p[i], bytes[i], i));
			fill(p[i], more, i);
			bytes[i] = more > 3 * MIB ? 1000 : more;
			if (bytes[i] != more)
				p[i] = realloc(p[i], bytes[i]);
			check(holds(p[i], bytes[i], i));
		}
	for (i = 0; i < BUFFERS; i++) {
		total += bytes[i];
		free(p[i]);
	}
	printf("realloc: %zu bytes at the end\n", total);
}

/* After a fork the old pages are not only ours. */
static void in_the_child(void *arg)
{
	unsigned char **p = arg;
	size_t i;

	for (i = 0; i < COUNT(sizes); i++) {
		check(holds(p[i], sizes[i], i));
		p[i] = realloc(p[i], 2 * sizes[i] + 1);
		check(p[i] != NULL && holds(p[i], sizes[i], i));
		fill(p[i], 2 * sizes[i] + 1, i + 9);
		p[i] = realloc(p[i], sizes[i] / 2 + 1);
		check(holds(p[i], sizes[i] / 2 + 1, i + 9));
	}
	for (i = 0; i < COUNT(sizes); i++)
		free(p[i]);
}

static void around_a_fork(void)
{
	unsigned char *p[COUNT(sizes)];
	pid_t child;
	size_t i;

	for (i = 0; i < COUNT(sizes); i++)
		p[i] = get_filled(sizes[i], i);
	child = start(in_the_child, p);
	for (i = 0; i < COUNT(sizes); i++) {
		p[i] = realloc(p[i], 3 * sizes[i]);
		check(p[i] != NULL && holds(p[i], sizes[i], i));
		fill(p[i], 3 * sizes[i], i + 5);
	}
	finish(child);
	for (i = 0; i < COUNT(sizes); i++) {
		check(holds(p[i], 3 * sizes[i], i + 5));
		free(p[i]);
	}
}

/* Allocators differ in what realloc to no bytes returns, but each is the same
 * for all sizes. */
static void to_nothing(void)
{
	int none = -1;
	size_t i;
	void *p;

	for (i = 0; i < COUNT(sizes); i++) {
		p = realloc(get_filled(sizes[i], i), 0);
		if (none < 0)
			none = p == NULL;
		check((p == NULL) == none);
		free(p);
	}
}

int main(void)
{
	every_pair();
	grow();
	around_a_fork();
	to_nothing();
	free(realloc(NULL, 200000));
	puts("realloc: done");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * All that a program does with its memory, after it gave up privileges
 *
 * It has six blocks, and checks that each holds its pattern.
 */
#ifndef COWSHED_TESTS_BORDER_LIVES_H
#define COWSHED_TESTS_BORDER_LIVES_H

#include "border_ways.h"

enum { ITEMS = 6 };

static const size_t sizes[ITEMS] = { MIB, 2 * MIB, 2 * MIB, 3 * MIB, 16 * KIB, MIB };
static unsigned char *item[ITEMS];
static const struct way *way;
static int no_forks; /* the only child of a new namespace of processes ended */

/* What a way needs may be missing: then it is left out in the same way with any malloc. */
static void must_drop(void)
{
	if (way->drop() != 0)
		_exit(77);
	no_forks = way->drop == by_new_pid;
}

static void make_items(unsigned seed)
{
	for (unsigned i = 0; i < ITEMS; i++)
		item[i] = get_filled(sizes[i], seed + i);
	free(item[2]);
	item[2] = get_filled(sizes[2], seed + 2);
}

static void check_items(unsigned seed)
{
	for (unsigned i = 0; i < ITEMS; i++)
		check(holds(item[i], sizes[i], seed + i));
}

static void fill_items(unsigned seed)
{
	for (unsigned i = 0; i < ITEMS; i++)
		fill(item[i], sizes[i], seed + i);
}

static void free_items(void)
{
	for (unsigned i = 0; i < ITEMS; i++)
		free(item[i]);
}

static void finish_or_skip(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (status == 77 << 8)
		printf("skip border_works %s is not to be had here\n", way->name);
	else
		check(status == 0);
}

static void checks_and_writes(void *arg)
{
	unsigned seed = *(unsigned *)arg;

	check_items(seed);
	fill_items(seed + 1);
	check_items(seed + 1);
}

static void executes(void *arg)
{
	(void)arg;
	/* Another user may not read the library. */
	unsetenv("LD_PRELOAD");
	execl("/proc/self/exe", "border_works", "executed", (char *)NULL);
	_exit(errno == ENOENT || errno == EACCES ? 0 : 1);
}

/* All that a program does with its memory. It has bytes of `seed`, and later of seed + 1. */
static void lives(unsigned seed)
{
	unsigned char *p;

	check_items(seed);
	if (!no_forks)
		in_child(checks_and_writes, &seed);
	check_items(seed);
	item[1][5 * PAGE] ^= 1;
	item[1][5 * PAGE] ^= 1;
	fill_items(seed + 1);
	check_items(seed + 1);
	p = get_filled(2 * MIB, seed + 50);
	p = realloc(p, 3 * MIB);
	check(p && holds(p, 2 * MIB, seed + 50));
	seed++;
	if (!no_forks)
		in_child(checks_and_writes, &seed);
	check(holds(p, 2 * MIB, seed + 49));
	free(p);
	free(item[0]);
	item[0] = calloc(1, sizes[0]);
	check(item[0] && all(item[0], sizes[0], 0));
	fill(item[0], sizes[0], seed);
	check_items(seed);
	if (!no_forks)
		in_child(executes, NULL);
}

#endif

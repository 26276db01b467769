/* SPDX-License-Identifier: MIT */
/*
 * malloc before main() and after it: constructors, exit handlers, destructors
 */
#include "program.h"

static unsigned char *early, *early_zero, *from_main;

__attribute__((constructor(101))) static void very_early(void)
{
	early = get_filled(2 * MIB, 1);
	early_zero = calloc(3, MIB);
	check(early_zero != NULL && all(early_zero, 3 * MIB, 0));
	early = realloc(early, 5 * MIB);
	check(early != NULL && holds(early, 2 * MIB, 1));
}

static void in_the_child(void *arg)
{
	(void)arg;
	check(holds(early, 2 * MIB, 1));
	fill(early, 5 * MIB, 2);
	free(early);
}

__attribute__((constructor)) static void early_fork(void)
{
	in_child(in_the_child, NULL);
	check(holds(early, 2 * MIB, 1));
}

static void at_exit(void)
{
	unsigned char *p = get_filled(3 * MIB, 4);

	check(holds(from_main, 2 * MIB, 3));
	free(from_main);
	check(holds(p, 3 * MIB, 4));
	free(p);
}

__attribute__((destructor)) static void late(void)
{
	check(holds(early, 2 * MIB, 1));
	in_child(in_the_child, NULL);
	free(early);
	check(all(early_zero, 3 * MIB, 0));
	free(early_zero);
	free(get_filled(MIB, 5));
}

int main(void)
{
	check(atexit(at_exit) == 0);
	from_main = get_filled(2 * MIB, 3);
	check(holds(early, 2 * MIB, 1));
	puts("early_late: done");
	return 0;
}

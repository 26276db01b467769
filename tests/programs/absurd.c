/* SPDX-License-Identifier: MIT */
/*
 * Sizes around what the machine has
 *
 * With its usual heuristic the kernel refuses a single piece of anonymous
 * memory that is larger than memory and swap together, and grants many smaller
 * ones. The program prints each answer. It must be the same with the shim, at the
 * request and not at a later touch. Little memory is touched.
 */
#include "program.h"

#include <malloc.h>
#include <sys/sysinfo.h>

enum { PARTS = 8 };

static size_t machine;

static const char *said(void *p, size_t bytes)
{
	unsigned char *c = p;

	if (p == NULL) {
		check(errno == ENOMEM);
		return "refused";
	}
	c[0] = c[bytes - 1] = 1;
	free(p);
	return "given";
}

static void one(const char *what, size_t bytes)
{
	printf("absurd: %s: malloc %s,", what, said(malloc(bytes), bytes));
	printf(" calloc %s,", said(calloc(1, bytes), bytes));
	printf(" memalign %s,", said(memalign(MIB, bytes), bytes));
	printf(" realloc %s\n", said(realloc(NULL, bytes), bytes));
}

/* Freed neighbours must not add up to a size that is refused. */
static void freed_neighbours(void)
{
	const size_t bytes = machine / 4;
	unsigned char *parts[PARTS];
	int i, given = 0;

	for (i = 0; i < PARTS; i++) {
		parts[i] = malloc(bytes);
		given += parts[i] != NULL;
		if (parts[i] != NULL)
			parts[i][bytes / 2] = 1;
	}
	for (i = 0; i < PARTS; i++)
		free(parts[i]);
	printf("absurd: %d quarters given\n", given);
	one("half as much again, of what was freed", machine / 2 * 3);
}

/* Only the bytes that are added are asked for. */
static void growth(void)
{
	unsigned char *p = malloc(machine / 2), *after, *more;
	static volatile size_t parts[] = { 3, 5, 6, 13 };
	size_t i;

	after = malloc(machine / 8);
	if (p == NULL || after == NULL)
		return;
	p[0] = 7;
	for (i = 0; i < COUNT(parts); i++) {
		errno = 0;
		more = realloc(p, machine / 4 * parts[i]);
		printf("absurd: grown to %zu quarters: %s\n", parts[i],
		       more != NULL ? "given" : "refused");
		check(more != NULL || errno == ENOMEM);
		p = more != NULL ? more : p;
		check(p[0] == 7);
	}
	free(p);
	free(after);
}

int main(void)
{
	struct sysinfo info;

	check(sysinfo(&info) == 0);
	machine = (info.totalram + info.totalswap) * info.mem_unit;
	one("half of the machine", machine / 2);
	one("a quarter more than the machine", machine / 4 * 5);
	one("twice the machine", machine * 2);
	one("a hundred machines", machine * 100);
	freed_neighbours();
	growth();
	one("half of the machine, again", machine / 2);
	return 0;
}

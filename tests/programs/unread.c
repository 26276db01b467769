/* SPDX-License-Identifier: MIT */
/*
 * What a program reads of a zeroed block, and never writes, takes no memory
 *
 * The kernel has one page of zeros for all that was never written of anonymous memory. RSS does
 * not count it, nor does a memory cgroup. A memfd has none: there each read makes a page.
 */
#include "program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (256 * MIB)
#define MOST (48 * MIB) /* what reading may take */
#define EACH (8 * MIB)  /* of many blocks */

static size_t resident(void)
{
	unsigned long all, here;
	FILE *f = fopen("/proc/self/statm", "re");

	check(f && fscanf(f, "%lu %lu", &all, &here) == 2);
	fclose(f);
	return here * PAGE;
}

/* One byte of every page; the kernel reads one in 16 of them, for a pipe. */
static void read_all(const unsigned char *p, size_t bytes)
{
	int ends[2];
	unsigned char byte;

	check(pipe(ends) == 0);
	for (size_t at = 0; at < bytes; at += PAGE) {
		check(p[at] == 0);
		if (at % (16 * PAGE))
			continue;
		check(write(ends[1], p + at + 1, 1) == 1 && read(ends[0], &byte, 1) == 1);
		check(byte == 0);
	}
	close(ends[0]);
	close(ends[1]);
}

static void child(void *arg)
{
	unsigned char *p = arg;
	size_t before = resident();

	check(p[3] == 1 && p[100 * MIB] == 2 && p[100 * MIB + 1] == 0);
	read_all(p + 101 * MIB, 100 * MIB);
	p[BYTES - 1] = 3;
	check(resident() - before < MOST);
}

static void one(void)
{
	size_t before = resident();
	unsigned char *p = calloc(1, BYTES);

	check(p != NULL);
	read_all(p, BYTES);
	check(resident() - before < MOST);
	p[3] = 1;
	p[100 * MIB] = 2;
	in_child(child, p);
	check(p[3] == 1 && p[100 * MIB] == 2 && p[BYTES - 1] == 0);
	/* It moves, or grows where it is. */
	p = realloc(p, BYTES + 64 * MIB);
	check(p != NULL && p[3] == 1 && p[100 * MIB] == 2 && p[BYTES - 1] == 0);
	free(p);
}

/* What was only read of a freed block is not made by clearing it. */
static void again(void)
{
	unsigned char *p;
	size_t before;

	for (int i = 0; i < 3; i++) {
		before = resident();
		p = calloc(BYTES, 1);
		check(p != NULL);
		read_all(p, BYTES);
		check(resident() < before + MOST);
		p[i * MIB] = 1;
		free(p);
	}
}

static void many(void)
{
	unsigned char *p[BYTES / EACH];
	size_t before = resident();

	for (size_t i = 0; i < COUNT(p); i++) {
		p[i] = calloc(EACH / 8, 8);
		check(p[i] != NULL);
		read_all(p[i], EACH);
	}
	check(resident() < before + MOST);
	for (size_t i = 0; i < COUNT(p); i++) {
		memset(p[i], (int)i + 1, EACH / COUNT(p) * i + 1);
		check(all(p[i], EACH / COUNT(p) * i + 1, (unsigned char)(i + 1)));
		check(all(p[i] + EACH / COUNT(p) * i + 1, EACH - EACH / COUNT(p) * i - 1, 0));
		free(p[i]);
	}
}

int main(void)
{
	one();
	again();
	many();
	puts("unread: done");
	return 0;
}

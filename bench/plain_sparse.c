/* SPDX-License-Identifier: MIT */
/*
 * A large block of which a share of the pages is touched, at random
 *
 *      plain_sparse [-s BYTES] [-p PERMILLE] [-H]
 *
 * Writes one byte in each of PERMILLE (10) of the pages of BYTES (16G), as a hash table
 * does. Then it waits a second, in which an allocator may commit memory ahead, checks
 * the bytes and prints what was touched. -H advises huge pages. plain_measure measures
 * the memory from outside.
 */
#include "bench/common.h"

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

int main(int argc, char **argv)
{
	size_t bytes = 16 * GIB, permille = 10, pages, n, i;
	uint64_t state = 88172645463325252u;
	bool huge = false;
	char *p;
	int c;

	while ((c = getopt(argc, argv, "s:p:H")) != -1)
		switch (c) {
		case 's': bytes = size_parse(optarg); break;
		case 'p': permille = size_parse(optarg); break;
		case 'H': huge = true; break;
		default: die("usage: see the head of bench/plain_sparse.c");
		}
	pages = bytes / PAGE;
	n = pages / 1000 * permille;
	p = malloc(bytes);
	if (!p)
		die("malloc: %s", strerror(errno));
	if (huge)
		madvise((char *)(((uintptr_t)p + PAGE - 1) & -PAGE),
		        bytes - PAGE, MADV_HUGEPAGE);
	for (i = 0; i < n; i++)
		p[next(&state) % pages * PAGE + 77] = 1;
	sleep_ms(1000);
	state = 88172645463325252u;
	for (i = 0; i < n; i++)
		if (p[next(&state) % pages * PAGE + 77] != 1)
			die("a byte was lost");
	printf("touched_mib=%.1f\n", (double)n * PAGE / MIB);
	return 0;
}

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

int main(int argc, char **argv)
{
	size_t bytes = 16 * GIB, permille = 10, pages, n, i;
	uint64_t state = RANDOM_START;
	bool huge = false;
	char *p;

	OPTIONS({ 's', .size = &bytes }, { 'p', .size = &permille }, { 'H', .flag = &huge });
	pages = bytes / PAGE;
	n = pages / 1000 * permille;
	p = block_of(bytes, huge, -1);
	for (i = 0; i < n; i++)
		p[random_next(&state) % pages * PAGE + 77] = 1;
	sleep_ms(1000);
	state = RANDOM_START;
	for (i = 0; i < n; i++)
		if (p[random_next(&state) % pages * PAGE + 77] != 1)
			die("a byte was lost");
	printf("touched_mib=%.1f\n", (double)n * PAGE / MIB);
	return 0;
}

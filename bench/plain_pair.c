/* SPDX-License-Identifier: MIT */
/*
 * malloc and free, in a tight loop
 *
 *      plain_pair [-s BYTES] [-n PAIRS] [-r ROUNDS]
 *
 * Small requests go to the next allocator; the shim adds two comparisons to a pair. A
 * plain program. It prints one line a round: the nanoseconds of a pair.
 */
#include "bench/common.h"

int main(int argc, char **argv)
{
	size_t bytes = 64;
	int n = 3, pairs = 20 * 1000 * 1000;

	OPTIONS({ 's', .size = &bytes }, { 'n', .count = &pairs }, { 'r', .count = &n });
	for (int i = -1; i < n; i++) { /* the first round warms up */
		double t0 = now_ns();

		for (int k = 0; k < pairs; k++) {
			char *p = malloc(bytes);

			use(p);
			free(p);
		}
		if (i >= 0)
			printf("pair_ns=%.4f\n", (now_ns() - t0) / pairs);
	}
	return 0;
}

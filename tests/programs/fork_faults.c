/* SPDX-License-Identifier: MIT */
/*
 * How many page faults a fork costs
 *
 *      fork_faults MIB
 *
 * The program has a block of so many MiB, written, and forks. Each child ends at once. It
 * prints the faults of the parent and the child for each fork.
 */
#include "program.h"

#include <sys/resource.h>

enum { WARM = 5, FORKS = 50 };

static long faults(void)
{
	struct rusage own, children;

	check(getrusage(RUSAGE_SELF, &own) == 0);
	check(getrusage(RUSAGE_CHILDREN, &children) == 0);
	return own.ru_minflt + children.ru_minflt;
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) * MIB : 0;
	unsigned char *p = bytes ? malloc(bytes) : NULL;
	long before = 0;
	int status;

	if (bytes) {
		check(p != NULL);
		fill(p, bytes, 1);
	}
	for (int n = 0; n < WARM + FORKS; n++) {
		pid_t child;

		if (n == WARM)
			before = faults();
		child = fork();
		check(child >= 0);
		if (child == 0)
			_exit(0);
		check(waitpid(child, &status, 0) == child && status == 0);
	}
	printf("%ld\n", (faults() - before) / FORKS);
	check(bytes == 0 || holds(p, bytes, 1));
	free(p);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Memory in which the kernel looks for equal pages (PR_SET_MEMORY_MERGE)
 *
 * New large blocks must be of that kind: after the program's own wish, by name and by number, and
 * in a program that inherits the wish by an exec.
 */
#include "program.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

/* Is the mapping around it marked for that? */
static int is_merged(const void *p)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	char line[512];
	int inside = 0, merged = -1;

	check(maps != NULL);
	while (merged < 0 && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from <= (unsigned long)p && (unsigned long)p < to;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			merged = strstr(line, " mg") != NULL;
	}
	fclose(maps);
	return merged;
}

static int of_new_block(void)
{
	unsigned char *p = get(8 * MIB);
	int merged;

	memset(p, 1, 8 * MIB);
	merged = is_merged(p);
	free(p);
	return merged;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		printf("inherited %d: %d\n", prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) == 1,
		       of_new_block());
		return 0;
	}
	if (prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0) < 0) {
		puts("this kernel has no such wish");
		return 0;
	}
	printf("at first: %d\n", of_new_block());
	check(prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) == 0);
	printf("wished: %d\n", of_new_block());
	check(prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0) == 0);
	printf("not wished: %d\n", of_new_block());
	check(syscall(SYS_prctl, PR_SET_MEMORY_MERGE, 1, 0, 0, 0) == 0);
	printf("wished by number: %d\n", of_new_block());
	fflush(stdout);
	execl("/proc/self/exe", argv[0], "again", (char *)NULL);
	return 1;
}

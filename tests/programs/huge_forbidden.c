/* SPDX-License-Identifier: MIT */
/*
 * A program that forbids itself huge pages is told so, and so are its children
 *
 *      huge_forbidden          checks the answers
 *      huge_forbidden known    prints whether this kernel can make an exception
 *      huge_forbidden mapped   prints whether its large block is in huge pages
 */
#include "program.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (64 * MIB)

static void is_forbidden(void *arg)
{
	unsigned char *p = arg;

	check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	check(holds(p, BYTES, 1));
	memset(p, 2, BYTES);
}

static void answers(void)
{
	unsigned char *p = get_filled(BYTES, 1);

	check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
	check(prctl(PR_SET_THP_DISABLE, 1, 77, 0, 0) == -1 && errno == EINVAL);
	check(prctl(PR_SET_THP_DISABLE, 1, 0, 77, 0) == -1 && errno == EINVAL);
	check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
	check(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	check(syscall(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	check(holds(p, BYTES, 1));
	in_child(is_forbidden, p);
	check(holds(p, BYTES, 1));
	memset(p + MIB, 3, MIB);
	in_child(is_forbidden, get_filled(BYTES, 1));
	check(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
	check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
	check(syscall(SYS_prctl, PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	check(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	free(p);
}

static long mapped_huge(void)
{
	char line[256];
	long kib = 0, n;
	FILE *f = fopen("/proc/self/smaps_rollup", "re");

	check(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "ShmemPmdMapped: %ld", &n) == 1)
			kib += n;
	fclose(f);
	return kib;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		answers();
	else if (strcmp(argv[1], "known") == 0)
		printf("%d\n", prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0) == 0);
	else {
		check(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
		get_filled(BYTES, 1);
		printf("%d\n", mapped_huge() > 0);
	}
	puts("huge_forbidden: done");
	return 0;
}

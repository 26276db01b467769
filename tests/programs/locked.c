/* SPDX-License-Identifier: MIT */
/*
 * mlockall() under a limit on locked memory
 *
 * All that is mapped counts against it, touched or not, unless one is root. A small program
 * is below what a kernel gives to all, and stays so.
 */
#include "program.h"

#include <sys/mman.h>
#include <sys/resource.h>

int main(void)
{
	struct rlimit most = { 512 * MIB, 512 * MIB };
	unsigned char *p = get_filled(MIB, 1);

	/* As much as it may have. */
	if (setrlimit(RLIMIT_MEMLOCK, &most) < 0)
		check(getrlimit(RLIMIT_MEMLOCK, &most) == 0);
	most.rlim_cur = most.rlim_max;
	if (most.rlim_max < 8 * MIB) {
		puts("locked: the limit is too low here");
		return 0;
	}
	check(setrlimit(RLIMIT_MEMLOCK, &most) == 0);
	if (getuid() == 0)
		check(setuid(65534) == 0);
	free(p);
	check(mlockall(MCL_CURRENT) == 0);
	check(munlockall() == 0);
	p = get_filled(40 * MIB, 2);
	check(holds(p, 40 * MIB, 2));
	free(p);
	puts("locked: done");
	return 0;
}

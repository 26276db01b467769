/* SPDX-License-Identifier: MIT */
/*
 * unshare(CLONE_NEWUSER) needs a process with one thread
 *
 * A program that never started a thread has one, whatever its malloc does. The
 * result is printed, since a machine may forbid it for other reasons; it must
 * be the same with and without the shim.
 */
#include "program.h"

#include <sched.h>

static void try_it(void *arg)
{
	(void)arg;
	errno = 0;
	printf("user_namespace: %d", unshare(CLONE_NEWUSER));
	printf(" errno %d\n", errno);
	fflush(NULL);
	free(get_filled(10 * MIB, 1));
}

int main(void)
{
	unsigned char *p[40];
	int i;

	in_child(try_it, NULL);
	for (i = 0; i < 40; i++)
		p[i] = get_filled(4 * MIB, (uint64_t)i);
	for (i = 0; i < 40; i++) {
		check(holds(p[i], 4 * MIB, (uint64_t)i));
		free(p[i]);
	}
	in_child(try_it, NULL);
	free(get_filled(20 * MIB, 1));
	/* And in the process that did all that. */
	try_it(NULL);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * A child of clone() whose function returns has ended
 *
 * libc then ends the child's one thread, and not the process. The child rewrites what it inherited,
 * allocates and frees for a while, and returns.
 */
#include "program.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

enum { CHILDREN = 3, TURNS = 20 };

static const size_t bytes = 16 * MIB, stack_bytes = MIB;
static unsigned char *inherited;

static int child(void *arg)
{
	struct timespec nap = { .tv_nsec = 10000000 };

	check(holds(inherited, bytes, 1));
	fill(inherited, bytes, 2);
	for (int i = 0; i < TURNS; i++) {
		unsigned char *p = get_filled(4 * MIB, (unsigned)i);

		nanosleep(&nap, NULL); /* other threads of the process may work */
		check(holds(p, 4 * MIB, (unsigned)i));
		free(p);
	}
	check(holds(inherited, bytes, 2));
	return *(int *)arg;
}

int main(void)
{
	unsigned char *stack = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE,
	                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(stack != MAP_FAILED);
	inherited = get_filled(bytes, 1);
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t pid = clone(child, stack + stack_bytes, SIGCHLD, &i);

		check(pid > 0 && waitpid(pid, &status, 0) == pid);
		check(WIFEXITED(status) && WEXITSTATUS(status) == i);
		check(holds(inherited, bytes, 1));
	}
	free(inherited);
	puts("clone_returns: done");
	return 0;
}

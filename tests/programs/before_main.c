/* SPDX-License-Identifier: MIT */
/*
 * Allocates and forks as early as a program can: while it is being relocated
 * (IFUNC), before the constructors of its libraries (preinit), in its own
 */
#include "program.h"

static unsigned char *from_relocation, *from_preinit;

static int answer(void)
{
	return 42;
}

#if defined(__x86_64__) || defined(__aarch64__)
/* Runs while the program is relocated: nothing but malloc is asked of it. */
static int (*resolve(void))(void)
{
	from_relocation = malloc(3 * MIB);
	if (from_relocation != NULL)
		memset(from_relocation, 7, 3 * MIB);
	return answer;
}

int resolved(void) __attribute__((ifunc("resolve")));
#else
#define resolved answer
#endif

static void rewrites(void *arg)
{
	check(holds(arg, 2 * MIB, 1));
	fill(arg, 2 * MIB, 2);
	free(arg);
	free(get_filled(3 * MIB, 3));
}

static void preinit(void)
{
	from_preinit = get_filled(2 * MIB, 1);
	in_child(rewrites, from_preinit);
	check(holds(from_preinit, 2 * MIB, 1));
}

__attribute__((section(".preinit_array"), used)) static void (*const early)(
	void) = preinit;

/* The program goes on in the child, as daemons do. */
__attribute__((constructor)) static void daemonize(void)
{
	unsigned char *p = get_filled(2 * MIB, 1);
	int status;
	pid_t child;

	in_child(rewrites, p);
	child = fork();
	check(child >= 0);
	if (child > 0) {
		check(waitpid(child, &status, 0) == child);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	check(holds(p, 2 * MIB, 1));
	free(p);
}

int main(void)
{
	check(resolved() == 42);
	check(from_relocation == NULL || all(from_relocation, 3 * MIB, 7));
	check(holds(from_preinit, 2 * MIB, 1));
	in_child(rewrites, from_preinit);
	fill(from_preinit, 2 * MIB, 5);
	free(from_relocation);
	free(from_preinit);
	puts("before_main: done");
	return 0;
}

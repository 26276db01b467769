/* SPDX-License-Identifier: MIT */
/*
 * A daemon that locks itself in: another root directory, another user, and no dumps.
 * Then it can't read its own /proc/self, if it has one
 *
 * Some of this depends on the user. The program leaves out what is not allowed.
 */
#include "program.h"

#include <grp.h>
#include <sys/prctl.h>

static const size_t bytes = 3 * MIB;
static char folder[] = "/tmp/dropped-XXXXXX";

static void rewrites(void *arg)
{
	check(holds(arg, bytes, 1));
	fill(arg, bytes, 2);
	free(arg);
	free(get_filled(2 * MIB, 3));
}

static void live(unsigned char *kept)
{
	unsigned char *p, *q;
	int n;

	for (n = 0; n < 4; n++) {
		p = get_filled(bytes, 1);
		in_child(rewrites, p);
		in_child(rewrites, kept);
		check(holds(p, bytes, 1) && holds(kept, bytes, 1));
		fill(p, bytes, 5);
		fill(kept, bytes, 1);
		q = calloc(3, MIB);
		check(q != NULL && all(q, 3 * MIB, 0));
		free(p);
		free(q);
	}
}

static void locked_in(void *arg)
{
	const char *how = arg;
	unsigned char *kept = get_filled(bytes, 1);

	if (strchr(how, 'r') && chroot(folder) == 0)
		check(chdir("/") == 0);
	if (strchr(how, 'u') && getuid() == 0) {
		(void)!setgroups(0, NULL);
		(void)!setgid(65534);
		(void)!setuid(65534);
	}
	if (strchr(how, 'd'))
		check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	live(kept);
	free(kept);
}

int main(void)
{
	static const char *const ways[] = { "d", "u", "r", "rud" };
	size_t i;

	check(mkdtemp(folder) != NULL);
	for (i = 0; i < COUNT(ways); i++) {
		in_child(locked_in, (void *)(uintptr_t)ways[i]);
		printf("dropped: %s\n", ways[i]);
	}
	check(rmdir(folder) == 0);
	/* Now with memory from before. */
	locked_in((void *)(uintptr_t) "ud");
	puts("dropped: done");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * A program that looks at every descriptor it may have
 *
 * It asks fstat() from 0 to sysconf(_SC_OPEN_MAX), and finds what it opened itself. So do a
 * forked child and a program that is executed. All have the limit that was set, whatever
 * memory they use.
 */
#include "program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { SOFT = 700, LOWERED = 650 };

static struct rlimit limit;

static void look(const char *when)
{
	struct rlimit now;
	struct stat st;
	int fd;

	check(getrlimit(RLIMIT_NOFILE, &now) == 0);
	check(now.rlim_cur == limit.rlim_cur && now.rlim_max == limit.rlim_max);
	check(sysconf(_SC_OPEN_MAX) == (long)limit.rlim_cur);
	for (fd = 3; fd < (int)limit.rlim_cur; fd++)
		if (fstat(fd, &st) == 0) {
			dprintf(2, "descriptors: %s: there is a %d\n", when, fd);
			_exit(1);
		}
}

static void child(void *arg)
{
	unsigned char *p;

	look("in a child");
	memset(arg, 3, MIB);
	p = get_filled(40 * MIB, 2);
	look("in a child with memory of its own");
	free(p);
}

/* Fills and frees blocks, and forks. */
static void live(const char *when)
{
	unsigned char *p = get_filled(40 * MIB, 1), *q;

	look(when);
	in_child(child, p);
	look("after a fork");
	q = get_filled(80 * MIB, 2);
	in_child(child, p);
	memset(p, 1, 40 * MIB);
	look("after more");
	free(q);
	free(p);
}

int main(int argc, char **argv)
{
	int fd;

	if (argc == 1) {
		check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
		if (limit.rlim_max <= SOFT) {
			puts("skip descriptors: the limit is too low");
			return 77;
		}
		for (fd = 3; fd < (int)limit.rlim_cur; fd++)
			close(fd);
		limit.rlim_cur = SOFT;
		check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		execl("/proc/self/exe", argv[0], "again", (char *)NULL);
		check(!"executed");
	}
	check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (strcmp(argv[1], "last") == 0) {
		look("in what was executed");
		live("in what was executed, with memory");
		puts("descriptors: done");
		return 0;
	}
	check(limit.rlim_cur == SOFT);
	live("with memory");
	/* Its own number at the limit, which it may also reach. */
	fd = fcntl(0, F_DUPFD, SOFT - 1);
	check(fd == SOFT - 1 && fcntl(0, F_DUPFD, SOFT - 1) == -1 && errno == EMFILE);
	check(dup2(0, SOFT) == -1 && errno == EBADF && close(fd) == 0);
	limit.rlim_cur = LOWERED;
	check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	live("below a lower limit");
	execl("/proc/self/exe", argv[0], "last", (char *)NULL);
	check(!"executed");
	return 1;
}

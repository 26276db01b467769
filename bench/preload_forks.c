/* SPDX-License-Identifier: MIT */
/*
 * Notes how long each fork() of a program takes
 *
 *      LD_PRELOAD=.../preload_forks.so FORKS_TO=FILE PROGRAM
 *
 * A library for LD_PRELOAD, which knows nothing of cowshed. It stands before the shim, so
 * the time includes what the shim does. Each fork adds a line to FILE: the microseconds
 * from the call to its return in the parent. The file is opened anew each time, since
 * servers close descriptors that they don't know.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef pid_t fork_fn(void);

static fork_fn *next;

__attribute__((constructor)) static void
find_next(void)
{
	void *found = dlsym(RTLD_NEXT, "fork");

	memcpy(&next, &found, sizeof(next));
}

static double
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void
note(double us)
{
	const char *path = getenv("FORKS_TO");
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%.1f\n", us);
	close(fd);
}

pid_t
fork(void)
{
	double t0 = now_us();
	pid_t pid = next();
	int error = errno;

	if (pid > 0)
		note(now_us() - t0);
	errno = error;
	return pid;
}

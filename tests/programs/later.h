/* SPDX-License-Identifier: MIT */
/*
 * A process that does something to the test's threads after a while
 *
 * It acts while all threads of the test wait, or while one of them moves pages.
 */
#ifndef COWSHED_TESTS_LATER_H
#define COWSHED_TESTS_LATER_H

#include "program.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct deed {
	unsigned us;        /* so long after it was told, and again */
	int times, fd, sig; /* writes to fd, or sends a signal if sig is not 0 ... */
	pid_t thread;       /* ... to this one */
};

static int later_pipe[2], later_done[2];
static pid_t later_process;

static inline void later_acts(void *arg)
{
	pid_t parent = *(pid_t *)arg;
	struct deed d;

	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	while (read(later_pipe[0], &d, sizeof(d)) == sizeof(d)) {
		for (; d.times > 0; d.times--) {
			usleep(d.us);
			if (d.sig)
				check(syscall(SYS_tgkill, parent, d.thread, d.sig) == 0);
			else
				check(write(d.fd, "hello", 5) == 5);
		}
		gate_open(later_done);
	}
}

/* Before there is any block that it would hold. */
static inline void later_begin(void)
{
	pid_t self = getpid();

	gate_make(later_pipe);
	gate_make(later_done);
	later_process = start(later_acts, &self);
}

static inline void later(struct deed d)
{
	check(write(later_pipe[1], &d, sizeof(d)) == sizeof(d));
}

static inline void later_wait(void)
{
	gate_wait(later_done);
}

static inline void later_end(void)
{
	int status;

	check(kill(later_process, SIGKILL) == 0);
	check(waitpid(later_process, &status, 0) == later_process);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Between the kernel's frame and a handler that interrupts the program nothing is written
 *
 * Another thread may make the signal stack read-only after the kernel put the signal
 * there. A handler that writes nothing gets through (LTP's signal06). So this program
 * prints how far the handler's frame is from the kernel's: before it ever blocked, and
 * after.
 */
#include "program.h"

#include <linux/membarrier.h>
#include <signal.h>
#include <sys/syscall.h>

static volatile long distance;

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	distance = (char *)context - (char *)__builtin_frame_address(0);
}

static void look(const char *when)
{
	distance = -1;
	check(kill(getpid(), SIGUSR1) == 0);
	printf("%s: the kernel's frame is %ld bytes away\n", when, distance);
}

int main(void)
{
	struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	/* Without this call each gate makes a fence, which may write. */
	if (!(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) &
	      MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
		puts("no membarrier");
		return 0;
	}
	check(sigaction(SIGUSR1, &a, NULL) == 0);
	look("at first");
	check(poll(NULL, 0, 1) == 0);
	look("after a call that blocks");
	check(sigaction(SIGUSR1, &a, NULL) == 0);
	look("with the handler set again");
	return 0;
}

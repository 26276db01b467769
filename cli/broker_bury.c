/* SPDX-License-Identifier: MIT */
/*
 * Closing what a client sent
 *
 * The last close of a descriptor may wait in the kernel: a TCP socket that lingers
 * (SO_LINGER) waits for a peer that never reads, a terminal for its line; and so
 * does a Unix socket in whose queue one of these lies. The broker has one thread,
 * and must not. So another process has the last reference: a child that does
 * nothing, and is killed as soon as the descriptors are closed here. Sockets do not
 * linger for a process that ends, and for whatever waits all the same only the
 * child does.
 *
 * Memfds never wait. All else is rubbish, so the price of a fork is rarely paid.
 */
#include "cli/broker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool waits(int fd)
{
	return fcntl(fd, F_GET_SEALS) < 0;
}

static _Noreturn void hold(pid_t broker)
{
	/* Not longer than the broker lives. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != broker)
		_exit(0);
	for (;;)
		pause();
}

void broker_bury(const int *fds, size_t n)
{
	const struct linger never = { 0 };
	pid_t broker = getpid(), child = 0;

	for (size_t i = 0; i < n; i++)
		if (waits(fds[i])) {
			child = fork();
			if (child == 0)
				hold(broker);
			break;
		}
	for (size_t i = 0; i < n; i++) {
		if (child < 0) /* then at least that */
			(void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &never,
			                 sizeof(never));
		close(fds[i]);
	}
	if (child > 0)
		kill(child, SIGKILL);
}

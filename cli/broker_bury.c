/* SPDX-License-Identifier: MIT */
/*
 * Closes descriptors that a client sent
 *
 * The last close of a descriptor may wait in the kernel. A TCP socket that lingers
 * (SO_LINGER) waits for a peer that never reads; a terminal waits for its line. A
 * Unix socket waits if one of these lies in its queue. The broker has one thread,
 * which must not wait. So a child has the last reference. The child does nothing,
 * and the broker kills it when it has closed the descriptors itself. Sockets do not
 * linger for a process that ends. If the kernel waits all the same, only the child
 * waits.
 *
 * The close of a memfd never waits. Proper clients send nothing else, so the broker
 * rarely forks.
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

static _Noreturn void hold_names(pid_t broker)
{
	/* It must not outlive the broker. */
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
				hold_names(broker);
			break;
		}
	for (size_t i = 0; i < n; i++) {
		if (child < 0) /* at least sockets must not linger */
			(void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &never,
			                 sizeof(never));
		close(fds[i]);
	}
	if (child > 0)
		kill(child, SIGKILL);
}

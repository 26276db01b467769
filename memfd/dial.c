/* SPDX-License-Identifier: MIT */
/*
 * Dialling: see the header; unix(7).
 */
#include "memfd/dial.h"
#include "memfd/process.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

extern char **environ;

/* A service has a queue of connections, and it may be full: then connect() waits.
 * A signal ends the wait and leaves nothing half done. */
static long
reach(long fd, const struct sockaddr_un *a, size_t bytes, uint64_t until)
{
	uint64_t now;
	long r = -EAGAIN;

	while ((r == -EAGAIN || r == -EINTR) && (now = cow__now()) < until) {
		uint64_t us = (until - now) / 1000 + 1; /* 0 would be for ever */
		struct timeval time = { .tv_sec = (time_t)(us / 1000000),
			                .tv_usec = (suseconds_t)(us % 1000000) };

		r = SYS6(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &time,
		         sizeof(time), 0);
		if (r == 0)
			r = SYS3(SYS_connect, fd, a, bytes);
	}
	return r == -EAGAIN || r == -EINTR ? -ETIMEDOUT : r;
}

int
cow__dial(const char *address, uint64_t until, struct cow__descriptor *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = strlen(address), bytes;
	long fd, r;

	if (n > COW__ADDRESS_MAX)
		return -ENAMETOOLONG;
	memcpy(a.sun_path, address, n);
	if (address[0] == '@')
		a.sun_path[0] = '\0';
	bytes = offsetof(struct sockaddr_un, sun_path) + n + (address[0] != '@');
	fd = SYS3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return (int)fd;
	/* Set before it is connected: the child of a fork meanwhile finds the
	 * descriptor and closes it. */
	*ret = cow__descriptor_adopt((int)fd);
	r = reach(ret->fd, &a, bytes, until);
	if (r == 0)
		r = sys_fcntl(ret->fd, F_SETFL, O_RDWR | O_NONBLOCK);
	if (r < 0)
		cow__descriptor_close(ret);
	return r < 0 ? (int)r : 0;
}

int
cow__dial_wait(int fd, bool to_write, uint64_t until)
{
	struct pollfd p = { .fd = fd, .events = to_write ? POLLOUT : POLLIN };
	long r;

	do {
		uint64_t now = cow__now(), ns = until > now ? until - now : 0;
		struct timespec left = { .tv_sec = (time_t)(ns / 1000000000u),
			                 .tv_nsec = (long)(ns % 1000000000u) };

		r = SYS6(SYS_ppoll, &p, 1, &left, NULL, 0, 0);
	} while (r == -EINTR && cow__now() < until);
	return r > 0 ? 0 : r == 0 || r == -EINTR ? -ETIMEDOUT : (int)r;
}

int
cow__run(const char *program, char *const argv[])
{
	char *const clean[] = { NULL };
	bool raised = cow__process_is_raised();
	posix_spawnattr_t how;
	sigset_t none;
	pid_t pid;
	int status, r;
	long w;

	/* The environment, PATH included, comes from a caller with fewer
	 * rights. */
	if (raised && program[0] != '/')
		return -EPERM;
	r = posix_spawnattr_init(&how);
	if (r != 0)
		return -r;
	(void)sigemptyset(&none);
	(void)posix_spawnattr_setsigmask(&how, &none);
	(void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawnp(&pid, program, NULL, &how, argv,
	                 raised ? clean : environ);
	(void)posix_spawnattr_destroy(&how);
	if (r != 0)
		return -r;
	do
		w = SYS4(SYS_wait4, pid, &status, 0, NULL);
	while (w == -EINTR);
	if (w < 0)
		return (int)w;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

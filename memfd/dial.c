/* SPDX-License-Identifier: MIT */
/*
 * Reaching a service. See the header; unix(7).
 */
#include "memfd/dial.h"
#include "memfd/sys.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

extern char **environ;

int
cow__dial(const char *address, uint32_t timeout_ms, struct cow__descriptor *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct timeval time = { .tv_sec = timeout_ms / 1000,
		                .tv_usec = timeout_ms % 1000 * 1000 };
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
	/* Also for connecting, where the other side accepts nobody. */
	r = SYS6(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &time,
	         sizeof(time), 0);
	if (r == 0)
		r = SYS6(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &time,
		         sizeof(time), 0);
	if (r == 0)
		r = SYS3(SYS_connect, fd, &a, bytes);
	if (r < 0) {
		(void)sys_close((int)fd);
		return (int)r;
	}
	*ret = cow__descriptor_adopt((int)fd);
	return 0;
}

int
cow__run(const char *program, char *const argv[])
{
	posix_spawnattr_t how;
	sigset_t none;
	pid_t pid;
	int status, r;
	long w;

	r = posix_spawnattr_init(&how);
	if (r != 0)
		return -r;
	(void)sigemptyset(&none);
	(void)posix_spawnattr_setsigmask(&how, &none);
	(void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawnp(&pid, program, NULL, &how, argv, environ);
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

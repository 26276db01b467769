/* SPDX-License-Identifier: MIT */
/*
 * Test support: namespaces. See the header.
 */
#include "tests/support/namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static int say(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r = -1;

	if (fd >= 0) {
		r = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
		close(fd);
	}
	return r;
}

int own_users(int as)
{
	char uid[32], gid[32];

	snprintf(uid, sizeof(uid), "%d %d 1", as, (int)getuid());
	snprintf(gid, sizeof(gid), "%d %d 1", as, (int)getgid());
	return unshare(CLONE_NEWUSER) < 0 || say("/proc/self/setgroups", "deny") < 0 ||
	                       say("/proc/self/uid_map", uid) < 0 ||
	                       say("/proc/self/gid_map", gid) < 0
	               ? -1
	               : 0;
}

int own_tmpfs(const char *folder, const char *options)
{
	if (own_users(0) < 0 || unshare(CLONE_NEWNS) < 0)
		return -1;
	return mount("none", folder, "tmpfs", 0, options);
}

static bool succeeds(pid_t child)
{
	int status = 1;

	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool may_own_users(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(own_users(0) < 0);
	return succeeds(child);
}

bool may_own_tmpfs(const char *folder)
{
	pid_t child = fork();

	if (child == 0)
		_exit(own_tmpfs(folder, "") < 0);
	return succeeds(child);
}

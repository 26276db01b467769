/* SPDX-License-Identifier: MIT */
/*
 * What failed tests leave behind. See the header.
 */
#include "tests/support/left.h"

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static pid_t runner;

void left_folder(char name[LEFT_NAME], const char *kind)
{
	snprintf(name, LEFT_NAME, "/tmp/cowshed-%s-%d-XXXXXX", kind, (int)runner);
	ck_assert_ptr_nonnull(mkdtemp(name));
}

pid_t left_listener(const char *address)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t bytes = strlen(address);
	struct ucred peer = { .pid = 0 };
	socklen_t size = sizeof(peer);
	int fd;

	if (bytes >= sizeof(a.sun_path))
		return 0;
	memcpy(a.sun_path, address, bytes);
	if (address[0] == '@')
		a.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connect(fd, (struct sockaddr *)&a,
	            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes +
	                        (address[0] == '/'))) != 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		peer.pid = 0;
	close(fd);
	return peer.pid;
}

/* A broker that was started for somebody else is nobody's child. */
static int end_broker(const char *folder)
{
	static const char *const forms[] = { "%s/broker", "@%s" };
	char address[600];
	int n = 0;

	for (size_t i = 0; i < 2; i++) {
		pid_t pid;

		snprintf(address, sizeof(address), forms[i], folder);
		pid = left_listener(address);
		if (pid > 0 && pid != runner)
			n += kill(pid, SIGKILL) == 0;
	}
	return n;
}

static int remove_folder(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			(void)unlinkat(dirfd(dir), e->d_name, 0);
	if (dir != NULL)
		closedir(dir);
	return rmdir(path) == 0;
}

static int tidy(const char *place)
{
	static const char *const kinds[] = { "broker", "file", "empty" };
	DIR *dir = opendir(place);
	const struct dirent *e;
	int n = 0;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			char with[LEFT_NAME], path[512];
			struct stat st;

			snprintf(with, sizeof(with), "cowshed-%s-%d-", kinds[i], (int)runner);
			snprintf(path, sizeof(path), "%s/%s", place, e->d_name);
			if (strstr(e->d_name, with) == NULL || lstat(path, &st) != 0)
				continue;
			if (S_ISDIR(st.st_mode))
				n += end_broker(path) + remove_folder(path);
			else
				n += unlink(path) == 0;
		}
	if (dir != NULL)
		closedir(dir);
	return n;
}

void left_begin(void)
{
	runner = getpid();
}

int left_end(void)
{
	return tidy("/tmp") + tidy("/dev/shm");
}

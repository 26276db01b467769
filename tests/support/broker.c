/* SPDX-License-Identifier: MIT */
/*
 * A broker for a test. See the header.
 */
#include "tests/support/broker.h"

#include <dirent.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

const char *host_program(void)
{
	const char *path = in_build("bin/cowshed");

	if (access(path, X_OK) < 0)
		ck_abort_msg("%s is not built", path);
	return path;
}

static socklen_t place(const struct host *h, struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path, h->address, strlen(h->address));
	if (h->address[0] == '@')
		a->sun_path[0] = '\0';
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
	                   strlen(h->address) + (h->address[0] == '/'));
}

void host_place(struct host *h, bool abstract)
{
	memset(h, 0, sizeof(*h));
	left_folder(h->folder, "broker");
	snprintf(h->address, sizeof(h->address), "%s%s",
	         abstract ? "@" : h->folder, abstract ? h->folder : "/broker");
}

struct starting {
	struct host *host;
	const char *how;
	struct gate said;
};

static void give_socket(struct host *h)
{
	struct sockaddr_un a;
	socklen_t bytes = place(h, &a);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	char pid[16];

	must(bind(fd, (struct sockaddr *)&a, bytes) == 0);
	must(listen(fd, 16) == 0);
	must(dup2(fd, 3) == 3);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
}

static void become(void *arg)
{
	struct starting *s = arg;
	const char *how = s->how ? s->how : "";
	const char *at = s->host->address[0] == '@' ? "--abstract" : "--socket";
	const char *more = how[0] == '-' ? how : "-v";
	const struct rlimit few = { 64, 64 };

	/* A test that fails leaves none behind. */
	must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	must(dup2(s->said.fd[1], 1) == 1);
	if (!strcmp(how, "others") || !strcmp(how, "few"))
		more = "--others";
	if (!strcmp(how, "few"))
		must(setrlimit(RLIMIT_NOFILE, &few) == 0);
	if (!strcmp(how, "activated")) {
		give_socket(s->host);
		execl(host_program(), "cowshed", "broker", "-v", (char *)NULL);
	} else {
		execl(host_program(), "cowshed", "broker", "-v", more, at,
		      s->host->address + (s->host->address[0] == '@'),
		      (char *)NULL);
	}
	_exit(127);
}

void host_again(struct host *h, const char *how)
{
	struct starting s = { h, how, { { -1, -1 } } };
	char line[256];
	size_t n = 0;

	gate_make(&s.said);
	h->pid = child_start(become, &s);
	do
		gate_receive(&s.said, line + n, 1);
	while (line[n++] != '\n' && n < sizeof(line));
	gate_free(&s.said);
}

void host_start(struct host *h, const char *how)
{
	host_place(h, how && (!strcmp(how, "abstract") ||
	                      !strcmp(how, "others") || !strcmp(how, "few")));
	host_again(h, how);
}

void host_kill(struct host *h)
{
	kill(h->pid, SIGKILL);
	ck_assert_int_eq(child_status(h->pid), SIGKILL);
	h->pid = 0;
}

void host_end(struct host *h)
{
	char path[128];

	if (h->pid) {
		kill(h->pid, SIGTERM);
		child_finish(h->pid);
	}
	snprintf(path, sizeof(path), "%s/broker.lock", h->folder);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/broker", h->folder);
	(void)unlink(path);
	(void)rmdir(h->folder);
}

struct cow_broker *host_connect(struct host *h)
{
	struct cow_broker_options o = { .size = sizeof(o),
		                        .address = h->address };
	struct cow_broker *b;

	ok(cow_broker_open(&o, &b));
	return b;
}

int host_dial(struct host *h)
{
	struct sockaddr_un a;
	socklen_t bytes = place(h, &a);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	must(connect(fd, (struct sockaddr *)&a, bytes) == 0);
	return fd;
}

pid_t host_peer(struct host *h)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	int fd = host_dial(h);

	must(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0);
	close(fd);
	return peer.pid;
}

int host_objects(struct cow_broker *b)
{
	struct cow_broker_item item;
	uint64_t cursor = 0;
	int n = 0, r;

	while ((r = cow_broker_list(b, &cursor, &item)) == 1)
		n++;
	ck_assert_int_eq(r, 0);
	return n;
}

long host_fds(struct host *h)
{
	char path[64];
	long n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)h->pid);
	d = opendir(path);
	must(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct cow_broker_item host_item(const char *name, enum cow_share_mode mode)
{
	struct cow_broker_item item = { .mode = mode, .permissions = 0600 };

	snprintf(item.name, sizeof(item.name), "%s", name);
	return item;
}

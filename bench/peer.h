/* SPDX-License-Identifier: MIT */
/*
 * Unix sockets: to a server, and to a second process, as benchmarks of sharing have
 *
 * Both processes have the same struct, each with its own ends: `data` for what is sent, `sync`
 * for bytes that put their steps in order. send_fd() and receive_fd() are what rivals do: one
 * descriptor a message.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench/common.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A connection to the server on a Unix socket. */
static inline int connected(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(a.sun_path))
		die("%s: too long a path", path);
	strcpy(a.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		die("connect: %s: %s", path, strerror(errno));
	return fd;
}

/* How many descriptors this process has open. */
static inline int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = -3; /* ".", "..", the folder's own */

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

struct peer {
	int data, sync;
	pid_t pid; /* 0 in the second process */
};

/* Forks. False in the second process. */
static inline bool peer_fork(struct peer *p)
{
	int data[2], sync[2], end;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, data) || socketpair(AF_UNIX, SOCK_STREAM, 0, sync))
		die("no sockets");
	fflush(stdout);
	p->pid = forked(NULL);
	end = p->pid == 0;
	p->data = data[end];
	p->sync = sync[end];
	close(data[!end]);
	close(sync[!end]);
	return p->pid > 0;
}

static inline void peer_end(struct peer *p)
{
	reap(p->pid);
	close(p->data);
	close(p->sync);
}

/* The message of one byte and room for a descriptor. */
struct fd_message {
	struct msghdr m;
	struct iovec iov;
	char room[CMSG_SPACE(sizeof(int))], byte;
};

static inline struct msghdr *fd_message(struct fd_message *f)
{
	*f = (struct fd_message){ .byte = 1 };
	f->iov = (struct iovec){ &f->byte, 1 };
	f->m = (struct msghdr){
		.msg_iov = &f->iov,
		.msg_iovlen = 1,
		.msg_control = f->room,
		.msg_controllen = sizeof(f->room),
	};
	return &f->m;
}

static inline void send_fd(int socket, int fd)
{
	struct fd_message f;
	struct msghdr *m = fd_message(&f);
	struct cmsghdr *h = CMSG_FIRSTHDR(m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(int));
	while (sendmsg(socket, m, 0) != 1)
		if (errno != ETOOMANYREFS && errno != EINTR)
			die("sendmsg: %s", strerror(errno));
}

static inline int receive_fd(int socket)
{
	struct fd_message f;
	struct cmsghdr *h;
	int fd;

	if (recvmsg(socket, fd_message(&f), 0) != 1 || !(h = CMSG_FIRSTHDR(&f.m)))
		die("recvmsg: %s", strerror(errno));
	memcpy(&fd, CMSG_DATA(h), sizeof(int));
	return fd;
}

#endif

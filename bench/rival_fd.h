/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives one descriptor a message by a Unix socket, as rivals of sharing do
 */
#ifndef BENCH_RIVAL_FD_H
#define BENCH_RIVAL_FD_H

#include "bench/common.h"

#include <sys/socket.h>

static inline void send_fd(int socket, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, c = 1;
	struct iovec iov = { &c, 1 };
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room),
	};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(int));
	while (sendmsg(socket, &m, 0) != 1)
		if (errno != ETOOMANYREFS && errno != EINTR)
			die("sendmsg: %s", strerror(errno));
}

static inline int receive_fd(int socket)
{
	char room[CMSG_SPACE(sizeof(int))], c;
	struct iovec iov = { &c, 1 };
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof(room),
	};
	struct cmsghdr *h;
	int fd;

	if (recvmsg(socket, &m, 0) != 1 || !(h = CMSG_FIRSTHDR(&m)))
		die("recvmsg: %s", strerror(errno));
	memcpy(&fd, CMSG_DATA(h), sizeof(int));
	return fd;
}

#endif

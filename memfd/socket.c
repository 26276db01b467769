/* SPDX-License-Identifier: MIT */
/*
 * Unix sockets that carry descriptors: see the header; unix(7), cmsg(3).
 */
#include "memfd/socket.h"
#include "memfd/descriptor.h"
#include "memfd/export.h"
#include "memfd/sys.h"

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

/* It has room for what the program may have asked for besides: credentials,
 * labels, times. Without that room the kernel would say that descriptors were cut
 * off. */
union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(COW__SOCKET_FDS * sizeof(int)) + 1024];
};

static int
option(int fd, int name, void *ret, socklen_t bytes)
{
	return (int)SYS6(SYS_getsockopt, fd, SOL_SOCKET, name, ret, &bytes, 0);
}

COW_EXPORT int
cow__socket_kind(int fd)
{
	int domain, type, r;

	r = option(fd, SO_DOMAIN, &domain, sizeof(domain));
	if (r == 0)
		r = option(fd, SO_TYPE, &type, sizeof(type));
	if (r < 0)
		return r;
	if (domain != AF_UNIX ||
	    (type != SOCK_STREAM && type != SOCK_SEQPACKET))
		return -EPROTOTYPE;
	return type == SOCK_STREAM;
}

long
cow__socket_packet(int fd)
{
	int bytes, r = option(fd, SO_SNDBUF, &bytes, sizeof(bytes));

	return r < 0 ? r : bytes - 32; /* see unix_dgram_sendmsg() */
}

int
cow__socket_peer(int fd, uint32_t *ret_uid, int32_t *ret_pid)
{
	struct ucred peer;
	int r = option(fd, SO_PEERCRED, &peer, sizeof(peer));

	if (r < 0)
		return r;
	*ret_uid = peer.uid;
	*ret_pid = peer.pid;
	return 0;
}

COW_EXPORT long
cow__socket_send(int fd, const void *data, size_t bytes, const int *fds,
                 unsigned nfds)
{
	struct iovec iov = { (void *)(uintptr_t)data, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control;
	long r;

	if (nfds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, nfds * sizeof(int));
	}
	do
		r = SYS3(SYS_sendmsg, fd, &msg, MSG_NOSIGNAL);
	while (r == -EINTR);
	return r;
}

static long
receive(int fd, struct msghdr *msg, int flags)
{
	long r;

	/* If the peer closed without reading, the kernel says so once, before
	 * what the peer sent. */
	do
		r = SYS3(SYS_recvmsg, fd, msg, flags);
	while (r == -EINTR || r == -ECONNRESET);
	return r;
}

static unsigned
descriptors(const struct cmsghdr *c)
{
	return (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
}

COW_EXPORT void
cow__socket_drop(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct cow__descriptor d = cow__descriptor_of(fds[i]);

		cow__descriptor_drop(&d);
	}
}

/* Receives with all descriptors that came. *ret_cut: there were more. */
static long
receive_all(int fd, void *data, size_t bytes, int flags,
            int all[COW__SOCKET_FDS], unsigned *ret_n, bool *ret_cut)
{
	int pid;
	struct iovec iov = { data, bytes };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	unsigned n = 0;
	long r = receive(fd, &msg, flags | MSG_CMSG_CLOEXEC);

	*ret_n = 0;
	if (r < 0)
		return r;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c;
	     c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS && !n) {
			n = descriptors(c);
			memcpy(all, CMSG_DATA(c), n * sizeof(int));
		} else if (c->cmsg_type == SCM_PIDFD) {
			memcpy(&pid, CMSG_DATA(c), sizeof(pid));
			if (pid >= 0)
				(void)sys_close(pid);
		}
	}
	*ret_n = n;
	*ret_cut = msg.msg_flags & MSG_CTRUNC;
	return r;
}

static long
receive_fds(int fd, void *data, size_t bytes, int flags, int *fds,
            unsigned room, unsigned *ret_nfds)
{
	int all[COW__SOCKET_FDS];
	unsigned n;
	bool cut;
	long r = receive_all(fd, data, bytes, flags, all, &n, &cut);

	*ret_nfds = 0;
	if (r < 0)
		return r;
	if (n > room || cut) {
		cow__socket_drop(all, n);
		if (n <= room)
			return -EMFILE;
	} else {
		memcpy(fds, all, n * sizeof(int));
	}
	*ret_nfds = n;
	return r;
}

long
cow__socket_look(int fd, void *data, size_t bytes, int *fds, unsigned room,
                 unsigned *ret_nfds)
{
	return receive_fds(fd, data, bytes, MSG_PEEK, fds, room, ret_nfds);
}

COW_EXPORT long
cow__socket_look_now(int fd, void *data, size_t bytes, int *fds, unsigned room,
                     unsigned *ret_nfds)
{
	return receive_fds(fd, data, bytes, MSG_PEEK | MSG_DONTWAIT, fds, room,
	                   ret_nfds);
}

COW_EXPORT int
cow__socket_pair(int ret[2])
{
	return (int)SYS6(SYS_socketpair, AF_UNIX,
	                 SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret, 0,
	                 0);
}

long
cow__socket_get(int fd, void *data, size_t bytes, int *fds, unsigned room,
                unsigned *ret_nfds)
{
	return receive_fds(fd, data, bytes, 0, fds, room, ret_nfds);
}

COW_EXPORT long
cow__socket_take(int fd, void *data, size_t bytes)
{
	struct iovec iov = { data, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return receive(fd, &msg, MSG_CMSG_CLOEXEC);
}

long
cow__socket_read(int fd, void *data, size_t bytes)
{
	int all[COW__SOCKET_FDS];
	unsigned n;
	bool cut;
	long r = receive_all(fd, data, bytes, 0, all, &n, &cut);

	cow__socket_drop(all, n);
	return r;
}

bool
cow__socket_ended(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	struct timespec now = { 0, 0 };
	int bytes = 0;

	/* First look for the end, then for what is left: after the end nothing is
	 * added. */
	if (SYS6(SYS_ppoll, &p, 1, &now, NULL, 0, 0) < 0 ||
	    !(p.revents & (POLLRDHUP | POLLHUP)))
		return false;
	return sys_ioctl(fd, FIONREAD, &bytes) < 0 || bytes == 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Unix sockets that carry descriptors
 *
 * A descriptor that does not fit into the receiver's table is lost: the kernel
 * closes it, says MSG_CTRUNC, and delivers the bytes all the same. So a receiver
 * looks first: a look (MSG_PEEK) installs duplicates of the descriptors, and
 * what could not be installed is still in the queue.
 */
#ifndef COW_MEMFD_SOCKET_H
#define COW_MEMFD_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one message: the limit of the kernel (SCM_MAX_FD). */
#define COW__SOCKET_FDS 253

/* 1: a stream; 0: it keeps messages apart (SOCK_SEQPACKET); -ENOTSOCK, -EPROTOTYPE:
 * not a connected Unix socket of those kinds. */
int cow__socket_kind(int fd);

/* Bytes of the longest packet that such a socket takes. */
long cow__socket_packet(int fd);

/* The peer's user, as it was when the connection was made. */
int cow__socket_peer(int fd, uint32_t *ret_uid, int32_t *ret_pid);

/*
 * Sends bytes, and with the first of them `nfds` descriptors. The number of
 * bytes sent, which may be fewer on a stream; -EAGAIN: full (a socket that does
 * not block); -EPIPE, never a signal; -ETOOMANYREFS: too many descriptors of
 * this user are on their way.
 */
long cow__socket_send(int fd, const void *data, size_t bytes, const int *fds,
                      unsigned nfds);

/*
 * Looks at what is there, up to `bytes`, without taking it. Duplicates of the
 * descriptors that came with it go to `fds` (`room` of them), CLOEXEC and owned by
 * the caller, also on short results; if *ret_nfds > room there were more, and none
 * is given. The number of bytes, 0 at the end; -EMFILE: not all of the descriptors
 * can be had now, none is given.
 */
long cow__socket_look(int fd, void *data, size_t bytes, int *fds, unsigned room,
                      unsigned *ret_nfds);

/* Takes up to `bytes` and the descriptors at once: for what can be asked for
 * again. -EMFILE: it was lost, all of it. Else as above. */
long cow__socket_get(int fd, void *data, size_t bytes, int *fds, unsigned room,
                     unsigned *ret_nfds);

/* The same as look, and never waits, whatever the socket does otherwise: for sockets
 * that came from elsewhere. */
long cow__socket_look_now(int fd, void *data, size_t bytes, int *fds,
                          unsigned room, unsigned *ret_nfds);

/* Two ends of a packet socket, CLOEXEC and not blocking. A queue of descriptors that
 * can be sent as one. */
int cow__socket_pair(int ret[2]);

/* Takes up to `bytes` that were looked at; the kernel closes what came with them. */
long cow__socket_take(int fd, void *data, size_t bytes);

/* The same of what nobody looked at: what comes with it goes as below. */
long cow__socket_read(int fd, void *data, size_t bytes);

/* Closes descriptors that came and are not wanted: cow__descriptor_drop(). */
void cow__socket_drop(const int *fds, unsigned n);

/* A look at 0 bytes: is it the end (nothing more was or will be sent), or a packet
 * of none? */
bool cow__socket_ended(int fd);

#endif

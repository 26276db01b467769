/* SPDX-License-Identifier: MIT */
/*
 * Unix sockets that carry descriptors
 *
 * A descriptor that does not fit into the receiver's table is lost: the kernel
 * closes it, says MSG_CTRUNC, and delivers the bytes all the same. So a receiver
 * looks first. A look (MSG_PEEK) installs duplicates of the descriptors. What
 * could not be installed is still in the queue.
 */
#ifndef COW_MEMFD_SOCKET_H
#define COW_MEMFD_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most descriptors in one message: the limit of the kernel (SCM_MAX_FD). */
#define COW__SOCKET_FDS 253

/* 1: a stream. 0: it keeps messages apart (SOCK_SEQPACKET). -ENOTSOCK,
 * -EPROTOTYPE: not a connected Unix socket of those kinds. */
int cow__socket_kind(int fd);

/* The bytes of the longest packet that such a socket takes. */
long cow__socket_packet(int fd);

/* The peer's user and process, as of the moment of the connection. */
int cow__socket_peer(int fd, uint32_t *ret_uid, int32_t *ret_pid);

/*
 * Sends bytes, and `nfds` descriptors with the first byte. Returns the number of
 * bytes sent, which may be fewer on a stream. -EAGAIN: the queue of a socket that
 * does not block is full. -EPIPE, never a signal. -ETOOMANYREFS: too many
 * descriptors of this user are on their way.
 */
long cow__socket_send(int fd, const void *data, size_t bytes, const int *fds,
                      unsigned nfds);

/*
 * Looks at what is there, up to `bytes`, without taking it. Duplicates of the
 * descriptors that came with it go to `fds`, which has `room`. They are CLOEXEC
 * and owned by the caller, also on short results. If *ret_nfds > room there were
 * more, and the caller gets none. Returns the number of bytes, 0 at the end.
 * -EMFILE: the process can't have all of the descriptors now, and the caller gets
 * none.
 */
long cow__socket_look(int fd, void *data, size_t bytes, int *fds, unsigned room,
                      unsigned *ret_nfds);

/* Takes up to `bytes` and the descriptors at once: for messages that can be asked
 * for again. -EMFILE: all of it was lost. Otherwise as above. */
long cow__socket_get(int fd, void *data, size_t bytes, int *fds, unsigned room,
                     unsigned *ret_nfds);

/* As cow__socket_look(), and never waits, even if the socket blocks: for sockets
 * that came from elsewhere. */
long cow__socket_look_now(int fd, void *data, size_t bytes, int *fds,
                          unsigned room, unsigned *ret_nfds);

/* Makes the two ends of a packet socket, CLOEXEC and not blocking. It is a queue
 * of descriptors that can itself be sent as one. */
int cow__socket_pair(int ret[2]);

/* Takes up to `bytes` that the caller has looked at. The kernel closes the
 * descriptors that came with them. */
long cow__socket_take(int fd, void *data, size_t bytes);

/* The same for bytes that nobody looked at. Descriptors that come with them go to
 * cow__socket_drop(). */
long cow__socket_read(int fd, void *data, size_t bytes);

/* Closes descriptors that came and are not wanted, with
 * cow__descriptor_drop(). */
void cow__socket_drop(const int *fds, unsigned n);

/* After a look that found 0 bytes: is it the end (nothing more was or will be
 * sent), or an empty packet? */
bool cow__socket_ended(int fd);

#endif

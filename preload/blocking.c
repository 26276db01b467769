/* SPDX-License-Identifier: MIT */
/*
 * Blocking calls of libc: safe points (quiet/park.h)
 *
 * Each wrapper parks the thread, and lists what the kernel may write for it. Calls
 * whose buffers only the kernel can follow (readv, recvmsg) don't park: a bad
 * pointer must stay an error, so the shim must not look through it.
 */
#undef _FORTIFY_SOURCE
#include "preload/next.h"
#include "preload/park.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define W(p, bytes) preload_may_write(&call, p, bytes)
#define NOTHING ((void)0)
#define ADDRESS(a, n) (W(a, sizeof(struct sockaddr_storage)), W(n, sizeof(*n)))

/* A name of its own for each: type, name, parameters, arguments, what is written. */
#define CALLS(X)                                                               \
	X(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), W(p, n))     \
	X(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n),       \
	  NOTHING)                                                             \
	X(ssize_t, pread, (int fd, void *p, size_t n, off_t at),               \
	  (fd, p, n, at), W(p, n))                                             \
	X(ssize_t, pread64, (int fd, void *p, size_t n, off64_t at),           \
	  (fd, p, n, at), W(p, n))                                             \
	X(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at),        \
	  (fd, p, n, at), NOTHING)                                             \
	X(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at),    \
	  (fd, p, n, at), NOTHING)                                             \
	X(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), \
	  NOTHING)                                                             \
	X(ssize_t, recv, (int fd, void *p, size_t n, int flags),               \
	  (fd, p, n, flags), W(p, n))                                          \
	X(ssize_t, recvfrom,                                                   \
	  (int fd, void *p, size_t n, int flags, struct sockaddr *a,           \
	   socklen_t *an),                                                     \
	  (fd, p, n, flags, a, an), (W(p, n), ADDRESS(a, an)))                 \
	X(ssize_t, send, (int fd, const void *p, size_t n, int flags),         \
	  (fd, p, n, flags), NOTHING)                                          \
	X(ssize_t, sendto,                                                     \
	  (int fd, const void *p, size_t n, int flags,                         \
	   const struct sockaddr *a, socklen_t an),                            \
	  (fd, p, n, flags, a, an), NOTHING)                                   \
	X(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags),       \
	  (fd, m, flags), NOTHING)                                             \
	X(ssize_t, sendfile, (int to, int from, off_t *at, size_t n),          \
	  (to, from, at, n), W(at, sizeof(*at)))                               \
	X(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t n),      \
	  (to, from, at, n), W(at, sizeof(*at)))                               \
	X(int, accept, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), \
	  ADDRESS(a, n))                                                       \
	X(int, accept4,                                                        \
	  (int fd, struct sockaddr *a, socklen_t *n, int flags),               \
	  (fd, a, n, flags), ADDRESS(a, n))                                    \
	X(int, connect, (int fd, const struct sockaddr *a, socklen_t n),       \
	  (fd, a, n), NOTHING)                                                 \
	X(int, poll, (struct pollfd *p, nfds_t n, int ms), (p, n, ms),         \
	  W(p, n * sizeof(*p)))                                                \
	X(int, ppoll,                                                          \
	  (struct pollfd *p, nfds_t n, const struct timespec *t,               \
	   const sigset_t *s),                                                 \
	  (p, n, t, s), W(p, n * sizeof(*p)))                                  \
	X(int, select,                                                         \
	  (int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t),         \
	  (n, r, w, x, t),                                                     \
	  (W(r, bits(n)), W(w, bits(n)), W(x, bits(n)), W(t, sizeof(*t))))     \
	X(int, pselect,                                                        \
	  (int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *t,   \
	   const sigset_t *s),                                                 \
	  (n, r, w, x, t, s), (W(r, bits(n)), W(w, bits(n)), W(x, bits(n))))   \
	X(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms),     \
	  (fd, e, n, ms), W(e, n > 0 ? (size_t)n * sizeof(*e) : 0))            \
	X(int, epoll_pwait,                                                    \
	  (int fd, struct epoll_event *e, int n, int ms, const sigset_t *s),   \
	  (fd, e, n, ms, s), W(e, n > 0 ? (size_t)n * sizeof(*e) : 0))         \
	X(int, epoll_pwait2,                                                   \
	  (int fd, struct epoll_event *e, int n, const struct timespec *t,     \
	   const sigset_t *s),                                                 \
	  (fd, e, n, t, s), W(e, n > 0 ? (size_t)n * sizeof(*e) : 0))          \
	X(int, nanosleep, (const struct timespec *t, struct timespec *left),   \
	  (t, left), W(left, sizeof(*left)))                                   \
	X(int, clock_nanosleep,                                                \
	  (clockid_t c, int flags, const struct timespec *t,                   \
	   struct timespec *left),                                             \
	  (c, flags, t, left), W(left, sizeof(*left)))                         \
	X(int, usleep, (useconds_t us), (us), NOTHING)                         \
	X(unsigned, sleep, (unsigned s), (s), NOTHING)                         \
	X(int, sigwait, (const sigset_t *set, int *sig), (set, sig),           \
	  W(sig, sizeof(*sig)))                                                \
	X(int, sigwaitinfo, (const sigset_t *set, siginfo_t *info),            \
	  (set, info), W(info, sizeof(*info)))                                 \
	X(int, sigtimedwait,                                                   \
	  (const sigset_t *set, siginfo_t *info, const struct timespec *until), \
	  (set, info, until), W(info, sizeof(*info)))                          \
	X(int, sigsuspend, (const sigset_t *set), (set), NOTHING)              \
	X(int, pause, (void), (), NOTHING)                                     \
	X(int, fsync, (int fd), (fd), NOTHING)                                 \
	X(int, fdatasync, (int fd), (fd), NOTHING)                             \
	X(int, flock, (int fd, int how), (fd, how), NOTHING)                   \
	X(int, lockf, (int fd, int how, off_t n), (fd, how, n), NOTHING)       \
	X(int, lockf64, (int fd, int how, off64_t n), (fd, how, n), NOTHING)   \
	X(ssize_t, msgrcv, (int id, void *p, size_t n, long type, int flags),  \
	  (id, p, n, type, flags), W(p, n + sizeof(long)))                     \
	X(int, msgsnd, (int id, const void *p, size_t n, int flags),           \
	  (id, p, n, flags), NOTHING)                                          \
	X(int, semop, (int id, struct sembuf *ops, size_t n), (id, ops, n),    \
	  NOTHING)                                                             \
	X(int, semtimedop,                                                     \
	  (int id, struct sembuf *ops, size_t n, const struct timespec *t),    \
	  (id, ops, n, t), NOTHING)                                            \
	X(ssize_t, mq_receive, (mqd_t q, char *p, size_t n, unsigned *prio),   \
	  (q, p, n, prio), (W(p, n), W(prio, sizeof(*prio))))                  \
	X(ssize_t, mq_timedreceive,                                            \
	  (mqd_t q, char *p, size_t n, unsigned *prio,                         \
	   const struct timespec *t),                                          \
	  (q, p, n, prio, t), (W(p, n), W(prio, sizeof(*prio))))               \
	X(int, mq_send, (mqd_t q, const char *p, size_t n, unsigned prio),     \
	  (q, p, n, prio), NOTHING)                                            \
	X(int, mq_timedsend,                                                   \
	  (mqd_t q, const char *p, size_t n, unsigned prio,                    \
	   const struct timespec *t),                                          \
	  (q, p, n, prio, t), NOTHING)

/* What programs call that were built with _FORTIFY_SOURCE; glibc alone has them. */
#define CHECKED_CALLS(X)                                                       \
	X(ssize_t, __read_chk, (int fd, void *p, size_t n, size_t room),       \
	  (fd, p, n, room), W(p, n))                                           \
	X(ssize_t, __pread_chk,                                                \
	  (int fd, void *p, size_t n, off_t at, size_t room),                  \
	  (fd, p, n, at, room), W(p, n))                                       \
	X(ssize_t, __pread64_chk,                                              \
	  (int fd, void *p, size_t n, off64_t at, size_t room),                \
	  (fd, p, n, at, room), W(p, n))                                       \
	X(ssize_t, __recv_chk,                                                 \
	  (int fd, void *p, size_t n, size_t room, int flags),                 \
	  (fd, p, n, room, flags), W(p, n))                                    \
	X(ssize_t, __recvfrom_chk,                                             \
	  (int fd, void *p, size_t n, size_t room, int flags,                  \
	   struct sockaddr *a, socklen_t *an),                                 \
	  (fd, p, n, room, flags, a, an), (W(p, n), ADDRESS(a, an)))           \
	X(int, __poll_chk, (struct pollfd *p, nfds_t n, int ms, size_t room),  \
	  (p, n, ms, room), W(p, n * sizeof(*p)))                              \
	X(int, __ppoll_chk,                                                    \
	  (struct pollfd *p, nfds_t n, const struct timespec *t,               \
	   const sigset_t *s, size_t room),                                    \
	  (p, n, t, s, room), W(p, n * sizeof(*p)))

static inline size_t
bits(int n)
{
	return n > 0 ? ((size_t)n + 63) / 64 * 8 : 0;
}

#define POINTER(type, name, parameters, arguments, written)                    \
	static type(*next_##name) parameters;
CALLS(POINTER)
CHECKED_CALLS(POINTER)
static int (*next_fcntl)(int, int, ...);
static int (*next_fcntl64)(int, int, ...);

void
preload_blocking_init(void)
{
	void *p;

#define LOOK(type, name, parameters, arguments, written)                       \
	p = preload_next_symbol(#name);                                        \
	memcpy(&next_##name, &p, sizeof(p));
	CALLS(LOOK)
	CHECKED_CALLS(LOOK)
	LOOK(int, fcntl, (), (), NOTHING)
	LOOK(int, fcntl64, (), (), NOTHING)
}

/* Before the constructor, and for names that this libc lacks. */
static bool
looked_up(const void *pointer)
{
	void *p;

	memcpy(&p, pointer, sizeof(p));
	if (p)
		return true;
	preload_blocking_init();
	memcpy(&p, pointer, sizeof(p));
	if (!p)
		errno = ENOSYS;
	return p != NULL;
}

#define WRAPPER(type, name, parameters, arguments, written)                    \
	PRELOAD_WRAPPER(type, name, next_##name, parameters, arguments, (type)-1, written)
CALLS(WRAPPER)
CHECKED_CALLS(WRAPPER)

/* Only the commands that wait for a lock park: the kernel reads their argument. */
#define FCNTL(name)                                                            \
	EXPORT int name(int fd, int command, ...)                              \
	{                                                                      \
		struct cow__park_call call;                                    \
		struct cow__park_thread *parked = NULL;                        \
		void *arg;                                                     \
		va_list ap;                                                    \
		int result;                                                    \
                                                                               \
		preload_call(&call);                                           \
		va_start(ap, command);                                         \
		arg = va_arg(ap, void *);                                      \
		va_end(ap);                                                    \
		if (!next_##name && !looked_up(&next_##name))                  \
			return -1;                                             \
		if (command == F_SETLKW || command == F_OFD_SETLKW)            \
			parked = preload_park(&call);                          \
		result = next_##name(fd, command, arg);                        \
		preload_unpark(parked, &call);                                 \
		return result;                                                 \
	}
FCNTL(fcntl)
FCNTL(fcntl64)

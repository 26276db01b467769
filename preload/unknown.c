/* SPDX-License-Identifier: MIT */
/*
 * Calls that a stop must not meet, and in which a thread is not parked (quiet/stop.h)
 *
 *   exec..         a stop that is still on its way would end the new program, which has no
 *                  handler for it. libc's execl() and the like go to an execve() of libc's own,
 *                  so the lists are made into arrays here
 *   readv, ..      may give less than was asked for if a signal comes. What the kernel writes
 *                  for them is in a list of the program's, or they write no memory of it
 *
 * With the option quiet=signal alone. A child of vfork() leaves its parent's record as it is.
 */
#undef _FORTIFY_SOURCE
#include "preload/next.h"
#include "preload/park.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* type, name, parameters, arguments */
#define CALLS(X)                                                               \
	X(int, execve, (const char *path, char *const v[], char *const e[]),   \
	  (path, v, e))                                                        \
	X(int, execv, (const char *path, char *const v[]), (path, v))          \
	X(int, execvp, (const char *file, char *const v[]), (file, v))         \
	X(int, execvpe, (const char *file, char *const v[], char *const e[]),  \
	  (file, v, e))                                                        \
	X(int, fexecve, (int fd, char *const v[], char *const e[]), (fd, v, e)) \
	X(int, execveat,                                                       \
	  (int fd, const char *path, char *const v[], char *const e[],         \
	   int flags),                                                         \
	  (fd, path, v, e, flags))                                             \
	X(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))  \
	X(ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t at),   \
	  (fd, v, n, at))                                                      \
	X(ssize_t, preadv64,                                                   \
	  (int fd, const struct iovec *v, int n, off64_t at), (fd, v, n, at))  \
	X(ssize_t, preadv2,                                                    \
	  (int fd, const struct iovec *v, int n, off_t at, int flags),         \
	  (fd, v, n, at, flags))                                               \
	X(ssize_t, preadv64v2,                                                 \
	  (int fd, const struct iovec *v, int n, off64_t at, int flags),       \
	  (fd, v, n, at, flags))                                               \
	X(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t at),  \
	  (fd, v, n, at))                                                      \
	X(ssize_t, pwritev64,                                                  \
	  (int fd, const struct iovec *v, int n, off64_t at), (fd, v, n, at))  \
	X(ssize_t, pwritev2,                                                   \
	  (int fd, const struct iovec *v, int n, off_t at, int flags),         \
	  (fd, v, n, at, flags))                                               \
	X(ssize_t, pwritev64v2,                                                \
	  (int fd, const struct iovec *v, int n, off64_t at, int flags),       \
	  (fd, v, n, at, flags))                                               \
	X(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags),             \
	  (fd, m, flags))                                                      \
	X(int, recvmmsg,                                                       \
	  (int fd, struct mmsghdr *m, unsigned n, int flags,                   \
	   struct timespec *most),                                             \
	  (fd, m, n, flags, most))                                             \
	X(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags),   \
	  (fd, m, n, flags))                                                   \
	X(ssize_t, getrandom, (void *p, size_t n, unsigned flags),             \
	  (p, n, flags))                                                       \
	X(ssize_t, splice,                                                     \
	  (int from, off64_t *from_at, int to, off64_t *to_at, size_t n,       \
	   unsigned flags),                                                    \
	  (from, from_at, to, to_at, n, flags))                                \
	X(ssize_t, tee, (int from, int to, size_t n, unsigned flags),          \
	  (from, to, n, flags))                                                \
	X(ssize_t, copy_file_range,                                            \
	  (int from, off64_t *from_at, int to, off64_t *to_at, size_t n,       \
	   unsigned flags),                                                    \
	  (from, from_at, to, to_at, n, flags))                                \
	X(int, fallocate, (int fd, int mode, off_t at, off_t n),               \
	  (fd, mode, at, n))                                                   \
	X(int, fallocate64, (int fd, int mode, off64_t at, off64_t n),         \
	  (fd, mode, at, n))

#define POINTER(type, name, parameters, arguments)                             \
	static type(*next_##name) parameters;
CALLS(POINTER)

void
preload_unknown_init(void)
{
	void *p;

#define LOOK(type, name, parameters, arguments)                                \
	p = preload_next_symbol(#name);                                        \
	memcpy(&next_##name, &p, sizeof(p));
	CALLS(LOOK)
}

/* Before the constructor, and for names that this libc lacks. */
static bool
looked_up(const void *pointer)
{
	void *p;

	preload_unknown_init();
	memcpy(&p, pointer, sizeof(p));
	if (!p)
		errno = ENOSYS;
	return p != NULL;
}

#define WRAPPER(type, name, parameters, arguments)                             \
	EXPORT type name parameters;                                           \
	EXPORT type name parameters                                            \
	{                                                                      \
		struct cow__park_call call = PRELOAD_UNKNOWN;                  \
		struct cow__park_thread *t;                                    \
		type result;                                                   \
                                                                               \
		if (__builtin_expect(!next_##name, 0) &&                       \
		    !looked_up(&next_##name))                                  \
			return (type)-1;                                       \
		t = preload_unstoppable(&call);                                \
		result = next_##name arguments;                                \
		preload_unpark(t, &call);                                      \
		return result;                                                 \
	}
CALLS(WRAPPER)

/* With room for the NULL at the end. */
static size_t
count_arguments(va_list ap)
{
	size_t n = 2;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/* The list becomes an array on the stack, as in libc. */
#define LIST(name, before_exec, exec_with)                                     \
	EXPORT int name(const char *path, const char *first, ...);             \
	EXPORT int name(const char *path, const char *first, ...)              \
	{                                                                      \
		size_t n = 1;                                                  \
		char **v;                                                      \
		va_list ap;                                                    \
                                                                               \
		va_start(ap, first);                                           \
		if (first)                                                     \
			n = count_arguments(ap);                                         \
		va_end(ap);                                                    \
		v = __builtin_alloca(n * sizeof(*v));                          \
		va_start(ap, first);                                           \
		memcpy(&v[0], &first, sizeof(first));                          \
		for (size_t i = 1; i < n; i++)                                 \
			v[i] = va_arg(ap, char *);                             \
		before_exec;                                                   \
		va_end(ap);                                                    \
		return exec_with;                                              \
	}
LIST(execl, (void)0, execv(path, v))
LIST(execlp, (void)0, execvp(path, v))
LIST(execle, char *const *e = va_arg(ap, char *const *), execve(path, v, e))

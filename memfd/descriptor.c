/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that a program may close: see the header.
 */
#include "memfd/descriptor.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/gate.h"
#include "memfd/signals.h"
#include "memfd/sys.h"
#include "memfd/thread.h"

#include <sys/socket.h>

/* Programs probe and close low numbers; shells use 10 and up, and 255. Tests take round
 * numbers for closed ones: 100, 400, 500, 999. */
#define COW__FD_LOWEST 440

/* So many numbers above the soft limit are ours. Each fork copies the table up to the
 * highest open number. So a soft limit may be too high. */
#define COW__FD_ABOVE 4096
#define COW__FD_SOFT_MAX 16384

/* glibc 2.32: false once there was a second thread that libc made. Absent elsewhere. */
extern char __libc_single_threaded __attribute__((weak));

static const struct cow__thread *helper;

void
cow__descriptor_helper(const struct cow__thread *thread)
{
	helper = thread;
}

COW_EXPORT struct cow__descriptor
cow__descriptor_of(int fd)
{
	struct cow__descriptor d = { .fd = fd };
	struct stat st;

	if (SYS3(SYS_fstat, fd, &st, 0) == 0) {
		d.type = st.st_mode & S_IFMT;
		d.dev = st.st_dev;
		d.ino = st.st_ino;
	}
	return d;
}

/* Some anonymous inodes are of one descriptor alone. Which one is shared is asked each time,
 * since proper peers send none. */
static bool
is_shared_inode(const struct cow__descriptor *d)
{
	long fd = SYS3(SYS_eventfd2, 0, O_CLOEXEC, 0);
	struct cow__descriptor shared;

	if (fd < 0)
		return true;
	shared = cow__descriptor_of((int)fd);
	(void)sys_close((int)fd);
	return shared.dev == d->dev && shared.ino == d->ino;
}

bool
cow__descriptor_has_identity(const struct cow__descriptor *d, bool devices)
{
	switch (d->type) {
	case S_IFCHR:
		return devices;
	case S_IFBLK:
		return false;
	case 0:
		return !is_shared_inode(d);
	default:
		return true;
	}
}

/* Another process may set the limit meanwhile. */
static long
dup_with_limit_raised(int fd)
{
	struct rlimit was, raised, now;
	uint64_t low;
	long high;

	if (sys_prlimit(RLIMIT_NOFILE, &was) < 0 ||
	    was.rlim_cur >= was.rlim_max || was.rlim_cur > COW__FD_SOFT_MAX ||
	    !cow__thread_alone(helper))
		return -EMFILE;
	raised = was;
	/* Below a very low limit a program may have had open files, and look for these numbers. */
	low = was.rlim_cur < COW__FD_LOWEST && was.rlim_max > COW__FD_LOWEST ? COW__FD_LOWEST
	                                                                     : was.rlim_cur;
	raised.rlim_cur = low + COW__FD_ABOVE;
	if (raised.rlim_cur > raised.rlim_max)
		raised.rlim_cur = raised.rlim_max;
	if (sys_set_limit(RLIMIT_NOFILE, &raised, NULL) < 0)
		return -EMFILE;
	high = sys_fcntl(fd, F_DUPFD_CLOEXEC, (long)low);
	if (sys_set_limit(RLIMIT_NOFILE, &was, &now) == 0 &&
	    (now.rlim_cur != raised.rlim_cur || now.rlim_max != raised.rlim_max))
		(void)sys_set_limit(RLIMIT_NOFILE, &now, &raised);
	return high;
}

/* A number at or above the soft limit. Programs that look at each number they may have do
 * not meet it. The soft limit is raised for a moment. That is done only while the program has
 * one thread, and with signals blocked: other threads, or a handler, could read the limit, set
 * it, or fork. Not beside filters of system calls, which may end the program. */
static long
dup_above_limit(int fd)
{
	struct cow__signals signals;
	long high;

	if (__atomic_load_n(&cow__sandboxed, __ATOMIC_RELAXED) ||
	    !cow__signals_block(&signals))
		return -EMFILE;
	high = dup_with_limit_raised(fd);
	cow__signals_restore(&signals);
	return high;
}

struct cow__descriptor
cow__descriptor_adopt(int fd)
{
	long high = dup_above_limit(fd);

	if (high < 0)
		high = sys_fcntl(fd, F_DUPFD_CLOEXEC, COW__FD_LOWEST);
	if (high < 0)
		high = sys_fcntl(fd, F_DUPFD_CLOEXEC, COW__FD_HIGH);
	if (high >= 0) {
		(void)sys_close(fd);
		fd = (int)high;
	}
	return cow__descriptor_of(fd);
}

int
cow__descriptor_give(const struct cow__descriptor *d, int *ret)
{
	struct cow__descriptor given = *d;
	long fd;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	fd = sys_fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return (int)fd;
	given.fd = (int)fd;
	if (!cow__descriptor_stayed(&given)) {
		(void)sys_close((int)fd);
		return -EBADF;
	}
	*ret = (int)fd;
	return 0;
}

int
cow__descriptor_dup(const struct cow__descriptor *d,
                    struct cow__descriptor *ret)
{
	struct cow__descriptor copy;
	int fd = -1, r = cow__descriptor_give(d, &fd);

	if (r < 0)
		return r;
	copy = cow__descriptor_adopt(fd);
	if (copy.dev != d->dev || copy.ino != d->ino) {
		cow__descriptor_close(&copy);
		return -EBADF;
	}
	*ret = copy;
	return 0;
}

static bool
is_still(const struct cow__descriptor *d, struct stat *ret)
{
	return d->fd >= 0 && SYS3(SYS_fstat, d->fd, ret, 0) == 0 &&
	       ret->st_dev == d->dev && ret->st_ino == d->ino &&
	       (ret->st_mode & S_IFMT) == d->type;
}

COW_FORK_CODE bool
cow__descriptor_ok(const struct cow__descriptor *d)
{
	struct stat st;

	return is_still(d, &st);
}

/* Libc does not know the helper. It runs beside the program's thread. */
bool
cow__descriptor_alone(void)
{
	return &__libc_single_threaded && __libc_single_threaded &&
	       !(helper && cow__thread_is_mine(helper));
}

bool
cow__descriptor_stayed(const struct cow__descriptor *d)
{
	return cow__descriptor_alone() || cow__descriptor_ok(d);
}

COW_FORK_CODE COW_EXPORT void
cow__descriptor_close(struct cow__descriptor *d)
{
	if (cow__descriptor_ok(d))
		(void)sys_close(d->fd);
	*d = COW__NO_DESCRIPTOR;
}

void
cow__descriptor_drop(struct cow__descriptor *d)
{
	const struct linger never = { 0 };
	struct stat st;

	if (is_still(d, &st)) {
		if (S_ISSOCK(st.st_mode))
			(void)SYS6(SYS_setsockopt, d->fd, SOL_SOCKET, SO_LINGER,
			           &never, sizeof(never), 0);
		(void)sys_close(d->fd);
	}
	*d = COW__NO_DESCRIPTOR;
}

uint64_t
cow__descriptor_limit(void)
{
	struct rlimit limit;

	return sys_prlimit(RLIMIT_NOFILE, &limit) < 0 ? 0 : limit.rlim_cur;
}

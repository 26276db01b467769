/* SPDX-License-Identifier: MIT */
/*
 * System calls, spelled as in their man pages
 *
 * Each returns what the kernel returned: >= 0, or -errno; -EPERM if the gate is closed for it
 * (memfd/gate.h). They do not retry, and have no policy; the other files of this folder do. Only
 * those include this header. core/ does not.
 */
#ifndef COW_MEMFD_SYS_H
#define COW_MEMFD_SYS_H

#include "memfd/gate.h"
#include "memfd/syscall.h"

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

/* The kernel's struct sigaction, not libc's, of both architectures. aarch64 has a
 * restorer only for 32-bit programs, but room for it in all. */
struct cow__kernel_action {
	void (*handler)(int, void *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

/* The kernel's struct linux_dirent64. */
struct cow__entry {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

/* Through the gate: calls that a filter may end the process for are not made. */
#define SYS6(nr, a, b, c, d, e, f)                                            \
	cow__ask((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SYS3(nr, a, b, c) SYS6(nr, a, b, c, 0, 0, 0)
#define SYS4(nr, a, b, c, d) SYS6(nr, a, b, c, d, 0, 0)

static inline long
sys_mmap(void *addr, size_t len, int prot, int flags, int fd, uint64_t offset)
{
	return SYS6(SYS_mmap, addr, len, prot, flags, fd, offset);
}

static inline long
sys_munmap(void *addr, size_t len)
{
	return SYS3(SYS_munmap, addr, len, 0);
}

static inline long
sys_mremap(void *addr, size_t old_len, size_t new_len, int flags, void *to)
{
	return SYS6(SYS_mremap, addr, old_len, new_len, flags, to, 0);
}

static inline long
sys_mprotect(void *addr, size_t len, int prot)
{
	return SYS3(SYS_mprotect, addr, len, prot);
}

static inline long
sys_madvise(void *addr, size_t len, int advice)
{
	return SYS3(SYS_madvise, addr, len, advice);
}

static inline long
sys_mincore(void *addr, size_t len, unsigned char *vec)
{
	return SYS3(SYS_mincore, addr, len, vec);
}

static inline long
sys_memfd_create(const char *name, unsigned flags)
{
	return SYS3(SYS_memfd_create, name, flags, 0);
}

static inline long
sys_ftruncate(int fd, uint64_t size)
{
	return SYS3(SYS_ftruncate, fd, size, 0);
}

static inline long
sys_fallocate(int fd, int mode, uint64_t offset, uint64_t len)
{
	return SYS4(SYS_fallocate, fd, mode, offset, len);
}

static inline long
sys_lseek(int fd, int64_t offset, int whence)
{
	return SYS3(SYS_lseek, fd, offset, whence);
}

static inline long
sys_fcntl(int fd, int cmd, long arg)
{
	return SYS3(SYS_fcntl, fd, cmd, arg);
}

static inline long
sys_close(int fd)
{
	return SYS3(SYS_close, fd, 0, 0);
}

static inline long
sys_open(const char *path, int flags, int mode)
{
	return SYS4(SYS_openat, AT_FDCWD, path, flags, mode);
}

static inline long
sys_openat(int dir, const char *path, int flags)
{
	return SYS4(SYS_openat, dir, path, flags, 0);
}

static inline long
sys_fstatat(int dir, const char *path, struct stat *ret, int flags)
{
	return SYS4(SYS_newfstatat, dir, path, ret, flags);
}

static inline long
sys_read(int fd, void *buf, size_t len)
{
	return SYS3(SYS_read, fd, buf, len);
}

static inline long
sys_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	return SYS4(SYS_pread64, fd, buf, len, offset);
}

static inline long
sys_write(int fd, const void *buf, size_t len)
{
	return SYS3(SYS_write, fd, buf, len);
}

static inline long
sys_readlinkat(int dir, const char *path, char *buf, size_t len)
{
	return SYS4(SYS_readlinkat, dir, path, buf, len);
}

static inline long
sys_getdents(int fd, void *buf, size_t len)
{
	return SYS3(SYS_getdents64, fd, buf, len);
}

static inline long
sys_ioctl(int fd, unsigned long request, void *arg)
{
	return SYS3(SYS_ioctl, fd, request, arg);
}

static inline long
sys_prlimit(int resource, struct rlimit *ret)
{
	return SYS4(SYS_prlimit64, 0, resource, 0, ret);
}

static inline long
sys_set_limit(int resource, const struct rlimit *limit, struct rlimit *ret_old)
{
	return SYS4(SYS_prlimit64, 0, resource, limit, ret_old);
}

static inline long
sys_futex(uint32_t *addr, int op, uint32_t val, const struct timespec *timeout)
{
	return SYS4(SYS_futex, addr, op, val, timeout);
}

static inline long
sys_userfaultfd(int flags)
{
	return SYS3(SYS_userfaultfd, flags, 0, 0);
}

static inline long
sys_unshare(int flags)
{
	return SYS3(SYS_unshare, flags, 0, 0);
}

static inline long
sys_gettid(void)
{
	return SYS3(SYS_gettid, 0, 0, 0);
}

static inline long
sys_sched_getaffinity(void *mask, size_t bytes)
{
	return SYS3(SYS_sched_getaffinity, 0, bytes, mask);
}

static inline long
sys_getpid(void)
{
	return SYS3(SYS_getpid, 0, 0, 0);
}

static inline long
sys_sched_yield(void)
{
	return SYS3(SYS_sched_yield, 0, 0, 0);
}

static inline long
sys_rt_sigprocmask(int how, const uint64_t *set, uint64_t *old)
{
	return SYS4(SYS_rt_sigprocmask, how, set, old, sizeof(uint64_t));
}

static inline long
sys_rt_sigaction(int sig, const void *act, void *old)
{
	return SYS4(SYS_rt_sigaction, sig, act, old, sizeof(uint64_t));
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Files with names: see the header. The traps that shaped this file:
 *
 * - Between a look at a file and an ftruncate() another process may make the file
 *   longer. ftruncate() to the wanted size would make it shorter then.
 *   fallocate() never makes a file shorter. Nor can the memory that it promised
 *   be missing later, which for a mapping is a signal.
 * - fallocate() that fails half-way may have made the file longer by half. So it
 *   is first asked to keep the size.
 * - Where fallocate() is unknown (EOPNOTSUPP, ENOSYS; EINVAL on some), the size is
 *   set after another look. There is no better way.
 */
#include "memfd/file.h"
#include "memfd/sys.h"

#include <linux/falloc.h>
#include <poll.h>
#include <string.h>

#define AT_ONCE ((size_t)1 << 30) /* read and write take less than 2 GiB */

int
cow__file_open(const char *path, unsigned how, int mode,
               struct cow__descriptor *ret)
{
	int flags = O_CLOEXEC | O_NOCTTY;
	long fd;

	flags |= !(how & COW__FILE_WRITE) ? O_RDONLY
	         : how & COW__FILE_READ   ? O_RDWR
	                                  : O_WRONLY;
	if (how & COW__FILE_CREATE)
		flags |= O_CREAT;
	if (how & COW__FILE_EXCLUSIVE)
		flags |= O_EXCL;
	if (how & COW__FILE_NO_LINK)
		flags |= O_NOFOLLOW;
	if (how & COW__FILE_DIRECT)
		flags |= O_DIRECT;
	do
		fd = sys_open(path, flags, mode);
	while (fd == -EINTR);
	if (fd < 0)
		return (int)fd;
	*ret = cow__descriptor_adopt((int)fd);
	return 0;
}

int
cow__file_unlink(const char *path)
{
	return (int)SYS3(SYS_unlinkat, AT_FDCWD, path, 0);
}

int
cow__file_rename(const char *from, const char *to)
{
	return (int)SYS6(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0, 0);
}

int
cow__file_named(const char *path, const struct cow__descriptor *d)
{
	struct cow__descriptor there;
	long fd = sys_open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return (int)fd;
	there = cow__descriptor_of((int)fd);
	(void)sys_close((int)fd);
	return there.dev == d->dev && there.ino == d->ino;
}

int
cow__file_facts(int fd, struct cow__file_facts *ret)
{
	struct stat st;
	long flags = sys_fcntl(fd, F_GETFL, 0), r;

	if (flags < 0)
		return (int)flags;
	r = SYS3(SYS_fstat, fd, &st, 0);
	if (r < 0)
		return (int)r;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	*ret = (struct cow__file_facts){
		.bytes = (uint64_t)st.st_size,
		.mode = st.st_mode & 07777,
		.regular = S_ISREG(st.st_mode),
		.seekable = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode),
		.readable = (flags & O_ACCMODE) != O_WRONLY,
		.writable = (flags & O_ACCMODE) != O_RDONLY,
		.appends = flags & O_APPEND,
	};
	if (S_ISBLK(st.st_mode)) {
		/* stat() does not tell this size. The position is put back. */
		long was = sys_lseek(fd, 0, SEEK_CUR);
		long end = sys_lseek(fd, 0, SEEK_END);

		(void)sys_lseek(fd, was < 0 ? 0 : was, SEEK_SET);
		if (end < 0)
			return (int)end;
		ret->bytes = (uint64_t)end;
	}
	return 0;
}

int
cow__file_position(int fd, uint64_t *ret)
{
	long r = sys_lseek(fd, 0, SEEK_CUR);

	if (r < 0)
		return (int)r;
	*ret = (uint64_t)r;
	return 0;
}

int
cow__file_seek(int fd, uint64_t position)
{
	long r = sys_lseek(fd, (int64_t)position, SEEK_SET);

	return r < 0 ? (int)r : 0;
}

int
cow__file_mode(const char *path, uint32_t *ret)
{
	struct stat st;
	long r = sys_fstatat(AT_FDCWD, path, &st, 0);

	if (r < 0)
		return (int)r;
	*ret = st.st_mode & 0777;
	return 0;
}

int
cow__file_chmod(int fd, uint32_t mode)
{
	return (int)SYS3(SYS_fchmod, fd, mode, 0);
}

uint64_t
cow__file_limit(void)
{
	struct rlimit limit;

	if (sys_prlimit(RLIMIT_FSIZE, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return INT64_MAX;
	return limit.rlim_cur;
}

static int
allocate(int fd, int mode, uint64_t bytes)
{
	long r;

	do
		r = sys_fallocate(fd, mode, 0, bytes);
	while (r == -EINTR);
	return (int)r;
}

static int
size_of(int fd, uint64_t *ret)
{
	struct stat st;
	long r = SYS3(SYS_fstat, fd, &st, 0);

	if (r < 0)
		return (int)r;
	*ret = (uint64_t)st.st_size;
	return 0;
}

int
cow__file_grow(int fd, uint64_t bytes)
{
	uint64_t has = 0;
	int r = size_of(fd, &has);

	if (r < 0 || has >= bytes)
		return r;
	if (bytes > cow__file_limit())
		return -EFBIG;
	r = allocate(fd, FALLOC_FL_KEEP_SIZE, bytes);
	if (r == 0)
		r = allocate(fd, 0, bytes);
	if (r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL) {
		r = size_of(fd, &has);
		if (r == 0 && has < bytes)
			r = cow__file_truncate(fd, bytes);
	}
	return r;
}

void
cow__file_sequential(int fd, uint64_t offset, uint64_t bytes)
{
	(void)SYS4(SYS_fadvise64, fd, offset, bytes, POSIX_FADV_SEQUENTIAL);
}

int
cow__file_truncate(int fd, uint64_t bytes)
{
	long r;

	if (bytes > cow__file_limit())
		return -EFBIG;
	do
		r = sys_ftruncate(fd, bytes);
	while (r == -EINTR);
	return (int)r;
}

int
cow__file_sync(int fd)
{
	long r;

	do
		r = SYS3(SYS_fsync, fd, 0, 0);
	while (r == -EINTR);
	/* Pipes and terminals have nothing to sync. */
	return r == -EINVAL || r == -EROFS ? 0 : (int)r;
}

int
cow__file_open_directory(const char *path, struct cow__descriptor *ret)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	char dir[4096] = ".";
	long fd;

	if (n >= sizeof(dir))
		return -ENAMETOOLONG;
	if (slash) {
		memcpy(dir, n ? path : "/", n ? n : 1);
		dir[n ? n : 1] = '\0';
	}
	do
		fd = sys_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	while (fd == -EINTR);
	if (fd < 0)
		return (int)fd;
	*ret = cow__descriptor_adopt((int)fd);
	return 0;
}

long
cow__file_read(int fd, void *to, size_t bytes, uint64_t offset)
{
	long r;

	bytes = bytes < AT_ONCE ? bytes : AT_ONCE;
	do
		r = offset == COW__FILE_STREAM
		            ? sys_read(fd, to, bytes)
		            : sys_pread(fd, to, bytes, offset);
	while (r == -EINTR);
	return r;
}

long
cow__file_write(int fd, const void *from, size_t bytes, uint64_t offset)
{
	long r;

	bytes = bytes < AT_ONCE ? bytes : AT_ONCE;
	do
		r = offset == COW__FILE_STREAM
		            ? sys_write(fd, from, bytes)
		            : SYS4(SYS_pwrite64, fd, from, bytes, offset);
	while (r == -EINTR);
	return r;
}

int
cow__file_wait(int fd, bool to_write)
{
	struct pollfd p = { .fd = fd, .events = to_write ? POLLOUT : POLLIN };
	long r;

	do
		r = SYS6(SYS_ppoll, &p, 1, NULL, NULL, 0, 0);
	while (r == -EINTR);
	return r < 0 ? (int)r : 0;
}

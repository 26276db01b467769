/* SPDX-License-Identifier: MIT */
/*
 * Sealed memfds: see the header; memfd_create(2), and fcntl_locking(2) under
 * "Open file description locks".
 *
 * A mapping holds a reference to the description. So the lock of a process that
 * closed all its descriptors still lives in its mapping.
 */
#include "memfd/memfd.h"
#include "memfd/page.h"
#include "memfd/sys.h"

#include <linux/falloc.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>


#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static bool
size_allowed(uint64_t bytes)
{
	struct rlimit limit;

	if (sys_prlimit(RLIMIT_FSIZE, &limit) < 0)
		return true;
	return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

int
cow__memfd_new_open(const char *name, uint64_t bytes,
                    struct cow__descriptor *ret)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	struct cow__descriptor d;
	long fd, r;

	if (!size_allowed(bytes))
		return -EFBIG;
	/* Kernels before 6.3 do not know NOEXEC_SEAL and say EINVAL. */
	fd = sys_memfd_create(name, flags | MFD_NOEXEC_SEAL);
	if (fd == -EINVAL)
		fd = sys_memfd_create(name, flags);
	if (fd < 0)
		return (int)fd;
	d = cow__descriptor_adopt((int)fd);
	r = sys_ftruncate(d.fd, bytes);
	if (r < 0) {
		cow__descriptor_close(&d);
		return (int)r;
	}
	*ret = d;
	return 0;
}

int
cow__memfd_seal(const struct cow__descriptor *d, unsigned seals)
{
	long add = F_SEAL_GROW | F_SEAL_SHRINK;
	int r;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	add |= seals & COW__SEALED_WRITE ? F_SEAL_WRITE | F_SEAL_SEAL : 0;
	add |= seals & COW__SEALED_FUTURE ? F_SEAL_FUTURE_WRITE : 0;
	r = (int)sys_fcntl(d->fd, F_ADD_SEALS, add);
	return r == 0 && !cow__descriptor_stayed(d) ? -EBADF : r;
}

int
cow__memfd_new(const char *name, uint64_t bytes, struct cow__descriptor *ret)
{
	struct cow__descriptor d;
	int r = cow__memfd_new_open(name, bytes, &d);

	if (r < 0)
		return r;
	r = cow__memfd_seal(&d, COW__SEALED_SIZE);
	if (r < 0) {
		cow__descriptor_close(&d);
		return r;
	}
	*ret = d;
	return 0;
}

int
cow__memfd_check(int fd, unsigned seals, uint64_t *ret_bytes)
{
	const int want = F_SEAL_GROW | F_SEAL_SHRINK |
	                 (seals & COW__SEALED_WRITE ? F_SEAL_WRITE : 0) |
	                 (seals & COW__SEALED_FUTURE ? F_SEAL_FUTURE_WRITE : 0);
	struct statfs fs;
	struct stat st;
	long has;

	/* Seals exist on memfds alone. Huge pages are another file system. */
	has = sys_fcntl(fd, F_GET_SEALS, 0);
	if (has == -EBADF)
		return -EBADF;
	if (has < 0 || (has & want) != want)
		return -EBADMSG;
	if (SYS3(SYS_fstat, fd, &st, 0) < 0 || !S_ISREG(st.st_mode) ||
	    SYS3(SYS_fstatfs, fd, &fs, 0) < 0 || fs.f_type != TMPFS_MAGIC ||
	    st.st_size < 0)
		return -EBADMSG;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int
cow__memfd_read(int fd, uint64_t offset, void *buf, size_t bytes)
{
	long r = sys_pread(fd, buf, bytes, offset);

	if (r < 0)
		return (int)r;
	return (size_t)r == bytes ? 0 : -EBADMSG;
}

int
cow__memfd_data(const struct cow__descriptor *d, uint64_t from, uint64_t end,
                uint64_t *ret_start, uint64_t *ret_end)
{
	long start, hole;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	start = sys_lseek(d->fd, (int64_t)from, SEEK_DATA);
	if (start == -ENXIO || (start >= 0 && (uint64_t)start >= end))
		return cow__descriptor_stayed(d) ? 0 : -EBADF;
	hole = start < 0 ? start : sys_lseek(d->fd, start, SEEK_HOLE);
	if (hole < 0)
		return (int)hole;
	if (!cow__descriptor_stayed(d))
		return -EBADF;
	*ret_start = (uint64_t)start;
	*ret_end = (uint64_t)hole < end ? (uint64_t)hole : end;
	return 1;
}

/* A mapping stays the file's, so no hole is punched into another file. Under
 * mlockall(MCL_FUTURE) it is locked, and the kernel punches no locked memory. */
static int
punch_mapped(const struct cow__descriptor *d, uint64_t from, uint64_t bytes)
{
	long at = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd,
	                   from);
	int r = -EBADF;

	if (at < 0 && at > -4096)
		return (int)at;
	if (cow__descriptor_ok(d)) {
		r = (int)sys_madvise((void *)at, bytes, MADV_REMOVE);
		if (r == -EINVAL && SYS3(SYS_munlock, at, bytes, 0) == 0)
			r = (int)sys_madvise((void *)at, bytes, MADV_REMOVE);
	}
	(void)sys_munmap((void *)at, bytes);
	return r;
}

int
cow__memfd_punch(const struct cow__descriptor *d, uint64_t from, uint64_t bytes)
{
	if (!cow__descriptor_ok(d))
		return -EBADF;
	if (!cow__descriptor_alone())
		return punch_mapped(d, from, bytes);
	return (int)sys_fallocate(d->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	                          from, bytes);
}

int
cow__memfd_zeros(const struct cow__descriptor *d, uint64_t from, uint64_t end)
{
	uint64_t words[128] = { 0 }, any = 0; /* behind a short rest they are zero still */

	while (from < end && !any) {
		size_t n = end - from < sizeof(words) ? (size_t)(end - from)
		                                      : sizeof(words);
		int r = cow__memfd_read(d->fd, from, words, n);

		if (r < 0)
			return r;
		for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
			any |= words[i];
		from += n;
	}
	return cow__descriptor_stayed(d) ? any == 0 : -EBADF;
}

int
cow__memfd_has(const struct cow__descriptor *d, uint64_t *ret_bytes)
{
	struct stat st;
	long r;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	r = SYS3(SYS_fstat, d->fd, &st, 0);
	if (r < 0)
		return (int)r;
	*ret_bytes = (uint64_t)st.st_blocks * 512;
	return 0;
}

bool
cow__memfd_holds_only(const struct cow__descriptor *d, uint64_t from,
                      uint64_t bytes)
{
	uint64_t first = from / cow__page * cow__page, end = from + bytes;
	uint64_t last = (end + cow__page - 1) / cow__page * cow__page, size;
	uint64_t start, stop;
	struct stat st;

	if (cow__memfd_data(d, 0, first, &start, &stop) != 0 ||
	    cow__memfd_data(d, last, (uint64_t)INT64_MAX, &start, &stop) != 0 ||
	    SYS3(SYS_fstat, d->fd, &st, 0) < 0)
		return false;
	size = (uint64_t)st.st_size;
	return cow__memfd_zeros(d, first, from) > 0 &&
	       cow__memfd_zeros(d, end, last < size ? last : size) > 0;
}

/* Opens a path of /proc that leads to the file. */
static int
open_again(const char *path, const struct cow__descriptor *d, int flags,
           struct cow__descriptor *ret)
{
	struct cow__descriptor again;
	long r = sys_open(path, flags | O_CLOEXEC, 0);

	if (r < 0)
		return (int)r;
	again = cow__descriptor_adopt((int)r);
	if (again.dev != d->dev || again.ino != d->ino) {
		cow__descriptor_close(&again);
		return -EBADF;
	}
	*ret = again;
	return 0;
}

char *
cow__number_append(char *to, uint64_t n, unsigned base)
{
	char digits[24];
	int i = 0;

	do
		digits[i++] = "0123456789abcdef"[n % base];
	while (n /= base);
	while (i > 0)
		*to++ = digits[--i];
	*to = '\0';
	return to;
}

static int
reopen(const struct cow__descriptor *d, int flags, struct cow__descriptor *ret)
{
	char path[40] = "/proc/self/fd/";

	if (!cow__descriptor_ok(d))
		return -EBADF;
	(void)cow__number_append(path + 14, (uint64_t)d->fd, 10);
	return open_again(path, d, flags, ret);
}

int
cow__memfd_reopen(const struct cow__descriptor *d, struct cow__descriptor *ret)
{
	return reopen(d, O_RDWR, ret);
}

int
cow__memfd_reopen_to_read(const struct cow__descriptor *d, struct cow__descriptor *ret)
{
	return reopen(d, O_RDONLY, ret);
}

int
cow__memfd_reopen_mapped(uintptr_t addr, size_t bytes, const struct cow__descriptor *of,
                         struct cow__descriptor *ret)
{
	char path[80] = "/proc/self/map_files/", *end;

	end = cow__number_append(path + 21, addr, 16);
	*end++ = '-';
	(void)cow__number_append(end, addr + bytes, 16);
	return open_again(path, of, O_RDWR, ret);
}

int
cow__memfd_close_to_others(const struct cow__descriptor *d)
{
	return cow__descriptor_ok(d) ? (int)SYS3(SYS_fchmod, d->fd, 0600, 0) : -EBADF;
}

static int
lock_call(const struct cow__descriptor *d, int cmd, uint64_t byte, int type,
          int *ret_type)
{
	struct flock lock = {
		.l_type = (short)type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)byte,
		.l_len = 1,
	};
	long r;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	r = sys_fcntl(d->fd, cmd, (long)&lock);
	if (r >= 0 && !cow__descriptor_stayed(d))
		return -EBADF;
	if (r >= 0 && ret_type)
		*ret_type = lock.l_type;
	return (int)r;
}

int
cow__memfd_lock_take(const struct cow__descriptor *d, uint64_t byte,
                     bool shared)
{
	return lock_call(d, F_OFD_SETLK, byte, shared ? F_RDLCK : F_WRLCK,
	                 NULL);
}

int
cow__memfd_lock_keep(const struct cow__descriptor *d, uintptr_t *ret_at)
{
	long r;

	if (!cow__descriptor_ok(d))
		return -EBADF;
	r = sys_mmap(NULL, cow__page, PROT_NONE, MAP_PRIVATE, d->fd, 0);
	if (r < 0 && r > -4096)
		return (int)r;
	*ret_at = (uintptr_t)r;
	return 0;
}

int
cow__memfd_lock_drop(const struct cow__descriptor *d, uint64_t byte)
{
	return lock_call(d, F_OFD_SETLK, byte, F_UNLCK, NULL);
}

int
cow__memfd_lock_taken(const struct cow__descriptor *d, uint64_t byte)
{
	int type = F_UNLCK;
	int r = lock_call(d, F_OFD_GETLK, byte, F_WRLCK, &type);

	return r < 0 ? r : type != F_UNLCK;
}

/* SPDX-License-Identifier: MIT */
/*
 * Files with names
 *
 * Paths are the program's, descriptors ours. A size beyond RLIMIT_FSIZE is
 * refused before the kernel is asked, since the kernel would send a signal. All
 * functions return 0 or a count, or -errno. They repeat calls that a signal
 * interrupted (EINTR). If a signal comes after the first bytes of a pipe or the
 * like, the count is short.
 */
#ifndef COW_MEMFD_FILE_H
#define COW_MEMFD_FILE_H

#include "memfd/descriptor.h"

#include <stddef.h>

enum cow__file_open {
	COW__FILE_READ = 1 << 0,
	COW__FILE_WRITE = 1 << 1,
	COW__FILE_CREATE = 1 << 2,    /* if it is not there */
	COW__FILE_EXCLUSIVE = 1 << 3, /* -EEXIST if it is there */
	COW__FILE_NO_LINK = 1 << 4,   /* -ELOOP if it is a symbolic link */
	COW__FILE_DIRECT = 1 << 5,
};

/* `mode`: of a file that is made, before the umask. */
int cow__file_open(const char *path, unsigned how, int mode,
                   struct cow__descriptor *ret);
int cow__file_unlink(const char *path);
int cow__file_rename(const char *from, const char *to);

/* Is this the file at `path`, without following a link there? 1, 0, or -errno. */
int cow__file_named(const char *path, const struct cow__descriptor *d);

struct cow__file_facts {
	uint64_t bytes;
	uint32_t mode;  /* permissions */
	bool regular;   /* a regular file, whose bytes can be mapped */
	bool seekable;  /* has positions: regular, or a block device */
	bool readable, writable, appends;
};
int cow__file_facts(int fd, struct cow__file_facts *ret);

/* The position at which reading and writing go on. */
int cow__file_position(int fd, uint64_t *ret);
int cow__file_seek(int fd, uint64_t position);

/* The permissions of the file at `path`. */
int cow__file_mode(const char *path, uint32_t *ret);
int cow__file_chmod(int fd, uint32_t mode);

/* The limit of RLIMIT_FSIZE. */
uint64_t cow__file_limit(void);

/* Makes a file at least `bytes` long, with memory or disk behind every byte,
 * where the file system can promise that. Never makes it shorter, whatever other
 * processes do. After a failure it has the size it had. -EFBIG, -ENOSPC. */
int cow__file_grow(int fd, uint64_t bytes);

/* Tells the kernel that the program will read the range once, in order. */
void cow__file_sequential(int fd, uint64_t offset, uint64_t bytes);

int cow__file_truncate(int fd, uint64_t bytes);
/* Of a directory: puts its entries on the disk. */
int cow__file_sync(int fd);
/* Opens the directory of `path`, to sync it. */
int cow__file_open_directory(const char *path, struct cow__descriptor *ret);

/* Read or write some bytes, at `offset`, or at the file's position
 * (COW__FILE_STREAM). */
#define COW__FILE_STREAM UINT64_MAX
long cow__file_read(int fd, void *to, size_t bytes, uint64_t offset);
long cow__file_write(int fd, const void *from, size_t bytes, uint64_t offset);

/* Waits until a pipe or the like that does not block is ready. */
int cow__file_wait(int fd, bool to_write);

#endif

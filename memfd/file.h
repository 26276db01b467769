/* SPDX-License-Identifier: MIT */
/*
 * Files with names
 *
 * Paths are the program's, descriptors ours. A file whose size the process may not
 * have (RLIMIT_FSIZE) is refused before the kernel is asked, which would send a
 * signal. All return 0 or a count, or -errno; EINTR is not seen outside, but from
 * reading and writing of pipes and the like, where something came before it.
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

/* `mode` of a file that is made, before the umask. */
int cow__file_open(const char *path, unsigned how, int mode,
                   struct cow__descriptor *ret);
int cow__file_unlink(const char *path);
int cow__file_rename(const char *from, const char *to);

/* Is this the file of that name, not following links? 1, 0, or -errno. */
int cow__file_named(const char *path, const struct cow__descriptor *d);

struct cow__file_facts {
	uint64_t bytes;
	uint32_t mode;  /* permissions */
	bool regular;   /* has bytes of its own that can be mapped */
	bool seekable;  /* positions mean something: regular, or a block device */
	bool readable, writable, appends;
};
int cow__file_facts(int fd, struct cow__file_facts *ret);

/* Where reading and writing go on. */
int cow__file_position(int fd, uint64_t *ret);
int cow__file_seek(int fd, uint64_t position);

/* Permissions of the file of that name. */
int cow__file_mode(const char *path, uint32_t *ret);
int cow__file_chmod(int fd, uint32_t mode);

/* Where RLIMIT_FSIZE ends. */
uint64_t cow__file_limit(void);

/* Makes it at least so long, with memory or disk behind every byte where the file
 * system can promise that. Never makes it shorter, whatever others do; a failure
 * leaves its size. -EFBIG, -ENOSPC. */
int cow__file_grow(int fd, uint64_t bytes);

/* The program will go through it once. */
void cow__file_sequential(int fd, uint64_t offset, uint64_t bytes);

int cow__file_truncate(int fd, uint64_t bytes);
/* Of a directory: its entries are on the disk then. */
int cow__file_sync(int fd);
/* The directory that `path` lies in, to be synced. */
int cow__file_open_directory(const char *path, struct cow__descriptor *ret);

/* Some bytes. At `offset`, or (COW__FILE_STREAM) where the file stands. */
#define COW__FILE_STREAM UINT64_MAX
long cow__file_read(int fd, void *to, size_t bytes, uint64_t offset);
long cow__file_write(int fd, const void *from, size_t bytes, uint64_t offset);

/* Waits until a pipe or the like that does not block is ready. */
int cow__file_wait(int fd, bool to_write);

#endif

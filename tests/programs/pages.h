/* SPDX-License-Identifier: MIT */
/*
 * For programs that treat malloc's pages as mappings
 *
 * Some programs ask the kernel for things about memory that came from malloc:
 * guard pages, madvise, mremap. All of it works on anonymous memory, before
 * and after a fork. A pipe tells whether a page can be read or written: the kernel
 * answers EFAULT where an access would crash.
 */
#ifndef COWSHED_TESTS_PAGES_H
#define COWSHED_TESTS_PAGES_H

#include "program.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>

static int probe[2];
static pid_t probe_owner;

/* Each process has a pipe of its own, or bytes would get mixed. */
static inline void have_probe(void)
{
	if (probe_owner == getpid())
		return;
	check(pipe2(probe, O_CLOEXEC | O_NONBLOCK) == 0);
	probe_owner = getpid();
}

/* Large blocks are mappings of their own without the shim, too, and stay so. */
static inline void pages_init(void)
{
	check(mallopt(M_MMAP_THRESHOLD, 64 * 1024) == 1);
}

static inline int readable(const void *p)
{
	char byte;

	have_probe();
	if (write(probe[1], p, 1) != 1) {
		check(errno == EFAULT);
		return 0;
	}
	check(read(probe[0], &byte, 1) == 1);
	return 1;
}

/* Writes the bytes that are there already. */
static inline int writable(void *p)
{
	char byte = readable(p) ? *(volatile char *)p : 0;

	check(write(probe[1], &byte, 1) == 1);
	if (read(probe[0], p, 1) == 1)
		return 1;
	check(errno == EFAULT);
	check(read(probe[0], &byte, 1) == 1);
	return 0;
}

static inline void *map_anonymous(void *where, size_t bytes)
{
	void *p = mmap(where, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0),
	               -1, 0);

	check(p != MAP_FAILED);
	return p;
}

#endif

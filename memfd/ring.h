/* SPDX-License-Identifier: MIT */
/*
 * A ring of I/O: one transfer, in many pieces at once
 *
 * io_uring by its system calls alone; nothing of it lives longer than the transfer,
 * so no ring is inherited, shared between threads or left with memory registered
 * that somebody else may get.
 */
#ifndef COW_MEMFD_RING_H
#define COW_MEMFD_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__transfer {
	int fd;
	bool own_file; /* nobody else uses that descriptor */
	bool write;
	bool direct;  /* O_DIRECT: the kernel reaches the memory itself */
	char *data;
	size_t bytes;
	uint64_t offset;
	/* Called before a piece of memory is read into; or NULL. */
	void (*ready)(void *arg, size_t offset, size_t bytes);
	void *arg;
};

/*
 * All of it, as far as it goes: `ret_done` bytes from the start were certainly
 * transferred, also on failure. 0: all; 1: the file ended. -ENOSYS: rings can't be had
 * here, nothing was done. Else what the kernel said of a piece. When it returns
 * nothing is in flight any more.
 */
int cow__ring_transfer(const struct cow__transfer *t, size_t *ret_done);

/* Is it a descriptor of a transfer that only reads this process's memory? */
bool cow__ring_harmless(int fd);

/* In a forked child: the rings are its parent's. */
void cow__rings_child(void);

#endif

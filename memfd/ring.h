/* SPDX-License-Identifier: MIT */
/*
 * A ring of I/O: one transfer, in many pieces at once
 *
 * It uses io_uring by its system calls alone. Nothing of the ring lives longer
 * than the transfer. So no ring is inherited, shared between threads, or left
 * with registered memory that other code may get.
 */
#ifndef COW_MEMFD_RING_H
#define COW_MEMFD_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__transfer {
	int fd;
	bool own_file; /* no other code uses that descriptor */
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
 * Transfers all of it, as far as possible. `ret_done` bytes from the start were
 * certainly transferred, also after a failure. 0: all. 1: the file ended.
 * -ENOSYS: there are no rings here, and nothing was done. Otherwise what the
 * kernel said of a piece. When it returns nothing is in flight any more.
 */
int cow__ring_transfer(const struct cow__transfer *t, size_t *ret_done);

/* Does the descriptor belong to a transfer that only reads this process's
 * memory? */
bool cow__ring_harmless(int fd);

/* In a forked child: closes the rings, which are its parent's. */
void cow__rings_child(void);

#endif

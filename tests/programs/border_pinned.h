/* SPDX-License-Identifier: MIT */
/*
 * A block that is registered at a ring, so that the kernel pins its pages
 *
 * After the fork the kernel reads a secret into the pinned page. On plain Linux the fork
 * copied that page for the child. Where the kernel or a container allows no ring, the play is
 * left out.
 */
#ifndef COWSHED_TESTS_BORDER_PINNED_H
#define COWSHED_TESTS_BORDER_PINNED_H

#include "border_states.h"

#include <linux/io_uring.h>

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

static struct {
	int fd, source; /* the latter: a file with the secret */
	struct io_uring_params p;
	unsigned char *queue;
	struct io_uring_sqe *entries;
} ring;

static void ring_missing(const char *what)
{
	say("skip %s: %s", what, strerror(errno));
	leave();
}

static void *ring_map(size_t bytes, off_t at)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, at);

	check(p != MAP_FAILED);
	return p;
}

static void registered_before(void)
{
	struct iovec v;

	clean_before();
	ring.fd = (int)syscall(SYS_io_uring_setup, 2, &ring.p);
	if (ring.fd < 0)
		ring_missing("io_uring");
	ring.queue = ring_map(ring.p.sq_off.array + ring.p.sq_entries * 4, IORING_OFF_SQ_RING);
	ring.entries = ring_map(ring.p.sq_entries * sizeof(*ring.entries), IORING_OFF_SQES);
	v = (struct iovec){ .iov_base = blocks[0].p, .iov_len = BLOCK };
	if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &v, 1) != 0)
		ring_missing("registered buffers");
	ring.source = memfd_create("source", MFD_CLOEXEC);
	check(ring.source >= 0 && ftruncate(ring.source, PAGE) == 0);
}

/* By the pinned pages, whatever is mapped at the address. */
static void registered_after(void)
{
	unsigned *tail = (unsigned *)(ring.queue + ring.p.sq_off.tail);
	unsigned *array = (unsigned *)(ring.queue + ring.p.sq_off.array);

	check(pwrite(ring.source, key(), key_bytes(), 0) == (ssize_t)key_bytes());
	ring.entries[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_READ_FIXED,
		.fd = ring.source,
		.addr = (uintptr_t)(blocks[0].p + 2 * PAGE),
		.len = (unsigned)key_bytes(),
	};
	array[0] = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	check(syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
	memcpy(blocks[0].shadow + 2 * PAGE, key(), key_bytes());
	blocks_check();
	settle();
}

#endif

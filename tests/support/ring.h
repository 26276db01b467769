/* SPDX-License-Identifier: MIT */
/*
 * Test support: a ring that reads into a page that it has registered
 *
 * Only the tests that mk/tests.mk names under WITH_URING may include it, since it needs
 * liburing.
 */
#ifndef COWSHED_TESTS_RING_H
#define COWSHED_TESTS_RING_H

#include "tests/support/support.h"

#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* False, and says so: this kernel or container has no io_uring. */
static inline bool ring_exists(const char *test)
{
	struct io_uring ring;

	if (io_uring_queue_init(2, &ring, 0) != 0) {
		printf("skip %s no io_uring here\n", test);
		return false;
	}
	io_uring_queue_exit(&ring);
	return true;
}

/* Writes into the pipe, and the ring reads it into the registered page. */
static inline void ring_reads(struct io_uring *ring, const int ends[2], void *at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;

	io_uring_prep_read_fixed(sqe, ends[0], at, PAGE, 0, 0);
	ck_assert_int_eq(io_uring_submit(ring), 1);
	ck_assert_int_eq(write(ends[1], "here they are", 13), 13);
	ck_assert_int_eq(io_uring_wait_cqe(ring, &cqe), 0);
	ck_assert_int_eq(cqe->res, 13);
	io_uring_cqe_seen(ring, cqe);
}

#endif

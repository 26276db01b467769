/* SPDX-License-Identifier: MIT */
/*
 * I/O in flight is not lost over a fork
 *
 * A ring that is told to read into a block writes to the page that it was given
 * then. Were that page frozen by a fork and copied by a write, the bytes would
 * land in the frozen page, and the program would never see them. So a process
 * that holds a ring is not frozen: its child gets a copy. Nor is what it had
 * copied before thawed, nor its memory frozen for a clone.
 *
 * Where the kernel has no io_uring this program is skipped as a whole.
 */
#include "core/fork/fork.h"
#include "tests/support/ring.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 4 << 20 };

static void sees_the_moment(void *arg)
{
	ck_bytes(arg, BYTES, 7);
	memset(arg, 8, BYTES);
	ck_bytes(arg, BYTES, 8);
}

/* A read waits for the pipe; the process forks and writes to the block; the
 * pipe gets its bytes: they must be where the read was to put them. */
static void read_over_a_fork(bool registered, bool full)
{
	struct rlimit limit, none;
	unsigned char *p = new_block(BYTES, 0), *at = p + 100 * PAGE;
	struct iovec whole = { p, BYTES };
	struct io_uring ring;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	uint64_t before, copied;
	int ends[2];

	memset(p, 7, BYTES);
	before = stats_now().fallbacks[COW_FALLBACK_PINNED];
	copied = stats_now().fallback_bytes[COW_FALLBACK_PINNED];
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	if (registered)
		ck_assert_int_eq(io_uring_register_buffers(&ring, &whole, 1),
		                 0);
	sqe = io_uring_get_sqe(&ring);
	if (registered)
		io_uring_prep_read_fixed(sqe, ends[0], at, 4096, 0, 0);
	else
		io_uring_prep_read(sqe, ends[0], at, 4096, 0);
	ck_assert_int_eq(io_uring_submit(&ring), 1);

	/* Who can't look for rings takes it that there is one. */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, full ? &none : &limit), 0);
	in_child(sees_the_moment, p);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	at[4095] = 9; /* the page is written while the read is in flight */
	ck_assert_uint_gt(stats_now().fallbacks[COW_FALLBACK_PINNED], before);
	ck_assert_uint_ge(stats_now().fallback_bytes[COW_FALLBACK_PINNED],
	                  copied + BYTES);

	ck_assert_int_eq(write(ends[1], "here they are", 13), 13);
	ck_assert_int_eq(io_uring_wait_cqe(&ring, &cqe), 0);
	ck_assert_int_eq(cqe->res, 13);
	ck_assert_int_eq(memcmp(at, "here they are", 13), 0);
	ck_assert_int_eq(at[13], 7);
	ck_assert_int_eq(at[4095], 9);
	io_uring_queue_exit(&ring);
	close(ends[0]);
	close(ends[1]);
	cow_block_free(p);
}

START_TEST(plain_read)
{
	read_over_a_fork(false, false);
}
END_TEST

START_TEST(without_descriptors)
{
	read_over_a_fork(false, true);
}
END_TEST

START_TEST(registered_buffer)
{
	read_over_a_fork(true, false);
}
END_TEST

static void waits(void *arg)
{
	gate_wait(arg);
}

/* A page that was copied while a child lived is registered. When the child is
 * gone its block could thaw; but the ring would go on with the old page. */
START_TEST(copied_page)
{
	unsigned char *p = new_block(BYTES, 0), *at = p + 100 * PAGE;
	struct iovec page = { at, PAGE };
	struct gate gate;
	struct io_uring ring;
	pid_t child;
	int ends[2];

	memset(p, 7, BYTES);
	gate_make(&gate);
	child = child_start(waits, &gate);
	memset(at, 8, PAGE);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	ck_assert_int_eq(io_uring_register_buffers(&ring, &page, 1), 0);
	gate_open(&gate);
	child_finish(child);
	while (cow__fork_after_wait(true))
		;
	ring_reads(&ring, ends, at);
	ck_assert_int_eq(memcmp(at, "here they are", 13), 0);
	ck_assert_int_eq(at[13], 8);
	/* Afterwards it may. */
	io_uring_queue_exit(&ring);
	cow_trim();
	ck_assert_int_eq(memcmp(at, "here they are", 13), 0);
	ck_bytes(p, 100 * PAGE, 7);
	close(ends[0]);
	close(ends[1]);
	gate_free(&gate);
	cow_block_free(p);
}
END_TEST

/* A clone is of this moment; what the ring writes later is the source's. */
START_TEST(cloned_beside_io)
{
	struct cow_storage *a = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1);
	unsigned char *p = expose(a), *at = p + 100 * PAGE;
	struct iovec page = { at, PAGE };
	struct cow_storage *b;
	struct io_uring ring;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	ck_assert_int_eq(io_uring_register_buffers(&ring, &page, 1), 0);
	b = lazy(a);
	at[PAGE - 1] = 9; /* a frozen page would be copied */
	ring_reads(&ring, ends, at);
	ck_assert_int_eq(memcmp(at, "here they are", 13), 0);
	ck_assert_int_eq(at[PAGE - 1], 9);
	ck_pattern(data(b), BYTES, 1);
	io_uring_queue_exit(&ring);
	close(ends[0]);
	close(ends[1]);
	cow_storage_unref(a);
	cow_storage_unref(b);
}
END_TEST

static void sees_sevens(void *arg)
{
	ck_bytes(arg, 2 * MIB + PAGE, 7);
}

/* A fork gives a block the rest of its last 2 MiB. Where a later fork copies, that rest is
 * not copied, and gets no pages. */
START_TEST(no_copy_of_a_gap)
{
	enum { SIZE = 2 * MIB + PAGE };
	unsigned char *p = new_block(SIZE, 0);
	struct io_uring ring;
	uint64_t copied, memory;

	memset(p, 7, SIZE);
	if (_i == 0) { /* closed before, or not */
		in_child(sees_sevens, p);
		cow_trim();
	}
	copied = stats_now().bytes_copied;
	memory = memfd_bytes();
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	in_child(sees_sevens, p);
	ck_assert_uint_eq(stats_now().bytes_copied - copied, SIZE);
	ck_assert_uint_le(memfd_bytes(), memory + 16 * PAGE); /* with slots of processes */
	io_uring_queue_exit(&ring);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pinned");
	TCase *tcase = add_case(suite, "pinned");

	if (!ring_exists("pinned"))
		return 77;
	tcase_add_test(tcase, plain_read);
	tcase_add_test(tcase, without_descriptors);
	tcase_add_test(tcase, registered_buffer);
	tcase_add_test(tcase, copied_page);
	tcase_add_test(tcase, cloned_beside_io);
	tcase_add_loop_test(tcase, no_copy_of_a_gap, 0, 2);
	return run_suite(suite);
}

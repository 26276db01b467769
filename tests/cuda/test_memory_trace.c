/* SPDX-License-Identifier: MIT */
/*
 * The cache of device memory: history, snapshots, peaks
 *
 * All tests that use the cache check that statistics and snapshots agree.
 */
#include "tests/support/cuda.h"
#include "tests/support/ends.h"

#include <errno.h>
#include <string.h>

static struct cow_storage *cached(size_t bytes)
{
	return cuda_storage(0, bytes, COW_CUDA_CACHED);
}

START_TEST(history)
{
	struct cow_cuda_trace_entry e[16];
	struct cow_cuda_block b[4];
	struct cow_storage *s;
	long n;

	cuda_start();
	ok(cow_cuda_trace_start(6));
	cow_cuda_annotate(4711);
	s = cached(700);
	cow_cuda_annotate(0);
	ck_assert_int_eq(cow_cuda_snapshot(0, b, COUNT(b)), 2);
	must(b[0].user == 4711 && b[0].requested == 700 && b[0].bytes == 1024);
	must(b[0].state == COW_CUDA_BLOCK_USED && b[1].state == COW_CUDA_BLOCK_FREE);
	must(b[0].pool == COW_CUDA_SMALL && b[0].segment_bytes == 2 * MIB);
	cow_storage_unref(s);
	n = cow_cuda_trace_read(0, e, COUNT(e));
	ck_assert_int_eq(n, 5);
	must(e[0].kind == COW_CUDA_SEGMENT_MAP && e[0].bytes == 2 * MIB);
	must(e[1].kind == COW_CUDA_ALLOC && e[1].user == 4711 && e[1].bytes == 1024);
	must(e[2].kind == COW_CUDA_SNAPSHOT);
	must(e[3].kind == COW_CUDA_FREE_REQUESTED && e[3].user == 4711);
	must(e[4].kind == COW_CUDA_FREE_COMPLETED && e[4].time_ns >= e[0].time_ns);
	s = cached(700);
	cow_storage_unref(s);
	ck_assert_int_eq(cow_cuda_trace_read(0, e, 2), 2);
	must(e[1].kind == COW_CUDA_FREE_COMPLETED && e[0].kind == COW_CUDA_FREE_REQUESTED);
	ck_assert_int_eq(cow_cuda_trace_read(0, e, COUNT(e)), 6);
	ok(cow_cuda_trace_start(0));
	ck_assert_int_eq(cow_cuda_trace_read(0, e, COUNT(e)), 0);
	cuda_nothing_left();
}
END_TEST

START_TEST(peaks)
{
	struct cow_storage *s;
	uint64_t before;

	cuda_start();
	ok(cow_cuda_reset_peaks(0));
	before = cuda_stats(0).allocated_bytes[0].allocated;
	s = cached(5 * MIB);
	cow_storage_unref(s);
	ck_assert_uint_eq(cuda_stats(0).allocated_bytes[COW_CUDA_LARGE].peak, 5 * MIB);
	ck_assert_uint_eq(cuda_stats(0).allocated_bytes[COW_CUDA_SMALL].peak, 0);
	ok(cow_cuda_reset_peaks(0));
	ck_assert_uint_eq(cuda_stats(0).allocated_bytes[0].peak, 0);
	ck_assert_uint_eq(cuda_stats(0).allocated_bytes[0].allocated, before + 5 * MIB);
	ck_assert_uint_eq(cuda_stats(0).reserved_bytes[0].peak, 20 * MIB);
	cuda_nothing_left();
}
END_TEST

/* ---- Memory outside of the cache ----------------------------------------------------- */

#define PIECE (2 * MIB)

/* Numbers, and bytes in pieces. */
static void numbers(uint64_t storages, uint64_t ranges, uint64_t allocated, uint64_t active,
                    uint64_t reserved)
{
	struct cow_cuda_stats s = cuda_stats(0);

	ck_assert_uint_eq(s.allocation[0].current, storages);
	ck_assert_uint_eq(s.active[COW_CUDA_LARGE].current, ranges);
	ck_assert_uint_eq(s.segment[0].current, ranges);
	ck_assert_uint_eq(s.allocated_bytes[0].current, allocated * PIECE);
	ck_assert_uint_eq(s.active_bytes[0].current, active * PIECE);
	ck_assert_uint_eq(s.reserved_bytes[0].current, reserved * PIECE);
	ck_assert_uint_eq(s.device_alloc - s.device_free, s.reserved_bytes[0].current / PIECE);
}

/* Freed memory is given back. */
static void settle(void)
{
	cuda_finish(0);
	ok(cow_cuda_empty_cache(0));
}

START_TEST(pieces)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = COW_CUDA_PIECES };
	struct cow_storage *s, *c;

	cuda_start();
	ok(cow_cuda_storage_new(0, 3 * PIECE - 5, &o, &s));
	numbers(1, 1, 3, 3, 3);
	ck_assert_uint_eq(cuda_stats(0).requested_bytes[0].current, 3 * PIECE - 5);
	ok(cow_storage_lazy_clone(s, &c));
	numbers(1, 1, 3, 3, 3);
	(void)mut_range(c, 0, 1, COW_WRITE_AUTO);
	numbers(2, 2, 6, 6, 4); /* two pieces are shared */
	cow_storage_unref(s);
	settle();
	numbers(1, 1, 3, 3, 3);
	cow_storage_unref(c);
	settle();
	numbers(0, 0, 0, 0, 0);
	ck_assert_uint_eq(cuda_stats(0).reserved_bytes[0].peak, 4 * PIECE);
	ck_assert_uint_eq(cuda_stats(0).requested_bytes[0].current, 0);
}
END_TEST

/* A piece of the allocator becomes the receivers' piece. */
START_TEST(sent_and_received)
{
	struct cow_storage *s = NULL;
	struct cow_channel *theirs;
	struct cow_parcel q;
	struct ends e;

	cuda_start();
	ends_make(&e, SOCK_STREAM, true);
	ok(cow_channel_new(e.fd[1], e.group, 0, &theirs));
	for (int last = 0; last < 2; last++) {
		s = cuda_storage(0, PIECE, COW_CUDA_SINGLE);
		numbers(1, 0 + 1, 1, 1, 1);
		send_one(e.mine, s, COW_SHARE_CLONE);
		must(cow_channel_receive(theirs, &q, 1, NULL, 0, NULL) == 1);
		settle();
		/* A received piece counts as made by another process. */
		numbers(2, 2, 2, 2, 1);
		cow_storage_unref(last ? q.storage : s);
		settle();
		numbers(1, 1, 1, 1, last ? 1 : 0);
		cow_storage_unref(last ? s : q.storage);
		settle();
		numbers(0, 0, 0, 0, 0);
	}
	cow_channel_free(theirs);
	ends_free(&e);
	cuda_nothing_left();
}
END_TEST

/* Pieces in use are in use, when memory runs out. */
START_TEST(the_sentence)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = COW_CUDA_PIECES };
	struct cow_storage *s, *c, *none;

	cuda_start();
	ok(cow_cuda_storage_new(0, 600 * MIB, &o, &s));
	ok(cow_storage_lazy_clone(s, &c));
	(void)mut_range(c, 0, 1, COW_WRITE_AUTO);
	fails(-ENOMEM, cow_cuda_storage_new(0, 600 * MIB, NULL, &none));
	if (!strstr(cow_last_error(), "has 602.00 MiB: 602.00 MiB in use, 0.00 KiB cached"))
		ck_abort_msg("it says: %s", cow_last_error());
	cow_storage_unref(s);
	cow_storage_unref(c);
	settle();
	cuda_nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_memory_trace");
	TCase *c = add_case(s, "told");

	tcase_add_test(c, history);
	tcase_add_test(c, peaks);
	tcase_add_test(c, pieces);
	tcase_add_test(c, sent_and_received);
	add_test_needing(NEEDS_CONTROL, c, the_sentence); /* a small device */
	return run_suite(s);
}

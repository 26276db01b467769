/* SPDX-License-Identifier: MIT */
/*
 * What the cache of device memory tells: history, snapshots, peaks
 *
 * (That numbers and snapshots agree is checked wherever tests use the cache.)
 */
#include "tests/support/cuda.h"

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

int main(void)
{
	Suite *s = suite_create("cuda_memory_trace");
	TCase *c = add_case(s, "told");

	tcase_add_test(c, history);
	tcase_add_test(c, peaks);
	return run_suite(s);
}

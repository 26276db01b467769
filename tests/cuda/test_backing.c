/* SPDX-License-Identifier: MIT */
/*
 * Storages on device memory: single pieces, zeros, and storages in a forked child
 */
#include "tests/support/cuda.h"

#include <errno.h>

static void current(cow_cuda_stream s)
{
	ok(cow_cuda_stream_set(0, s));
}

static struct cow_storage *cached(size_t bytes)
{
	return cuda_storage(0, bytes, COW_CUDA_CACHED);
}

static uintptr_t at(const struct cow_storage *s)
{
	return (uintptr_t)cow_storage_data(s);
}

static size_t physical(void)
{
	struct ref_usage u;

	ref.usage(&u);
	return u.bytes;
}

START_TEST(single_pieces)
{
	struct cow_cuda_options zero = { sizeof(zero), COW_CUDA_SINGLE,
		                         COW_STORAGE_ZERO, 0 };
	cow_cuda_stream a;
	struct cow_storage *s, *c;
	void *p;

	cuda_start();
	a = cuda_stream(0);
	current(a);
	ok(cow_cuda_storage_new(0, 3 * MIB, &zero, &s));
	ck_assert_uint_eq(physical(), 4 * MIB);
	ok(cow_cuda_stream_wait(0, a));
	cuda_check(s, 0);
	cuda_fill(s, 7, a);
	ok(cow_storage_lazy_clone(s, &c));
	ok(cow_storage_data_mut(c, &p));
	must((uintptr_t)p != at(s));
	ok(cow_cuda_stream_wait(0, a));
	cuda_check(c, 7);
	cuda_picture(0);
	cuda_fill(c, 8, a);
	ref.set(REF_HOLD, 1);
	cuda_fill(c, 9, a);
	cow_storage_unref(c);
	ck_assert_uint_eq(physical(), 8 * MIB); /* a fill is under way */
	ref.set(REF_HOLD, 0);
	cow_storage_unref(s);
	current(NULL);
	cuda_nothing_left();
}
END_TEST

START_TEST(zeros)
{
	struct cow_cuda_options zero = { sizeof(zero), COW_CUDA_CACHED,
		                         COW_STORAGE_ZERO, 0 };
	struct cow_storage_options plain = { .size = sizeof(plain),
		                             .flags = COW_STORAGE_ZERO };
	struct cow_storage *s;

	cuda_start();
	s = cached(10000);
	cuda_fill(s, 5, NULL);
	cow_storage_unref(s);
	ok(cow_cuda_storage_new(0, 10000, &zero, &s));
	cuda_finish(0);
	cuda_check(s, 0);
	cuda_fill(s, 5, NULL);
	cow_storage_unref(s);
	ok(cow_allocator_get((struct cow_device){ COW_DEVICE_CUDA, 0 },
	                     &plain.allocator));
	ok(cow_storage_new(10000, &plain, &s));
	cuda_finish(0);
	cuda_check(s, 0);
	cow_storage_unref(s);
	cuda_nothing_left();
}
END_TEST

static void forked(void *arg)
{
	struct cow_storage **s = arg, *n;
	uint64_t calls = cuda_calls();

	fails(-ECHILD, cow_cuda_storage_new(0, 100, NULL, &n));
	fails(-ECHILD, cow_cuda_empty_cache(-1));
	fails(-ECHILD, cow_cuda_record_stream(s[0], NULL));
	for (int i = 0; i < 3; i++)
		cow_storage_unref(s[i]);
	must(cuda_calls() == calls);
}

START_TEST(a_child)
{
	struct cow_storage *s[3];
	cow_cuda_stream a;

	cuda_start();
	a = cuda_stream(0);
	s[0] = cached(100);
	s[1] = cached(10 * MIB);
	s[2] = cuda_storage(0, 100, COW_CUDA_SINGLE);
	ok(cow_cuda_record_stream(s[0], a));
	in_child(forked, s);
	for (int i = 0; i < 3; i++)
		cow_storage_unref(s[i]);
	cuda_nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_backing");
	TCase *c = add_case(s, "backing");

	add_test_needing(NEEDS_CONTROL, c, single_pieces);
	tcase_add_test(c, zeros);
	tcase_add_test(c, a_child);
	return run_suite(s);
}

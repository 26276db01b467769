/* SPDX-License-Identifier: MIT */
/*
 * Device memory from the cache: the host's time to allocate and free it
 *
 * A cache hit makes no call of the driver. So this measures the library alone, with any
 * driver (COWSHED_CUDA_DRIVER names one). Three cases: one size again and again; sizes
 * in turn among others that are in use, where blocks are split and merged; and a
 * storage. Bar: 1 us.
 */
#include <cowshed-cuda.h>

#include "bench/common.h"

enum { TIMES = 20000, LIVE = 64 };

static struct cow_allocator *allocator;

static void one(size_t bytes, struct cow_data_ptr *ret)
{
	must(cow_allocator_allocate(allocator, bytes, ret));
}

static double same(void)
{
	double t = now_ns();

	for (int i = 0; i < TIMES; i++) {
		struct cow_data_ptr p;

		one(4096, &p);
		cow_data_ptr_clear(&p);
	}
	return (now_ns() - t) / TIMES;
}

static double mixed(void)
{
	static struct cow_data_ptr p[LIVE];
	uint32_t x = 1;
	double t = now_ns();

	for (int i = 0; i < TIMES; i++) {
		struct cow_data_ptr *q = &p[i % LIVE];

		cow_data_ptr_clear(q);
		x = x * 1664525 + 1013904223;
		one(512 + (x >> 13), q);
	}
	for (int i = 0; i < LIVE; i++)
		cow_data_ptr_clear(&p[i]);
	return (now_ns() - t) / TIMES;
}

static double storage(void)
{
	double t = now_ns();

	for (int i = 0; i < TIMES; i++) {
		struct cow_storage *s;

		must(cow_cuda_storage_new(0, 4096, NULL, &s));
		cow_storage_unref(s);
	}
	return (now_ns() - t) / TIMES;
}

static const struct {
	const char *name;
	double (*run)(void);
} cases[] = { { "same", same }, { "mixed", mixed }, { "storage", storage } };

int main(void)
{
	if (cow_cuda_start() < 0) {
		printf("cuda_cache: %s\n", cow_last_error());
		return 77;
	}
	must(cow_allocator_get((struct cow_device){ COW_DEVICE_CUDA, 0 }, &allocator));
	for (size_t c = 0; c < COUNT_OF(cases); c++) {
		struct series s = { { 0 }, 0 };

		(void)cases[c].run();
		for (int i = 0; i < rounds(25); i++)
			series_add(&s, cases[c].run());
		report(cases[c].name, "ns", &s, NULL, BAR_OURS, 1000);
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Devices in tests: see the header.
 */
#include "tests/support/cuda.h"

#include <stdlib.h>
#include <string.h>

#define MAP (2 * MIB) /* what is mapped begins and ends at multiples */

void cuda_start(void)
{
	driver_start();
	ok(cow_cuda_start());
}

uint64_t cuda_calls(void)
{
	uint64_t n = 0;

#define CALL(need, member, name, symbol, version, parameters)                  \
	n += ref.calls(#name) == UINT64_MAX ? 0 : ref.calls(#name);
#include "cuda/calls.h"
#undef CALL
	return n - ref.calls("cuGetErrorName") - ref.calls("cuGetErrorString");
}

struct cow_storage *cuda_storage(int device, size_t bytes, uint32_t backing)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = backing };
	struct cow_storage *s;

	ok(cow_cuda_storage_new(device, bytes, &o, &s));
	return s;
}

struct cow_cuda_stats cuda_stats(int device)
{
	struct cow_cuda_stats s = { .size = sizeof(s) };

	ok(cow_cuda_get_stats(device, &s));
	return s;
}

cow_cuda_stream cuda_stream(int device)
{
	cow_cuda_stream s;

	ok(cow_cuda_stream_new(device, 0, &s));
	return s;
}

static void enter(int device)
{
	cu_ok(cu->ctx_push_current(driver_context(device)));
}

static void leave(void)
{
	struct cow__cu_context *c;

	cu_ok(cu->ctx_pop_current(&c));
}

void cuda_fill(const struct cow_storage *s, unsigned char value, cow_cuda_stream stream)
{
	enter(cow_storage_device(s).index);
	cu_ok(cu->set_8((uintptr_t)cow_storage_data(s), value, cow_storage_bytes(s),
	                stream));
	leave();
}

void cuda_finish(int device)
{
	enter(device);
	cu_ok(cu->ctx_synchronize());
	leave();
}

void cuda_check(const struct cow_storage *s, unsigned char value)
{
	size_t bytes = cow_storage_bytes(s);
	unsigned char *copy = malloc(bytes);

	uintptr_t from = (uintptr_t)cow_storage_data(s);
	size_t done = 0, n;

	must(copy != NULL);
	enter(cow_storage_device(s).index);
	/* Neighbours of two maps can't be had at once. */
	for (; done < bytes; done += n) {
		n = MAP - (from + done) % MAP;
		if (n > bytes - done)
			n = bytes - done;
		must(ref.peek(from + done, copy + done, n) == 0);
	}
	leave();
	ck_bytes(copy, bytes, value);
	free(copy);
}

size_t cuda_picture(int device)
{
	struct cow_cuda_stats s = cuda_stats(device);
	long n = cow_cuda_snapshot(device, NULL, 0);
	struct cow_cuda_block *b = calloc((size_t)n + 1, sizeof(*b));
	uint64_t used = 0, active = 0, mapped = 0, requested = 0, blocks = 0, stretches = 0;

	must(n >= 0 && b != NULL);
	ck_assert_int_eq(cow_cuda_snapshot(device, b, (size_t)n), n);
	for (long i = 0; i < n; i++) {
		must(b[i].address >= b[i].segment);
		must(b[i].address + b[i].bytes <= b[i].segment + b[i].segment_bytes);
		if (i && b[i].segment == b[i - 1].segment)
			must(b[i].address == b[i - 1].address + b[i - 1].bytes);
		else
			must(b[i].address == b[i].segment);
		if (i)
			must(b[i].address >= b[i - 1].address + b[i - 1].bytes);
		stretches += b[i].address == b[i].segment;
		mapped += b[i].bytes;
		if (b[i].state != COW_CUDA_BLOCK_FREE)
			active += b[i].bytes;
		if (b[i].state == COW_CUDA_BLOCK_USED) {
			must(b[i].requested <= b[i].bytes);
			used += b[i].bytes;
			requested += b[i].requested;
			blocks++;
		}
	}
	ck_assert_uint_eq(mapped, s.reserved_bytes[0].current);
	ck_assert_uint_eq(stretches, s.segment[0].current);
	ck_assert_uint_eq(used, s.allocated_bytes[0].current);
	ck_assert_uint_eq(active, s.active_bytes[0].current);
	ck_assert_uint_eq(requested, s.requested_bytes[0].current);
	ck_assert_uint_eq(blocks, s.allocation[0].current);
	free(b);
	return (size_t)n;
}

void cuda_nothing_left(void)
{
	struct ref_usage u;

	ok(cow_cuda_empty_cache(-1));
	ref.usage(&u);
	ck_assert_uint_eq(u.bytes, 0);
	ck_assert_uint_eq(u.handles, 0);
	ck_assert_uint_eq(u.mappings, 0);
	ck_assert_uint_eq(u.reservations, 0);
	ck_assert_uint_eq(cuda_picture(0), 0);
}

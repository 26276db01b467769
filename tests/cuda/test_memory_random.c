/* SPDX-License-Identifier: MIT */
/*
 * Random programs on device memory
 *
 * If a block is handed out too early, late work of its earlier owner writes into it. So each
 * block keeps one value from its last fill to its end, on streams that the reference driver
 * runs late and out of order. In between the snapshot of the cache must agree with itself.
 */
#include "tests/support/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static void current(cow_cuda_stream s)
{
	ok(cow_cuda_stream_set(0, s));
}

enum { SLOTS = 48, STREAMS = 4 };

struct slot {
	struct cow_storage *s;
	cow_cuda_stream last; /* that wrote it */
	unsigned char value;
};

static size_t some_size(struct prng *r)
{
	switch (prng_below(r, 4)) {
	case 0:
		return 1 + prng_below(r, 4096);
	case 1:
		return 1 + prng_below(r, MIB);
	case 2:
		return MIB + prng_below(r, 4 * MIB);
	default:
		return 1 + prng_below(r, 100000);
	}
}

static void renew(struct slot *x, struct prng *r, cow_cuda_stream stream)
{
	bool single = prng_below(r, 16) == 0 &&
	              ref.calls("cuMemCreate") != UINT64_MAX && !getenv("COWREF_LACKS");

	x->s = cuda_storage(0, some_size(r), single ? COW_CUDA_SINGLE : COW_CUDA_CACHED);
	x->value = (unsigned char)(1 + prng_below(r, 255));
	cuda_fill(x->s, x->value, stream);
	x->last = stream;
}

static void use(struct slot *y, struct prng *r, cow_cuda_stream stream)
{
	switch (prng_below(r, 6)) {
	case 0:
	case 1: /* it goes on being used elsewhere, in order */
		ok(cow_cuda_stream_after(0, stream, y->last));
		ok(cow_cuda_record_stream(y->s, stream));
		y->value ^= 0x55;
		cuda_fill(y->s, y->value, stream);
		y->last = stream;
		break;
	case 2:
		ok(cow_cuda_stream_wait(0, y->last));
		cuda_check(y->s, y->value);
		break;
	default:
		y->s = cow_storage_unref(y->s);
	}
}

static void renew_stream(cow_cuda_stream *stream, struct slot *x)
{
	current(NULL);
	for (int k = 0; k < SLOTS; k++)
		if (x[k].s && x[k].last == *stream) {
			ok(cow_cuda_stream_wait(0, *stream));
			x[k].last = NULL;
		}
	ok(cow_cuda_stream_free(0, *stream));
	*stream = cuda_stream(0);
}

/* A late write by the memory's previous owner lands in the wrong block. */
static void random_program(uint64_t seed, int steps, bool alone)
{
	struct prng r = prng_make(seed);
	struct slot x[SLOTS] = { { NULL, NULL, 0 } };
	cow_cuda_stream streams[STREAMS];

	for (int i = 0; i < STREAMS; i++)
		streams[i] = cuda_stream(0);
	for (int i = 0; i < steps; i++) {
		struct slot *y = &x[prng_below(&r, SLOTS)];
		cow_cuda_stream stream = streams[prng_below(&r, STREAMS)];

		current(stream);
		if (!y->s) {
			renew(y, &r, stream);
			continue;
		}
		use(y, &r, stream);
		if (prng_below(&r, 64) == 0)
			renew_stream(&streams[prng_below(&r, STREAMS)], x);
		if (prng_below(&r, 200) == 0)
			ok(cow_cuda_empty_cache(0));
		if (alone && i % 16 == 0)
			cuda_picture(0);
	}
	current(NULL);
	cuda_finish(0);
	for (int i = 0; i < SLOTS; i++)
		if (x[i].s) {
			cuda_check(x[i].s, x[i].value);
			cow_storage_unref(x[i].s);
		}
	for (int i = 0; i < STREAMS; i++)
		ok(cow_cuda_stream_free(0, streams[i]));
}

START_TEST(random_programs)
{
	cuda_start();
	ref.set(REF_DELAY_US, 300);
	random_program((uint64_t)_i + 1, ROUNDS(600), true);
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	cuda_nothing_left();
}
END_TEST

START_TEST(random_programs_without_virtual_memory)
{
	struct cow_cuda_options single = { sizeof(single), COW_CUDA_SINGLE, 0, 0 };
	struct cow_storage *s;
	struct ref_usage u;

	must(setenv("COWREF_LACKS", "cuMemCreate", 1) == 0);
	cuda_start();
	ref.set(REF_DELAY_US, 300);
	fails(-ENOTSUP, cow_cuda_storage_new(0, 100, &single, &s));
	random_program((uint64_t)_i + 1, ROUNDS(600), true);
	ok(cow_cuda_empty_cache(-1));
	ref.usage(&u);
	ck_assert_uint_eq(u.bytes, 0);
	ck_assert_uint_eq(cuda_picture(0), 0);
}
END_TEST

static void *thread(void *seed)
{
	random_program((uint64_t)(uintptr_t)seed, ROUNDS(400), false);
	return NULL;
}

START_TEST(threads)
{
	pthread_t t[4];

	cuda_start();
	ref.set(REF_DELAY_US, 300);
	for (size_t i = 0; i < COUNT(t); i++)
		must(pthread_create(&t[i], NULL, thread,
		                    (void *)(uintptr_t)(i + 100)) == 0);
	for (size_t i = 0; i < COUNT(t); i++)
		must(pthread_join(t[i], NULL) == 0);
	cuda_picture(0);
	cuda_nothing_left();
}
END_TEST

/* Sizes change over time, as in programs that work in batches: the memory that is held stays
 * near the most that was used. */
START_TEST(fragmentation_is_bounded)
{
	struct prng r = prng_make(5);
	struct cow_storage *s[64] = { NULL };
	uint64_t peak;

	cuda_start();
	ok(cow_cuda_reset_peaks(0));
	for (int i = 0; i < 4000; i++) {
		size_t k = prng_below(&r, COUNT(s));

		if (s[k])
			s[k] = cow_storage_unref(s[k]);
		else
			s[k] = cuda_storage(0, MIB + prng_below(&r, ((size_t)i / 800 + 1) * 2 * MIB),
			                    COW_CUDA_CACHED);
	}
	peak = cuda_stats(0).active_bytes[0].peak;
	ck_assert_uint_le(cuda_stats(0).reserved_bytes[0].peak, peak + peak / 4 + 20 * MIB);
	for (size_t k = 0; k < COUNT(s); k++)
		cow_storage_unref(s[k]);
	cuda_nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_memory_random");
	TCase *c = add_case(s, "random");

	tcase_add_loop_test(c, random_programs, 0, 4);
	add_loop_test_needing(NEEDS_CONTROL, c, random_programs_without_virtual_memory, 0, 3);
	tcase_add_test(c, threads);
	tcase_add_test(c, fragmentation_is_bounded);
	return run_suite(s);
}

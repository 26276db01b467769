/* SPDX-License-Identifier: MIT */
/*
 * Copies of CUDA devices: their order, and when they run
 *
 * The reference driver begins work as late as it may (REF_HOLD: not before a call waits for
 * it). So a read or a write that comes too early is found. It also counts the calls that
 * wait.
 */
#include "tests/support/cuda.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (64 * KIB)

static struct cow_tensor *bytes_on(struct cow_storage *s)
{
	struct cow_tensor *t;

	ok(cow_tensor_on(s, COW_UINT8, 1, SIZES((int64_t)cow_storage_bytes(s)), NULL, 0, &t));
	cow_storage_unref(s);
	return t;
}

static struct cow_tensor *device(int index, size_t bytes)
{
	return bytes_on(cuda_storage(index, bytes, COW_CUDA_CACHED));
}

static struct cow_tensor *pinned(size_t bytes, int value)
{
	struct cow_storage *s;
	void *data;

	ok(cow_cuda_pinned_new(bytes, &s));
	ok(cow_storage_data_mut(s, &data));
	memset(data, value, bytes);
	return bytes_on(s);
}

static struct cow_tensor *pageable(size_t bytes, uint64_t seed)
{
	struct cow_tensor *t = tensor_new(COW_UINT8, 1, SIZES((int64_t)bytes), COW_FORMAT_CONTIGUOUS);
	void *data;

	ok(cow_tensor_data_mut(t, COW_WRITE_ALL, &data));
	fill(data, bytes, seed);
	return t;
}

static unsigned char *bytes_of(struct cow_tensor *t)
{
	void *data;

	ok(cow_tensor_data_mut(t, COW_WRITE_AUTO, &data));
	return data;
}

/* How many calls waited, by their definition or not. */
static uint64_t waits(void)
{
	return ref.calls("cuStreamSynchronize") + ref.calls("cuEventSynchronize") +
	       ref.calls("cuCtxSynchronize") + ref.implicit_waits();
}

/* All work is done, and nothing is kept for later. */
static void finish(void)
{
	ref.set(REF_HOLD, 0);
	for (int i = 0; i < cow_cuda_count(); i++)
		cuda_finish(i);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_empty_cache(-1));
}

/* ---- Handles ------------------------------------------------------------- */

/* Nothing has been read before it is waited for: a change too early is seen. */
START_TEST(changed_too_early)
{
	struct cow_tensor *h, *d;
	struct cow_work *w;

	cuda_start();
	ref.set(REF_HOLD, 1);
	h = pinned(BYTES, 1);
	d = device(0, BYTES);
	ok(cow_tensor_copy_begin(d, h, 0, &w));
	bytes_of(h)[7] = 2;
	must(cow_work_poll(w) == 0); /* not before: the driver may begin when it is asked */
	ok(cow_work_wait(w));
	must(cow_work_poll(w) == 1);
	w = cow_work_free(w);
	must(w == NULL);
	bytes_of(h)[7] = 1;
	ref.set(REF_HOLD, 0);
	ok(cow_tensor_copy(h, d, 0));
	must(bytes_of(h)[6] == 1 && bytes_of(h)[7] == 2);
	cow_tensor_unref(h);
	cow_tensor_unref(d);
	finish();
}
END_TEST

/* A read that comes too early gets the old bytes. */
START_TEST(read_too_early)
{
	struct cow_tensor *h, *d;
	struct cow_work *w;
	uint64_t before;

	cuda_start();
	h = pinned(BYTES, 1);
	d = device(0, BYTES);
	ok(cow_tensor_copy(d, h, 0));
	memset(bytes_of(h), 5, BYTES);
	ref.set(REF_HOLD, 1);
	before = waits();
	ok(cow_tensor_copy_begin(h, d, 0, &w));
	ck_assert_uint_eq(waits(), before);
	ck_bytes(bytes_of(h), BYTES, 5);
	must(cow_work_poll(w) == 0);
	ok(cow_work_wait(w));
	ck_assert_uint_eq(waits(), before + 1);
	ck_bytes(bytes_of(h), BYTES, 1);
	cow_work_free(w);
	/* Without a handle the bytes are there on return, with any flags. */
	memset(bytes_of(h), 5, BYTES);
	ok(cow_tensor_copy(h, d, COW_COPY_NON_BLOCKING));
	ck_bytes(bytes_of(h), BYTES, 1);
	cow_tensor_unref(h);
	cow_tensor_unref(d);
	finish();
}
END_TEST

/* Work whose handle was freed holds what it needs until it has ended, and no longer. No call
 * waits for it. */
START_TEST(given_up)
{
	struct cow_tensor *h, *d;
	struct cow_work *w;
	uint64_t before;
	size_t used;

	cuda_start();
	h = pinned(BYTES, 9);
	d = device(0, BYTES);
	ref.set(REF_HOLD, 1);
	used = cuda_stats(0).allocated_bytes[0].current;
	before = waits();
	ok(cow_tensor_copy_begin(d, h, 0, &w));
	w = cow_work_free(w);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	ck_assert_uint_eq(cuda_stats(0).allocated_bytes[0].current, used);
	ck_assert_uint_eq(waits(), before);
	ref.set(REF_HOLD, 0);
	cuda_finish(0);
	h = pageable(16, 0);
	d = pageable(16, 1);
	ok(cow_tensor_copy_begin(d, h, 0, &w)); /* looks after the other */
	must(cow_work_poll(w) == 1);
	cow_work_free(w);
	ck_assert_uint_eq(cuda_stats(0).allocated_bytes[0].current, used - BYTES);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	finish();
}
END_TEST

/* Conversions and strides with a handle: done by the device, unfinished, and right. */
START_TEST(staged)
{
	struct cow_tensor *h = counting(64, 64), *d, *e, *p, *want;
	struct cow_tensor_options there = { .size = sizeof(there), .device = { COW_DEVICE_CUDA, 0 } };
	struct cow_storage *s;
	struct cow_work *w;
	uint64_t before;

	cuda_start();
	ok(cow_tensor_new(COW_INT32, 2, SIZES(64, 64), &there, &d));
	ok(cow_tensor_copy(d, h, 0));
	ok(cow_cuda_pinned_new(64 * 64 * 2, &s));
	ok(cow_tensor_on(s, COW_BFLOAT16, 2, SIZES(64, 64), NULL, 0, &p));
	cow_storage_unref(s);
	memset(bytes_of(p), 0, 64 * 64 * 2);
	want = tensor_new(COW_BFLOAT16, 2, SIZES(64, 64), COW_FORMAT_CONTIGUOUS);
	h = transpose(h, 0, 1);
	ok(cow_tensor_copy(want, h, 0));
	d = transpose(d, 0, 1);
	ref.set(REF_HOLD, 1);
	before = waits();
	ok(cow_tensor_copy_begin(p, d, 0, &w));
	ck_assert_uint_eq(waits(), before);
	must(cow_tensor_equal(p, want) == 0);
	ok(cow_work_wait(w));
	must(cow_tensor_equal(p, want) == 1);
	cow_work_free(w);
	/* And back: moved as it lies, converted and spread there. */
	ok(cow_tensor_new(COW_FLOAT32, 2, SIZES(64, 128), &there, &e));
	e = slice(e, 1, 0, 128, 2);
	before = waits();
	ok(cow_tensor_copy_begin(e, p, 0, &w));
	ck_assert_uint_eq(waits(), before);
	ok(cow_work_wait(w));
	cow_work_free(w);
	ref.set(REF_HOLD, 0);
	cow_tensor_unref(h);
	h = tensor_new(COW_BFLOAT16, 2, SIZES(64, 64), COW_FORMAT_CONTIGUOUS);
	ok(cow_tensor_copy(h, e, 0));
	must(cow_tensor_equal(h, want) == 1);
	cow_tensor_unref(d);
	cow_tensor_unref(e);
	cow_tensor_unref(h);
	cow_tensor_unref(p);
	cow_tensor_unref(want);
	finish();
}
END_TEST

/* A read that comes too early sees the poison; a write that comes too early gives an error. */
START_TEST(poisoned)
{
	struct cow_tensor *h, *d;
	struct cow_work *w;

	cuda_start();
	h = pinned(BYTES, 1);
	d = device(0, BYTES);
	ok(cow_tensor_copy(d, h, 0));
	ok(cow_cuda_set_poison(true));
	memset(bytes_of(h), 5, BYTES);
	ref.set(REF_HOLD, 1);
	ok(cow_tensor_copy_begin(h, d, 0, &w));
	ck_bytes(bytes_of(h), BYTES, 0xa5);
	ok(cow_work_wait(w));
	ck_bytes(bytes_of(h), BYTES, 1);
	cow_work_free(w);
	/* A legal sequence is what it was: the memory is read before it is filled. */
	ok(cow_tensor_copy(d, h, COW_COPY_NON_BLOCKING));
	ok(cow_tensor_copy_begin(h, d, 0, &w));
	ok(cow_work_wait(w));
	ck_bytes(bytes_of(h), BYTES, 1);
	cow_work_free(w);
	ok(cow_tensor_copy_begin(d, h, 0, &w));
	ok(cow_work_wait(w));
	cow_work_free(w);
	ok(cow_tensor_copy_begin(d, h, 0, &w));
	bytes_of(h)[BYTES - 1] ^= 1;
	must(cow_work_poll(w) == 0);
	fails(-EILSEQ, cow_work_wait(w));
	fails(-EILSEQ, cow_work_poll(w));
	cow_work_free(w);
	ok(cow_option_set("cuda-poison", "no"));
	ok(cow_tensor_copy_begin(d, h, 0, &w));
	bytes_of(h)[0] ^= 1;
	ok(cow_work_wait(w));
	cow_work_free(w);
	cow_tensor_unref(h);
	cow_tensor_unref(d);
	finish();
}
END_TEST

/* ---- Waiting --------------------------------------------------------------- */

START_TEST(nobody_waits)
{
	struct cow_tensor *h, *d, *e, *f, *g;
	uint64_t before;

	cuda_start();
	h = pinned(BYTES, 3);
	d = device(0, BYTES);
	e = device(0, BYTES);
	f = device(1, BYTES);
	g = slice(device(0, 2 * BYTES), 0, 0, INT64_MAX, 2);
	/* Pageable memory that a copy is said to be asynchronous for ends the test. */
	ref.set(REF_PAGEABLE, 0);
	before = waits();
	ok(cow_tensor_copy(d, h, COW_COPY_NON_BLOCKING));
	ok(cow_tensor_copy(e, d, 0));
	ok(cow_tensor_copy(g, e, 0));
	ok(cow_tensor_copy(f, e, 0));
	ok(cow_tensor_copy(e, f, 0));
	ck_assert_uint_eq(waits(), before);
	ok(cow_tensor_copy(d, h, 0));
	ck_assert_uint_eq(waits(), before + 1);
	ok(cow_tensor_copy(h, d, 0));
	ck_assert_uint_eq(waits(), before + 2);
	cuda_finish(0);
	cuda_finish(1);
	cow_tensor_unref(h);
	cow_tensor_unref(d);
	cow_tensor_unref(e);
	cow_tensor_unref(f);
	cow_tensor_unref(g);
	finish();
}
END_TEST

/* Through the ring, of any size: the bytes are right, and the host's may be changed on
 * return. */
START_TEST(ring)
{
	static const size_t sizes[] = { 1, 4096, 65536, 65537, 4 * MIB, 4 * MIB + 1, 12 * MIB + 333 };

	cuda_start();
	for (size_t i = 0; i < COUNT(sizes); i++)
		for (uint32_t flags = 0; flags <= COW_COPY_NON_BLOCKING; flags += COW_COPY_NON_BLOCKING) {
			struct cow_tensor *h = pageable(sizes[i], i), *d = device(0, sizes[i]);

			ok(cow_tensor_copy(d, h, flags));
			memset(bytes_of(h), 0, sizes[i]);
			ok(cow_tensor_copy(h, d, flags));
			ck_pattern(bytes_of(h), sizes[i], i);
			cow_tensor_unref(h);
			cow_tensor_unref(d);
		}
	finish();
}
END_TEST

/* ---- Streams --------------------------------------------------------------------- */

/* Each copy is ordered behind both devices' streams, and before what comes after. */
START_TEST(between_devices)
{
	cow_cuda_stream a, b;

	cuda_start();
	a = cuda_stream(0);
	b = cuda_stream(1);
	ok(cow_cuda_stream_set(0, a));
	ok(cow_cuda_stream_set(1, b));
	for (int round = 0; round < 30; round++) {
		struct cow_tensor *d = device(0, BYTES), *e = device(1, BYTES), *f = device(1, BYTES);

		cuda_fill(cow_tensor_storage(e), 1, b); /* before the copy: overwritten */
		cuda_fill(cow_tensor_storage(d), 2, a);
		ok(cow_tensor_copy(e, d, 0));
		cuda_fill(cow_tensor_storage(d), 3, a); /* after it: not seen */
		ok(cow_tensor_copy(f, e, 0));
		cuda_fill(cow_tensor_storage(e), 4, b);
		cuda_finish(0);
		cuda_finish(1);
		cuda_check(cow_tensor_storage(d), 3);
		cuda_check(cow_tensor_storage(e), 4);
		cuda_check(cow_tensor_storage(f), 2);
		cow_tensor_unref(d);
		cow_tensor_unref(e);
		cow_tensor_unref(f);
	}
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_set(1, NULL));
	ok(cow_cuda_stream_free(0, a));
	ok(cow_cuda_stream_free(1, b));
	finish();
}
END_TEST

/* A graph can't have pageable memory, nor be waited for: advice, and nothing done. */
START_TEST(recording)
{
	struct cow_tensor *h, *p, *d;
	cow_cuda_stream s;
	struct cow_work *w = NULL;

	cuda_start();
	s = cuda_stream(0);
	h = pageable(BYTES, 1);
	p = pinned(BYTES, 1);
	d = device(0, BYTES);
	ok(cow_cuda_stream_set(0, s));
	capture_begin(s, COW_CU_CAPTURE_GLOBAL);
	fails(-EBUSY, cow_tensor_copy(d, h, COW_COPY_NON_BLOCKING));
	ck_assert_msg(strstr(cow_last_error(), "cow_cuda_pinned_new") != NULL, "%s", cow_last_error());
	fails(-EBUSY, cow_tensor_copy(h, d, 0));
	ck_assert_msg(strstr(cow_last_error(), "cow_cuda_pinned_new") != NULL, "%s", cow_last_error());
	fails(-EBUSY, cow_tensor_copy(d, p, 0));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "COW_COPY_NON_BLOCKING"));
	fails(-EBUSY, cow_tensor_copy(p, d, 0));
	fails(-EBUSY, cow_tensor_copy_begin(d, h, 0, &w));
	fails(-EBUSY, cow_tensor_copy_begin(d, p, 0, &w));
	ck_assert_ptr_nonnull(strstr(cow_last_error(), "graph"));
	must(w == NULL);
	capture_end(s);
	ok(cow_tensor_copy(d, p, 0));
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, s));
	cow_tensor_unref(h);
	cow_tensor_unref(p);
	cow_tensor_unref(d);
	finish();
}
END_TEST

/* ---- fork --------------------------------------------------------------------------- */

struct inherited {
	struct cow_tensor *h, *d;
	struct cow_work *w;
};

static void in_the_child(void *arg)
{
	struct inherited *i = arg;

	fails(-ECHILD, cow_tensor_copy(i->d, i->h, 0));
	fails(-ECHILD, cow_tensor_copy(i->h, i->d, 0));
	fails(-ECHILD, cow_work_poll(i->w));
	fails(-ECHILD, cow_work_wait(i->w));
	cow_work_free(i->w);
}

START_TEST(forked)
{
	struct inherited i;

	cuda_start();
	i.h = pinned(BYTES, 1);
	i.d = device(0, BYTES);
	ref.set(REF_HOLD, 1);
	ok(cow_tensor_copy_begin(i.d, i.h, 0, &i.w));
	in_child(in_the_child, &i);
	ok(cow_work_wait(i.w));
	cow_work_free(i.w);
	cow_tensor_unref(i.h);
	cow_tensor_unref(i.d);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_cuda_order");
	TCase *tcase = add_case(suite, "order");

	driver_choose();
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, ring);
	tcase_add_test(tcase, forked);
	add_test_needing(NEEDS_CONTROL, tcase, changed_too_early);
	add_test_needing(NEEDS_CONTROL, tcase, read_too_early);
	add_test_needing(NEEDS_CONTROL, tcase, given_up);
	add_test_needing(NEEDS_CONTROL, tcase, staged);
	add_test_needing(NEEDS_CONTROL, tcase, poisoned);
	add_test_needing(NEEDS_CONTROL, tcase, nobody_waits);
	add_test_needing(NEEDS_TWO_DEVICES, tcase, between_devices);
	tcase_add_test(tcase, recording);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Device memory: the cache, by stream, and its statistics
 *
 * On the reference driver. Its streams run late and out of order, and it ends the process if
 * memory is unmapped that queued work still uses.
 */
#include "tests/support/cuda.h"

#include <errno.h>
#include <string.h>

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

static size_t reserved(void)
{
	return cuda_stats(0).reserved_bytes[0].current;
}

START_TEST(a_hit_is_no_call)
{
	struct cow_storage *s;
	uint64_t calls;

	cuda_start();
	s = cached(1000);
	cow_storage_unref(s);
	calls = cuda_calls();
	for (int i = 0; i < 100; i++) {
		s = cached(1000);
		cow_storage_unref(s);
	}
	ck_assert_uint_eq(cuda_calls(), calls);
	cuda_nothing_left();
}
END_TEST

START_TEST(a_block_is_its_streams)
{
	cow_cuda_stream a, b;
	struct cow_storage *s, *t;
	uintptr_t first;

	cuda_start();
	ref.set(REF_HOLD, 1);
	a = cuda_stream(0);
	b = cuda_stream(0);
	current(a);
	s = cached(1 << 20);
	first = at(s);
	cuda_fill(s, 1, a);
	cow_storage_unref(s);
	/* The same stream gets it at once, though its work has not begun. */
	s = cached(1 << 20);
	ck_assert_uint_eq(at(s), first);
	cow_storage_unref(s);
	/* Another one does not. */
	current(b);
	t = cached(1 << 20);
	ck_assert_uint_ne(at(t), first);
	cow_storage_unref(t);
	current(NULL);
	ref.set(REF_HOLD, 0);
	cuda_nothing_left();
}
END_TEST

START_TEST(recorded_streams_are_waited_for)
{
	cow_cuda_stream a, b;
	struct cow_storage *s, *t;
	uintptr_t first;

	cuda_start();
	ref.set(REF_HOLD, 1);
	a = cuda_stream(0);
	b = cuda_stream(0);
	current(a);
	s = cached(3000);
	first = at(s);
	ok(cow_cuda_stream_after(0, b, a));
	cuda_fill(s, 2, b);
	ok(cow_cuda_record_stream(s, b));
	ok(cow_cuda_record_stream(s, b));
	ok(cow_cuda_record_stream(s, a)); /* its own: nothing to say */
	cow_storage_unref(s);
	ck_assert_uint_eq(cuda_stats(0).active[0].current, 1);
	ck_assert_uint_eq(cuda_stats(0).allocation[0].current, 0);
	s = cached(3000);
	ck_assert_uint_ne(at(s), first);
	ok(cow_cuda_stream_wait(0, b));
	t = cached(3000);
	ck_assert_uint_eq(at(t), first);
	cow_storage_unref(s);
	cow_storage_unref(t);
	ref.set(REF_HOLD, 0);
	current(NULL);
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	cuda_nothing_left();
}
END_TEST

START_TEST(memory_of_others_is_ignored)
{
	struct cow_storage *s = new_storage(5000, 0);

	cuda_start();
	ok(cow_cuda_record_stream(s, NULL));
	fails(-EINVAL, cow_cuda_record_stream(NULL, NULL));
	cow_storage_unref(s);
}
END_TEST

/* Freed blocks of all sizes merge, and only the missing memory is mapped. */
START_TEST(sizes_merge)
{
	struct cow_storage *s[10];
	uint64_t before;

	cuda_start();
	for (size_t i = 0; i < COUNT(s); i++)
		s[i] = cached((i + 2) * MIB + i * 512 + 7);
	for (size_t i = 0; i < COUNT(s); i++)
		cow_storage_unref(s[(i * 7) % COUNT(s)]);
	before = reserved();
	s[0] = cached(before);
	ck_assert_uint_eq(reserved(), before);
	cow_storage_unref(s[0]);
	s[0] = cached(before + 1);
	ck_assert_uint_eq(reserved(), before + 20 * MIB);
	ck_assert_uint_eq(cuda_stats(0).segment[0].current, 1);
	cow_storage_unref(s[0]);
	cuda_nothing_left();
}
END_TEST

START_TEST(holes)
{
	struct cow_storage *a, *b, *c, *d;
	uintptr_t where;

	cuda_start();
	a = cached(20 * MIB);
	b = cached(60 * MIB);
	c = cached(20 * MIB);
	where = at(b);
	cow_storage_unref(b);
	ok(cow_cuda_empty_cache(0));
	ck_assert_uint_eq(reserved(), 40 * MIB);
	ck_assert_uint_eq(physical(), 40 * MIB);
	ck_assert_uint_eq(cuda_stats(0).segment[0].current, 2);
	cuda_picture(0);
	d = cached(50 * MIB);
	ck_assert_uint_eq(at(d), where);
	ck_assert_uint_eq(reserved(), 100 * MIB);
	ck_assert_uint_eq(cuda_stats(0).segment[0].current, 1);
	cuda_picture(0);
	cow_storage_unref(a);
	cow_storage_unref(c);
	cow_storage_unref(d);
	cuda_nothing_left();
}
END_TEST

START_TEST(emptying_waits_for_work_in_flight)
{
	cow_cuda_stream a = NULL;
	struct cow_storage *s;
	uint64_t syncs;

	cuda_start();
	syncs = cuda_stats(0).sync_all;
	a = cuda_stream(0);
	current(a);
	s = cached(30 * MIB);
	cuda_fill(s, 1, a);
	cow_storage_unref(s);
	ok(cow_cuda_empty_cache(0));
	ck_assert_uint_eq(physical(), 0);
	ck_assert_uint_eq(cuda_stats(0).sync_all, syncs + 1);
	syncs = ref.calls("cuCtxSynchronize");
	ok(cow_cuda_empty_cache(-1));
	ck_assert_uint_eq(ref.calls("cuCtxSynchronize"), syncs);
	fails(-ENODEV, cow_cuda_empty_cache(17));
	current(NULL);
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	cuda_nothing_left();
}
END_TEST

/* ---- Running out ------------------------------------------------------------------- */

static struct {
	struct cow_storage *victim;
	int lows, outs;
	uint64_t reserved;
} watch;

static bool low(void *user, int device, size_t bytes)
{
	must(user == &watch && device == 0 && bytes > 0);
	watch.lows++;
	/* No lock is held: all of the library may be called. */
	must(cuda_stats(0).reserved_bytes[0].current > 0);
	if (!watch.victim)
		return false;
	watch.victim = cow_storage_unref(watch.victim);
	return true;
}

static void out(void *user, int device, size_t bytes, uint64_t held,
                uint64_t device_free)
{
	must(user == &watch && device == 0 && bytes > 0 && device_free < GIB);
	watch.outs++;
	watch.reserved = held;
	ok(cow_cuda_empty_cache(0));
}

static void says(const char *words)
{
	if (!strstr(cow_last_error(), words))
		ck_abort_msg("it says: %s", cow_last_error());
}

static struct cow_storage *none(size_t bytes)
{
	struct cow_storage *s = (struct cow_storage *)1;

	fails(-ENOMEM, cow_cuda_storage_new(0, bytes, NULL, &s));
	must(s == (struct cow_storage *)1);
	return NULL;
}

START_TEST(the_ladder)
{
	struct cow_cuda_observer o = { sizeof(o), low, out, &watch };
	struct cow_storage *a, *b;
	cow_cuda_stream other;
	void *p;

	cuda_start();
	ok(cow_cuda_observe(&o));
	other = cuda_stream(0);
	current(other);
	b = cached(500 * MIB);
	cuda_fill(b, 1, other);
	cow_storage_unref(b); /* cached for another stream, with work on it */
	current(NULL);
	a = cached(800 * MIB);
	ck_assert_int_eq(watch.lows, 1);
	ck_assert_uint_eq(cuda_stats(0).retries, 1);
	ck_assert_int_eq(watch.outs, 0);
	/* The observer's turn comes before. */
	watch.victim = a;
	a = cached(900 * MIB);
	ck_assert_int_eq(watch.lows, 2);
	ck_assert_uint_eq(cuda_stats(0).retries, 1);
	none(300 * MIB);
	ck_assert_int_eq(watch.outs, 1);
	ck_assert_uint_eq(cuda_stats(0).ooms, 1);
	ck_assert_uint_ge(watch.reserved, 900 * MIB);
	says("CUDA device 0 is out of memory: tried to get 300.00 MiB. Of its 1.00 GiB, ");
	says("900.00 MiB in use, ");
	/* The next failure is told anew. */
	fails(-ENOMEM, cow_storage_new((size_t)1 << 62, NULL, &b));
	must(!strstr(cow_last_error(), "CUDA"));
	none(300 * MIB);
	fails(-ENOMEM, cow_allocator_raw_allocate(cow_allocator_default(), (size_t)1 << 62,
	                                          &p));
	must(!strstr(cow_last_error(), "CUDA"));
	ok(cow_cuda_observe(NULL));
	none((size_t)INT64_MAX);
	says("tried to get over 7 EiB");
	/* And work goes on. */
	cow_storage_unref(a);
	a = cached(1000 * MIB);
	cow_storage_unref(a);
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	cuda_nothing_left();
}
END_TEST

START_TEST(the_fraction)
{
	struct cow_storage *a;

	cuda_start();
	fails(-EINVAL, cow_cuda_set_fraction(0, 1.5));
	fails(-EINVAL, cow_cuda_set_fraction(0, -0.1));
	fails(-EINVAL, cow_cuda_set_fraction(0, 0.0 / 0.0));
	ok(cow_cuda_set_fraction(0, 0.25));
	a = cached(200 * MIB);
	none(100 * MIB);
	says("may have 256.00 MiB");
	says("cow_cuda_set_fraction()");
	ok(cow_cuda_set_fraction(0, 1));
	cow_storage_unref(a);
	a = cached(900 * MIB);
	cow_storage_unref(a);
	cuda_nothing_left();
}
END_TEST

START_TEST(a_stream_that_records)
{
	cow_cuda_stream a;
	struct cow_storage *s, *t = NULL;

	cuda_start();
	a = cuda_stream(0);
	current(a);
	s = cached(4 * MIB);
	cow_storage_unref(s);
	capture_begin(a, COW_CU_CAPTURE_GLOBAL);
	s = cached(4 * MIB);
	fails(-EBUSY, cow_cuda_storage_new(0, 64 * MIB, NULL, &t));
	says("records a graph");
	fails(-EBUSY, cow_cuda_stream_free(0, a));
	capture_end(a);
	cow_storage_unref(s);
	current(NULL);
	cuda_nothing_left();
}
END_TEST

/* ---- Streams that end --------------------------------------------------------------- */

START_TEST(a_stream_leaves_its_memory)
{
	cow_cuda_stream a, b;
	struct cow_storage *s, *kept, *noted;
	uint64_t before;
	uintptr_t first;

	cuda_start();
	ref.set(REF_HOLD, 1);
	a = cuda_stream(0);
	b = cuda_stream(0);
	fails(-EINVAL, cow_cuda_stream_free(0, NULL));
	current(b);
	noted = cached(100);
	ok(cow_cuda_record_stream(noted, a));
	current(a);
	fails(-EBUSY, cow_cuda_stream_free(0, a));
	kept = cached(2 * MIB);
	s = cached(30 * MIB);
	first = at(s);
	cuda_fill(s, 1, a);
	cow_storage_unref(s);
	current(b);
	ok(cow_cuda_stream_free(0, a));
	before = reserved();
	s = cached(31 * MIB);
	ck_assert_uint_ne(at(s), first); /* its work is not done */
	ck_assert_uint_gt(reserved(), before);
	cuda_finish(0);
	before = reserved();
	cow_storage_unref(kept);         /* of a stream that is no more */
	kept = cached(30 * MIB);         /* b's own is in use */
	ck_assert_uint_eq(reserved(), before);
	cow_storage_unref(kept);
	cow_storage_unref(s);
	cow_storage_unref(noted);
	current(NULL);
	ref.set(REF_HOLD, 0);
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	cuda_nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_memory");
	TCase *c = add_case(s, "cache");

	tcase_add_test(c, a_hit_is_no_call);
	tcase_add_test(c, a_block_is_its_streams);
	add_test_needing(NEEDS_CONTROL, c, recorded_streams_are_waited_for);
	tcase_add_test(c, memory_of_others_is_ignored);
	tcase_add_test(c, sizes_merge);
	tcase_add_test(c, holes);
	tcase_add_test(c, emptying_waits_for_work_in_flight);
	add_test_needing(NEEDS_CONTROL, c, the_ladder);
	add_test_needing(NEEDS_CONTROL, c, the_fraction);
	tcase_add_test(c, a_stream_that_records);
	add_test_needing(NEEDS_CONTROL, c, a_stream_leaves_its_memory);
	return run_suite(s);
}

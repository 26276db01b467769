/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory: exact, cached behind marks, shareable, never frozen
 *
 * The reference driver ends the process if memory is unpinned that queued work still uses.
 * Memory that was pinned and freed is checked through a device: a copy that runs late shows
 * the bytes of that time.
 */
#include "cuda/pinned.h"
#include "tests/support/cuda.h"
#include "tests/support/ends.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static struct cow__cuda *d;

static void start(void)
{
	cuda_start();
	ok(cow__cuda_get(0, &d));
}

static struct cow_storage *pinned(size_t bytes)
{
	struct cow_storage *s;

	ok(cow_cuda_pinned_new(bytes, &s));
	return s;
}

static uintptr_t at(const struct cow_storage *s)
{
	return (uintptr_t)cow_storage_data(s);
}

static size_t registered(void)
{
	struct ref_usage u;

	ref.usage(&u);
	return u.registered;
}

/* Copies to device memory, which the stream owns, and tells. */
static void copy_out(struct cow_storage *from, struct cow_storage *to,
                     cow_cuda_stream stream)
{
	cu_ok(cu->copy_to_device(at(to), cow_storage_data(from),
	                         cow_storage_bytes(to), stream));
	must(cow__cuda_pinned_used(cow_storage_data(from), d, stream) == 1);
}

static void nothing_left(void)
{
	cuda_finish(0);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_empty_cache(-1));
	ck_assert_uint_eq(registered(), 0);
	ck_assert_uint_eq(cuda_stats(0).pinned_bytes, 0);
	ck_assert_uint_eq(cuda_stats(0).pinned_cached_bytes, 0);
}

START_TEST(not_before_the_start)
{
	struct cow_storage *s;

	fails(-ENODEV, cow_cuda_pinned_new(100, &s));
	fails(-ENODEV, cow_cuda_pinned_empty_cache());
	s = new_storage(100, 0);
	ck_assert_int_eq(cow_cuda_is_pinned(s), 0);
	cow_storage_unref(s);
}
END_TEST

START_TEST(exact_sizes)
{
	struct cow_storage *s, *t;
	void *by_others;

	start();
	s = pinned(33 * MIB + 1);
	ck_assert_uint_eq(cow_storage_bytes(s), 33 * MIB + 1);
	ck_assert_uint_eq(cuda_stats(0).pinned_bytes, 33 * MIB + PAGE);
	ck_assert_int_eq(cow_cuda_is_pinned(s), 1);
	ck_assert_int_eq(cow_storage_device(s).type, COW_DEVICE_CPU);
	fill(mut(s), cow_storage_bytes(s), 1);
	cow_storage_unref(s);
	s = pinned(0);
	ck_assert_int_eq(cow_cuda_is_pinned(s), 0);
	cow_storage_unref(s);
	fails(-EINVAL, cow_cuda_pinned_new(SIZE_MAX, &s));
	/* Memory that another library pinned counts as pinned. */
	t = new_storage(1 << 20, 0);
	ck_assert_int_eq(cow_cuda_is_pinned(t), 0);
	by_others = mut(t);
	cu_ok(cu->host_register(by_others, 1 << 20, 0));
	ck_assert_int_eq(cow_cuda_is_pinned(t), 1);
	cu_ok(cu->host_unregister(by_others));
	cow_storage_unref(t);
	nothing_left();
}
END_TEST

START_TEST(cached)
{
	struct cow_storage *s;
	uint64_t calls;
	uintptr_t first;

	start();
	s = pinned(MIB);
	first = at(s);
	cow_storage_unref(s);
	ck_assert_uint_eq(cuda_stats(0).pinned_cached_bytes, MIB);
	calls = ref.calls("cuMemHostRegister");
	s = pinned(MIB - 5000);
	ck_assert_uint_eq(at(s), first);
	ck_assert_uint_eq(cow_storage_bytes(s), MIB - 5000);
	ck_assert_uint_eq(cuda_stats(0).pinned_cached_bytes, 0);
	cow_storage_unref(s);
	ck_assert_uint_eq(ref.calls("cuMemHostRegister"), calls);
	/* Nor split, nor wasted. */
	s = pinned(MIB / 2);
	ck_assert_uint_ne(at(s), first);
	cow_storage_unref(s);
	nothing_left();
}
END_TEST

START_TEST(not_reused_before_its_streams)
{
	struct cow_storage *s, *t, *to;
	cow_cuda_stream a, b;
	uintptr_t first;

	start();
	a = cuda_stream(0);
	b = cuda_stream(0);
	ref.set(REF_HOLD, 1);
	to = cuda_storage(0, MIB, COW_CUDA_CACHED);
	s = pinned(MIB);
	first = at(s);
	memset(mut(s), 3, MIB);
	copy_out(s, to, a);
	/* A slice of it, by address. */
	must(cow__cuda_pinned_used((char *)at(s) + 5000, d, b) == 1);
	cow_storage_unref(s);
	ok(cow_cuda_pinned_empty_cache()); /* not this one */
	ck_assert_uint_eq(registered(), 1);
	t = pinned(MIB);
	ck_assert_uint_ne(at(t), first);
	memset(mut(t), 4, MIB);
	cow_storage_unref(t);
	ok(cow_cuda_stream_wait(0, a));
	ok(cow_cuda_stream_wait(0, b));
	cuda_check(to, 3);
	t = pinned(MIB);
	s = pinned(MIB);
	must(at(t) == first || at(s) == first);
	cow_storage_unref(t);
	cow_storage_unref(s);
	cow_storage_unref(to);
	ref.set(REF_HOLD, 0);
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	nothing_left();
}
END_TEST

static struct cow_storage *taken;

/* Meanwhile another thread takes the last cached memory. */
static enum cow__cu_result stays_pinned(void *address)
{
	(void)address;
	if (taken == NULL)
		taken = pinned(2 * MIB);
	return COW_CU_UNKNOWN;
}

START_TEST(taken_while_others_stay)
{
	struct cow_storage *s, *t;
	struct cow__cu *table;
	struct cow__cu was;

	start();
	s = pinned(MIB);
	t = pinned(2 * MIB);
	cow_storage_unref(s);
	cow_storage_unref(t);
	table = (struct cow__cu *)d->cu;
	was = *table;
	table->host_unregister = stays_pinned;
	ck_assert_int_lt(cow_cuda_pinned_empty_cache(), 0);
	table->host_unregister = was.host_unregister;
	ck_assert_uint_eq(cuda_stats(0).pinned_cached_bytes, MIB);
	cow_storage_unref(taken);
	nothing_left();
}
END_TEST

START_TEST(unknown_memory)
{
	struct cow_storage *s;
	void *p;
	int here;

	start();
	must(cow__cuda_pinned_used(&here, d, NULL) == 0);
	s = pinned(PAGE);
	p = (void *)at(s);
	must(cow__cuda_pinned_used((char *)p + PAGE, d, NULL) == 0);
	must(cow__cuda_pinned_used((char *)p - 1, d, NULL) == 0);
	must(cow__cuda_pinned_used((char *)p + PAGE - 1, d, NULL) == 1);
	cow_storage_unref(s);
	must(cow__cuda_pinned_used(p, d, NULL) == 0);
	cuda_finish(0);
	nothing_left();
}
END_TEST

START_TEST(a_stream_that_ends)
{
	struct cow_storage *s, *to;
	cow_cuda_stream a;
	uintptr_t first;

	start();
	a = cuda_stream(0);
	ref.set(REF_HOLD, 1);
	to = cuda_storage(0, MIB, COW_CUDA_CACHED);
	s = pinned(MIB);
	first = at(s);
	copy_out(s, to, a);
	ok(cow_cuda_stream_free(0, a));
	cow_storage_unref(s);
	s = pinned(MIB);
	ck_assert_uint_ne(at(s), first);
	cow_storage_unref(s);
	cuda_finish(0);
	ref.set(REF_HOLD, 0);
	cow_storage_unref(to);
	nothing_left();
}
END_TEST

/* ---- As a storage ------------------------------------------------------------------- */

START_TEST(clones_are_copies)
{
	struct cow_storage *s, *c, *e;
	uintptr_t first;
	void *p;

	start();
	s = pinned(MIB);
	first = at(s);
	fill(mut(s), MIB, 7);
	c = lazy(s);
	ck_assert_uint_ne(at(c), first);
	ck_assert_int_eq(cow_cuda_is_pinned(c), 0);
	memset(mut(s), 1, MIB);
	ck_assert_uint_eq(at(s), first);
	ck_pattern(data(c), MIB, 7);
	/* Also when the address was given away. */
	p = expose(s);
	ck_assert_uint_eq((uintptr_t)p, first);
	e = lazy(s);
	memset(p, 2, MIB);
	ck_bytes(data(e), MIB, 1);
	ck_assert_uint_eq(at(s), first);
	refuses(cow_storage_resize(s, 2 * MIB));
	cow_storage_unref(s);
	cow_storage_unref(c);
	cow_storage_unref(e);
	nothing_left();
}
END_TEST

START_TEST(sent)
{
	struct cow_storage *s;
	struct cow_parcel p = { .storage = NULL };
	struct cow_channel *theirs;
	uintptr_t first;
	struct ends e;

	start();
	ends_make(&e, SOCK_STREAM, false);
	ok(cow_channel_new(e.fd[1], NULL, 0, &theirs));
	s = pinned(3 * MIB);
	first = at(s);
	fill(mut(s), 3 * MIB, 9);
	send_one(e.mine, s, COW_SHARE_CLONE);
	ck_assert_uint_eq(at(s), first); /* it stays pinned, and where it is */
	ck_assert_int_eq(cow_cuda_is_pinned(s), 1);
	memset(mut(s), 1, 3 * MIB);
	ck_assert_int_eq(cow_channel_receive(theirs, &p, 1, NULL, 0, NULL), 1);
	ck_pattern(data(p.storage), 3 * MIB, 9);
	cow_storage_unref(p.storage);
	cow_storage_unref(s);
	cow_channel_free(theirs);
	ends_free(&e);
	nothing_left();
}
END_TEST

/* ---- fork --------------------------------------------------------------------------- */

struct forked {
	struct cow_storage *s;
	struct gate go;
};

static void sees_the_moment(void *arg)
{
	struct forked *f = arg;
	struct cow_storage *n;
	uint64_t calls = cuda_calls();

	gate_wait(&f->go);
	ck_bytes(data(f->s), 4 * MIB, 5);
	memset(mut(f->s), 8, 4 * MIB);
	ck_bytes(data(f->s), 4 * MIB, 8);
	fails(-ECHILD, cow_cuda_pinned_new(100, &n));
	fails(-ECHILD, cow_cuda_pinned_empty_cache());
	cow_storage_unref(f->s);
	must(cuda_calls() == calls);
}

/* A fork freezes an ordinary extent. It does not freeze this one, because the device keeps
 * using its pages. The child has the bytes of that moment. */
START_TEST(a_child_gets_a_copy)
{
	struct cow_storage *plain = new_filled(4 * MIB, 0, 1), *to;
	struct forked f;
	cow_cuda_stream a;
	pid_t child;

	start();
	a = cuda_stream(0);
	f.s = pinned(4 * MIB);
	memset(mut(f.s), 5, 4 * MIB);
	must(mapped_shared(data(plain)) && mapped_shared(data(f.s)));
	gate_make(&f.go);
	child = child_start(sees_the_moment, &f);
	must(!mapped_shared(data(plain)));
	must(mapped_shared(data(f.s)));
	memset(mut(f.s), 6, 4 * MIB);
	gate_open(&f.go);
	child_finish(child);
	ck_bytes(data(f.s), 4 * MIB, 6);
	ok(cow_cuda_stream_set(0, a));
	to = cuda_storage(0, 4 * MIB, COW_CUDA_CACHED);
	copy_out(f.s, to, a);
	ok(cow_cuda_stream_wait(0, a));
	cuda_check(to, 6);
	cow_storage_unref(to);
	cow_storage_unref(f.s);
	cow_storage_unref(plain);
	ok(cow_cuda_stream_set(0, NULL));
	gate_free(&f.go);
	nothing_left();
}
END_TEST

static void nothing(void *arg)
{
	(void)arg;
}

/* Cached memory is neither frozen nor copied: its bytes are not needed. */
START_TEST(the_cache_over_a_fork)
{
	struct cow_storage *s;
	uint64_t copied;
	uintptr_t first;

	start();
	s = pinned(8 * MIB);
	first = at(s);
	memset(mut(s), 1, 8 * MIB);
	cow_storage_unref(s);
	copied = stats_now().bytes_copied;
	in_child(nothing, NULL);
	ck_assert_uint_lt(stats_now().bytes_copied - copied, 8 * MIB);
	must(mapped_shared((void *)first));
	s = pinned(8 * MIB);
	ck_assert_uint_eq(at(s), first);
	cow_storage_unref(s);
	nothing_left();
}
END_TEST

/* ---- Random programs ---------------------------------------------------------------- */

static void random_program(uint64_t seed, int steps)
{
	struct prng r = prng_make(seed);
	cow_cuda_stream streams[3];
	struct cow_storage *s, *to[4] = { NULL };
	unsigned char values[4] = { 0 };
	size_t bytes[4] = { 0 };

	cu_ok(cu->ctx_set_current(driver_context(0)));
	for (size_t i = 0; i < COUNT(streams); i++)
		streams[i] = cuda_stream(0);
	for (int i = 0; i < steps; i++) {
		size_t k = prng_below(&r, COUNT(to));
		cow_cuda_stream stream = streams[prng_below(&r, COUNT(streams))];

		ok(cow_cuda_stream_set(0, stream));
		if (to[k]) {
			cuda_finish(0);
			cuda_check(to[k], values[k]);
			to[k] = cow_storage_unref(to[k]);
		}
		bytes[k] = PAGE * (1 + prng_below(&r, 30));
		values[k] = (unsigned char)prng_next(&r);
		to[k] = cuda_storage(0, bytes[k], COW_CUDA_CACHED);
		s = pinned(bytes[k]);
		memset(mut(s), values[k], bytes[k]);
		copy_out(s, to[k], stream);
		cow_storage_unref(s); /* while the copy is under way */
		if (prng_below(&r, 50) == 0)
			ok(cow_cuda_pinned_empty_cache());
	}
	cuda_finish(0);
	for (size_t k = 0; k < COUNT(to); k++)
		if (to[k]) {
			cuda_check(to[k], values[k]);
			cow_storage_unref(to[k]);
		}
	ok(cow_cuda_stream_set(0, NULL));
	for (size_t i = 0; i < COUNT(streams); i++)
		ok(cow_cuda_stream_free(0, streams[i]));
}

START_TEST(random_programs)
{
	start();
	ref.set(REF_DELAY_US, 200);
	random_program((uint64_t)_i + 1, ROUNDS(300));
	ck_assert_uint_eq(ref.implicit_waits(), 0);
	nothing_left();
}
END_TEST

static void *thread(void *seed)
{
	random_program((uint64_t)(uintptr_t)seed, ROUNDS(150));
	return NULL;
}

START_TEST(threads)
{
	pthread_t t[3];

	start();
	ref.set(REF_DELAY_US, 200);
	for (size_t i = 0; i < COUNT(t); i++)
		must(pthread_create(&t[i], NULL, thread,
		                    (void *)(uintptr_t)(i + 100)) == 0);
	for (size_t i = 0; i < COUNT(t); i++)
		must(pthread_join(t[i], NULL) == 0);
	nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_pinned");
	TCase *c = add_case(s, "pinned");

	tcase_add_test(c, not_before_the_start);
	tcase_add_test(c, exact_sizes);
	tcase_add_test(c, cached);
	add_test_needing(NEEDS_CONTROL, c, not_reused_before_its_streams);
	tcase_add_test(c, taken_while_others_stay);
	tcase_add_test(c, unknown_memory);
	add_test_needing(NEEDS_CONTROL, c, a_stream_that_ends);
	tcase_add_test(c, clones_are_copies);
	tcase_add_test(c, sent);
	tcase_add_test(c, a_child_gets_a_copy);
	tcase_add_test(c, the_cache_over_a_fork);
	c = add_case(s, "random");
	tcase_add_loop_test(c, random_programs, 0, 3);
	tcase_add_test(c, threads);
	return run_suite(s);
}

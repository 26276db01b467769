/* SPDX-License-Identifier: MIT */
/*
 * A graph is recorded while the library works in other streams and threads
 *
 * A thread's call of the driver can break the recording of another thread. Then the recording
 * is lost. Its owner learns that at the end, from an error that does not name the call. So
 * each test here records a graph, lets the library do all that it does elsewhere, and ends
 * the recording, which must be sound. On the reference driver every call that could break
 * a recording does break it.
 */
#include "tests/support/cuda.h"
#include "tests/support/ends.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (2 * MIB)

/* `body` in a thread, which ends before this returns. */
static void elsewhere(void *(*body)(void *), void *arg)
{
	pthread_t t;

	must(pthread_create(&t, NULL, body, arg) == 0);
	must(pthread_join(t, NULL) == 0);
}

static void nothing_left(void)
{
	cuda_finish(0);
	ok(cow_cuda_pinned_empty_cache());
	cuda_nothing_left();
}

/* ---- What goes on ------------------------------------------------------------------- */

/* Memory from the driver and back, clones that are written, copies that are waited for,
 * pinned memory behind its marks, messages. */
static void *all_that_it_does(void *stream)
{
	struct cow_cuda_options pieces = { .size = sizeof(pieces), .backing = COW_CUDA_PIECES };
	struct cow_storage *s, *c, *p;
	struct cow_tensor *from, *to;
	struct cow_work *w;
	struct ends e;

	ok(cow_cuda_stream_set(0, stream));
	s = cuda_storage(0, 37 * MIB, COW_CUDA_CACHED);
	cow_storage_unref(s);
	s = cuda_storage(0, PIECE, COW_CUDA_SINGLE);
	cow_storage_unref(s);
	ok(cow_cuda_storage_new(0, 3 * PIECE, &pieces, &s));
	ok(cow_storage_lazy_clone(s, &c));
	(void)mut_range(c, 0, PIECE, COW_WRITE_AUTO);
	cow_storage_unref(s);
	cow_storage_unref(c);
	ok(cow_cuda_pinned_new(MIB, &p));
	ok(cow_tensor_on(p, COW_UINT8, 1, SIZES((int64_t)MIB), NULL, 0, &from));
	s = cuda_storage(0, MIB, COW_CUDA_CACHED);
	ok(cow_tensor_on(s, COW_UINT8, 1, SIZES((int64_t)MIB), NULL, 0, &to));
	ok(cow_tensor_copy_begin(to, from, 0, &w));
	(void)cow_work_poll(w);
	ok(cow_work_wait(w));
	cow_work_free(w);
	ok(cow_tensor_copy(from, to, 0));
	cow_tensor_unref(from);
	cow_tensor_unref(to);
	ends_make(&e, SOCK_STREAM, false);
	send_one(e.mine, s, COW_SHARE_CLONE);
	ends_free(&e);
	cow_storage_unref(p); /* behind a mark */
	cow_storage_unref(s);
	ok(cow_cuda_pinned_new(MIB, &p));
	cow_storage_unref(p);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_stream_set(0, NULL));
	return NULL;
}

START_TEST(other_threads_go_on)
{
	cow_cuda_stream a, b;

	cuda_start();
	a = cuda_stream(0);
	b = cuda_stream(0);
	for (unsigned mode = COW_CU_CAPTURE_GLOBAL; mode <= COW_CU_CAPTURE_RELAXED; mode++) {
		capture_begin(a, mode);
		elsewhere(all_that_it_does, b);
		elsewhere(all_that_it_does, NULL);
		/* The thread that records goes on, too, on another stream. */
		all_that_it_does(b);
		capture_end(a);
	}
	ok(cow_cuda_stream_free(0, a));
	ok(cow_cuda_stream_free(0, b));
	nothing_left();
}
END_TEST

/* ---- Giving memory back --------------------------------------------------------------- */

static void *gives_back(void *arg)
{
	(void)arg;
	fails(-EBUSY, cow_cuda_empty_cache(0));
	must(strstr(cow_last_error(), "graph") != NULL);
	return NULL;
}

static void *runs_out(void *arg)
{
	cow_cuda_stream own = cuda_stream(0);
	struct cow_storage *s;

	(void)arg;
	ok(cow_cuda_stream_set(0, own));
	/* What the default stream has cached would do, if the device could be waited for. */
	fails(-ENOMEM, cow_cuda_storage_new(0, 700 * MIB, NULL, &s));
	must(strstr(cow_last_error(), "out of memory") != NULL);
	must(strstr(cow_last_error(), "graph") != NULL);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, own));
	return NULL;
}

static void records(void (*body)(cow_cuda_stream))
{
	cow_cuda_stream a;
	struct cow_storage *s;

	cuda_start();
	a = cuda_stream(0);
	s = cuda_storage(0, 500 * MIB, COW_CUDA_CACHED);
	cow_storage_unref(s);
	ok(cow_cuda_stream_set(0, a));
	capture_begin(a, COW_CU_CAPTURE_GLOBAL);
	body(a);
	capture_end(a);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, a));
	nothing_left();
}

static void emptied(cow_cuda_stream a)
{
	elsewhere(gives_back, NULL);
	/* By the thread that records, on any current stream. */
	gives_back(NULL);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_set(0, a));
}

START_TEST(what_is_cached_stays)
{
	records(emptied);
}
END_TEST

static void short_of_memory(cow_cuda_stream a)
{
	(void)a;
	elsewhere(runs_out, NULL);
}

START_TEST(out_of_memory_meanwhile)
{
	records(short_of_memory);
}
END_TEST

/* One device that can't give back leaves the others to. */
START_TEST(other_devices_give_back)
{
	cow_cuda_stream a;

	cuda_start();
	a = cuda_stream(0);
	for (int i = 0; i < 2; i++)
		cow_storage_unref(cuda_storage(i, 3 * MIB, COW_CUDA_CACHED));
	ok(cow_cuda_stream_set(0, a));
	capture_begin(a, COW_CU_CAPTURE_GLOBAL);
	fails(-EBUSY, cow_cuda_empty_cache(-1));
	must(strstr(cow_last_error(), "graph") != NULL);
	ck_assert_uint_gt(cuda_stats(0).reserved_bytes[0].current, 0);
	ck_assert_uint_eq(cuda_stats(1).reserved_bytes[0].current, 0);
	capture_end(a);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, a));
	nothing_left();
}
END_TEST

struct idler {
	cow_cuda_stream stream;
	struct gate set, end;
};

static void *idles(void *arg)
{
	struct idler *i = arg;

	ok(cow_cuda_stream_set(0, i->stream));
	gate_open(&i->set);
	gate_wait(&i->end);
	return NULL;
}

/* A stream that has ended is not asked, although it is the current stream of a thread that
 * does nothing more. */
START_TEST(a_thread_that_is_left_behind)
{
	struct cow_storage *s;
	struct idler i;
	pthread_t t;

	cuda_start();
	i.stream = cuda_stream(0);
	gate_make(&i.set);
	gate_make(&i.end);
	must(pthread_create(&t, NULL, idles, &i) == 0);
	gate_wait(&i.set);
	ok(cow_cuda_stream_free(0, i.stream));
	s = cuda_storage(0, 30 * MIB, COW_CUDA_CACHED);
	cow_storage_unref(s);
	ok(cow_cuda_empty_cache(0));
	gate_open(&i.end);
	must(pthread_join(t, NULL) == 0);
	gate_free(&i.set);
	gate_free(&i.end);
	nothing_left();
}
END_TEST

/* ---- Streams that end ------------------------------------------------------------------- */

/* With memory that it cached, and memory of the default stream that it uses yet. */
static void *ends_a_stream(void *used)
{
	cow_cuda_stream own = cuda_stream(0);
	struct cow_storage *s;

	ok(cow_cuda_stream_set(0, own));
	s = cuda_storage(0, 3 * MIB, COW_CUDA_CACHED);
	cuda_fill(s, 7, own);
	cow_storage_unref(s);
	ok(cow_cuda_record_stream(used, own));
	fails(-EBUSY, cow_cuda_stream_free(0, own));
	must(strstr(cow_last_error(), "current") != NULL);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, own));
	return NULL;
}

START_TEST(streams_end_meanwhile)
{
	struct cow_storage *used;
	cow_cuda_stream a;

	cuda_start();
	a = cuda_stream(0);
	for (unsigned mode = COW_CU_CAPTURE_GLOBAL; mode <= COW_CU_CAPTURE_RELAXED; mode++) {
		used = cuda_storage(0, 3 * MIB, COW_CUDA_CACHED);
		cuda_fill(used, 3, NULL);
		capture_begin(a, mode);
		elsewhere(ends_a_stream, used);
		ends_a_stream(used); /* by the thread that records */
		fails(-EBUSY, cow_cuda_stream_free(0, a));
		must(strstr(cow_last_error(), "graph") != NULL);
		capture_end(a);
		cuda_finish(0);
		cuda_check(used, 3);
		cow_storage_unref(used);
	}
	ok(cow_cuda_stream_free(0, a));
	nothing_left();
}
END_TEST

/* ---- The default stream ------------------------------------------------------------------ */

static void *uses_the_default_stream(void *pinned)
{
	struct cow_tensor *from, *to;
	struct cow_storage *s;

	ok(cow_tensor_on(pinned, COW_UINT8, 1, SIZES((int64_t)PAGE), NULL, 0, &from));
	s = cuda_storage(0, PAGE, COW_CUDA_CACHED);
	ok(cow_tensor_on(s, COW_UINT8, 1, SIZES((int64_t)PAGE), NULL, 0, &to));
	fails(-EBUSY, cow_tensor_copy(to, from, COW_COPY_NON_BLOCKING));
	ok(cow_cuda_record_stream(s, NULL));
	cow_tensor_unref(from);
	cow_tensor_unref(to);
	cow_storage_unref(s);
	fails(-EBUSY, cow_cuda_empty_cache(0));
	return NULL;
}

/* A stream that is ordered with the default one makes that one unusable. The library was not
 * told of the stream. */
START_TEST(an_ordered_stream)
{
	struct cow_storage *p, *noted;
	struct cow__cu_stream *a;

	cuda_start();
	ok(cow_cuda_pinned_new(PAGE, &p));
	cu_ok(cu->stream_create(&a, COW_CU_STREAM_DEFAULT, 0));
	ok(cow_cuda_stream_set(0, cuda_stream(0)));
	noted = cuda_storage(0, PAGE, COW_CUDA_CACHED);
	ok(cow_cuda_record_stream(noted, NULL));
	capture_begin(a, COW_CU_CAPTURE_THREAD_LOCAL);
	elsewhere(uses_the_default_stream, p);
	cow_storage_unref(noted); /* its mark comes later */
	noted = cuda_storage(0, PAGE, COW_CUDA_CACHED);
	capture_end(a);
	cow_storage_unref(noted);
	cow_storage_unref(p);
	cu_ok(cu->stream_destroy(a));
	nothing_left();
	ok(cow_cuda_stream_set(0, NULL));
}
END_TEST

/* ---- Messages ------------------------------------------------------------------------- */

START_TEST(what_came_waits)
{
	struct cow_storage *s;
	struct cow_parcel p = { .mode = COW_SHARE_CLONE }, q;
	struct cow_channel *theirs;
	cow_cuda_stream a;
	struct ends e;

	cuda_start();
	a = cuda_stream(0);
	ends_make(&e, SOCK_STREAM, false);
	ok(cow_channel_new(e.fd[1], NULL, 0, &theirs));
	s = cuda_storage(0, PIECE, COW_CUDA_SINGLE);
	cuda_fill(s, 3, NULL);
	send_one(e.mine, s, COW_SHARE_CLONE);
	ok(cow_cuda_stream_set(0, a));
	capture_begin(a, COW_CU_CAPTURE_GLOBAL);
	p.storage = s;
	p.length = PIECE;
	fails(-EBUSY, (int)cow_channel_send(e.mine, &p, 1, NULL, 0));
	fails(-EBUSY, (int)cow_channel_receive(theirs, &q, 1, NULL, 0, NULL));
	must(strstr(cow_last_error(), "graph") != NULL);
	capture_end(a);
	must(cow_channel_receive(theirs, &q, 1, NULL, 0, NULL) == 1);
	cuda_finish(0);
	cuda_check(q.storage, 3);
	cow_storage_unref(q.storage);
	cow_storage_unref(s);
	cow_channel_free(theirs);
	ends_free(&e);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, a));
	nothing_left();
}
END_TEST

/* ---- The thread's mode ------------------------------------------------------------------ */

START_TEST(the_threads_mode_is_its_own)
{
	unsigned mode = COW_CU_CAPTURE_THREAD_LOCAL;

	cuda_start();
	cu_ok(cu->thread_capture_mode(&mode));
	all_that_it_does(NULL);
	ok(cow_cuda_empty_cache(-1));
	cu_ok(cu->thread_capture_mode(&mode));
	ck_assert_uint_eq(mode, COW_CU_CAPTURE_THREAD_LOCAL);
	nothing_left();
}
END_TEST

/* An old driver has no modes. */
START_TEST(a_driver_without_modes)
{
	must(setenv("COWREF_LACKS", "cuThreadExchangeStreamCaptureMode", 1) == 0);
	cuda_start();
	all_that_it_does(NULL);
	nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_capture");
	TCase *c = add_case(s, "capture");

	driver_choose();
	tcase_add_test(c, other_threads_go_on);
	tcase_add_test(c, what_is_cached_stays);
	add_test_needing(NEEDS_CONTROL, c, out_of_memory_meanwhile); /* a small device */
	add_test_needing(NEEDS_TWO_DEVICES, c, other_devices_give_back);
	tcase_add_test(c, a_thread_that_is_left_behind);
	tcase_add_test(c, streams_end_meanwhile);
	tcase_add_test(c, an_ordered_stream);
	tcase_add_test(c, what_came_waits);
	tcase_add_test(c, the_threads_mode_is_its_own);
	add_test_needing(NEEDS_CONTROL, c, a_driver_without_modes);
	return run_suite(s);
}

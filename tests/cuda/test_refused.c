/* SPDX-License-Identifier: MIT */
/*
 * Calls that the library refuses while a graph is recorded: they must have done nothing
 *
 * Such work would break the recording, or become part of a graph that runs when the memory
 * belongs to another storage.
 */
#include "tests/support/cuda.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static void nothing_left(void)
{
	cuda_finish(0);
	cuda_nothing_left();
}

static struct cow_tensor *floats(int device, int64_t rows, int64_t columns)
{
	struct cow_tensor_options there = { .size = sizeof(there),
		                            .device = { COW_DEVICE_CUDA, (int16_t)device } };
	struct cow_tensor *t;

	ok(cow_tensor_new(COW_FLOAT32, 2, SIZES(rows, columns), &there, &t));
	return t;
}

struct made_before {
	struct cow_tensor *d, *e, *across, *far;
	struct cow_storage *s;
};

static void make_before(struct made_before *m, bool two)
{
	m->d = floats(0, 64, 64);
	m->e = floats(0, 64, 64);
	m->across = transpose(floats(0, 64, 64), 0, 1);
	m->far = two ? floats(1, 64, 64) : NULL;
	m->s = cuda_storage(0, 3 * MIB, COW_CUDA_CACHED);
	cow_storage_unref(cuda_storage(0, 3 * MIB, COW_CUDA_CACHED));
	cow_storage_unref(cuda_storage(0, 3 * MIB, COW_CUDA_CACHED));
	cuda_finish(0);
}

static void let_go(struct made_before *m)
{
	cow_tensor_unref(m->d);
	cow_tensor_unref(m->e);
	cow_tensor_unref(m->across);
	cow_tensor_unref(m->far);
	cow_storage_unref(m->s);
}

/* Each way to the default stream. */
static void *is_refused(void *arg)
{
	struct cow_cuda_options zero = { .size = sizeof(zero), .flags = COW_STORAGE_ZERO };
	struct made_before *m = arg;
	struct cow_storage *s;

	fails(-EBUSY, cow_tensor_copy(m->d, m->e, 0));
	must(strstr(cow_last_error(), "cow_cuda_stream_set") != NULL);
	fails(-EBUSY, cow_tensor_copy(m->d, m->across, 0));
	if (m->far) {
		fails(-EBUSY, cow_tensor_copy(m->d, m->far, 0));
		fails(-EBUSY, cow_tensor_copy(m->far, m->d, 0));
	}
	fails(-EBUSY, cow_storage_clone(m->s, &s));
	for (zero.backing = COW_CUDA_CACHED; zero.backing <= COW_CUDA_PIECES; zero.backing++)
		fails(-EBUSY, cow_cuda_storage_new(0, 3 * MIB, &zero, &s));
	/* The rest of the last piece is cleared. */
	zero = (struct cow_cuda_options){ .size = sizeof(zero), .backing = COW_CUDA_PIECES };
	fails(-EBUSY, cow_cuda_storage_new(0, 3 * MIB, &zero, &s));
	return NULL;
}

START_TEST(nothing_goes_to_the_default_stream)
{
	struct made_before m;
	struct cow__cu_stream *a;
	pthread_t t;

	cuda_start();
	make_before(&m, cow_cuda_count() > 1);
	cu_ok(cu->stream_create(&a, COW_CU_STREAM_DEFAULT, 0));
	capture_begin(a, COW_CU_CAPTURE_THREAD_LOCAL);
	must(pthread_create(&t, NULL, is_refused, &m) == 0);
	must(pthread_join(t, NULL) == 0);
	is_refused(&m);
	capture_end(a);
	cu_ok(cu->stream_destroy(a));
	let_go(&m);
	nothing_left();
}
END_TEST

/* ---- What a graph can't have ------------------------------------------------------------- */

/* Work that was queued so far. */
static uint64_t queued(void)
{
	static const char *const names[] = { "cuMemcpyAsync", "cuMemcpyHtoDAsync",
		"cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpyPeerAsync",
		"cuMemcpy2DAsync", "cuMemcpy3DAsync", "cuLaunchKernel", "cuEventRecord",
		"cuStreamWaitEvent" };
	uint64_t n = 0;

	for (size_t i = 0; i < COUNT(names); i++)
		n += ref.calls(names[i]);
	return n;
}

/* A refused call has not begun: else the graph would have steps on memory that belongs to
 * another storage when it runs. */
START_TEST(what_is_refused_is_not_recorded)
{
	struct cow_tensor *host = tensor_new(COW_FLOAT32, 2, SIZES(64, 64),
	                                     COW_FORMAT_CONTIGUOUS);
	struct made_before m;
	struct cow_work *w;
	cow_cuda_stream a;
	uint64_t before;

	cuda_start();
	a = cuda_stream(0);
	ok(cow_cuda_stream_set(0, a));
	make_before(&m, true);
	capture_begin(a, COW_CU_CAPTURE_GLOBAL);
	before = queued();
	fails(-EBUSY, cow_tensor_copy_begin(m.d, m.e, 0, &w));
	fails(-EBUSY, cow_tensor_copy_begin(m.d, m.across, 0, &w));
	fails(-EBUSY, cow_tensor_copy_begin(host, m.across, 0, &w));
	fails(-EBUSY, cow_tensor_copy(host, m.across, 0));
	/* Between devices: of which one records, and by way of memory that goes. */
	fails(-EBUSY, cow_tensor_copy(m.far, m.d, 0));
	fails(-EBUSY, cow_tensor_copy(m.d, m.far, 0));
	fails(-EBUSY, cow_tensor_copy(m.far, m.across, 0));
	ck_assert_uint_eq(queued(), before);
	/* The other device has packed it by then, which no graph has. */
	fails(-EBUSY, cow_tensor_copy(m.across, m.far, 0));
	ck_assert_uint_le(queued(), before + 1);
	capture_end(a);
	let_go(&m);
	cow_tensor_unref(host);
	ok(cow_cuda_stream_set(0, NULL));
	ok(cow_cuda_stream_free(0, a));
	nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_refused");
	TCase *c = add_case(s, "refused");

	driver_choose();
	tcase_add_test(c, nothing_goes_to_the_default_stream);
	add_test_needing(NEEDS_CONTROL | NEEDS_TWO_DEVICES, c, what_is_refused_is_not_recorded);
	return run_suite(s);
}

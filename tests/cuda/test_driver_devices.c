/* SPDX-License-Identifier: MIT */
/*
 * The reference driver: devices, contexts, failures on demand, fork, captures
 */
#include "tests/support/driver.h"

#include <pthread.h>

START_TEST(contexts)
{
	struct cow__cu_context *c, *one;
	cow__cu_ptr p;
	int d, can;

	driver_start();
	one = driver_context(1);
	cu_ok(cu->ctx_push_current(one));
	cu_ok(cu->ctx_get_device(&d));
	ck_assert_int_eq(d, 1);
	cu_ok(cu->ctx_pop_current(&c));
	ck_assert_ptr_eq(c, one);
	cu_ok(cu->ctx_set_current(NULL));
	cu_gives(COW_CU_INVALID_CONTEXT, cu->mem_alloc(&p, 64));
	cu_gives(COW_CU_INVALID_CONTEXT, cu->stream_synchronize(NULL));
	cu_ok(cu->ctx_set_current(driver_context(0)));
	cu_ok(cu->can_access_peer(&can, 0, 1));
	ck_assert_int_eq(can, 1);
	cu_ok(cu->can_access_peer(&can, 0, 0));
	ck_assert_int_eq(can, 0);
	cu_ok(cu->enable_peer(one, 0));
	cu_gives(COW_CU_PEER_ACCESS_ALREADY_ENABLED, cu->enable_peer(one, 0));
	cu_gives(COW_CU_INVALID_DEVICE, cu->primary_retain(&c, 2));
	cu_gives(COW_CU_INVALID_DEVICE, cu->device_get(&d, -1));
	/* A context that failed stays so. */
	ref.poison(0, COW_CU_ILLEGAL_ADDRESS);
	cu_gives(COW_CU_ILLEGAL_ADDRESS, cu->stream_synchronize(NULL));
	cu_gives(COW_CU_ILLEGAL_ADDRESS, cu->mem_alloc(&p, 64));
}
END_TEST

START_TEST(failures_on_demand)
{
	cow__cu_ptr p;
	uint64_t n;

	driver_start();
	n = ref.calls("cuMemAlloc");
	must(ref.fail_call("cuMemAlloc", 2, COW_CU_OUT_OF_MEMORY) == 0);
	must(ref.fail_call("cuNoSuchCall", 1, 1) < 0);
	cu_ok(cu->mem_alloc(&p, 64));
	cu_gives(COW_CU_OUT_OF_MEMORY, cu->mem_alloc(&p, 64));
	cu_ok(cu->mem_alloc(&p, 64));
	ck_assert_uint_eq(ref.calls("cuMemAlloc"), n + 3);
	must(ref.calls("cuNoSuchCall") == UINT64_MAX);
}
END_TEST

static void forked(void *arg)
{
	cow__cu_ptr p;
	int n;

	(void)arg;
	cu_gives(COW_CU_NOT_INITIALIZED, cu->mem_alloc(&p, 64));
	cu_gives(COW_CU_NOT_INITIALIZED, cu->device_get_count(&n));
	cu_gives(COW_CU_NOT_INITIALIZED, cu->init(0));
}

START_TEST(fork_ends_it)
{
	cow__cu_ptr p;

	driver_start();
	in_child(forked, NULL);
	cu_ok(cu->mem_alloc(&p, 64));
}
END_TEST

/* ---- Captures ------------------------------------------------------------------ */

enum breaker { WAITS, WAITS_FOR_ALL, ASKS_AN_EVENT, MAKES_MEMORY, USES_DEFAULT, ASKS_DEFAULT };

struct breaking {
	enum breaker call;
	unsigned stream_flags, recorder, caller; /* modes */
	bool same_thread;
	enum cow__cu_result gives;
	unsigned after;
	struct cow__cu_stream *stream;
};

static void *breaks(void *arg)
{
	struct breaking *b = arg;
	unsigned mode = b->caller, status;
	struct cow__cu_event *e;
	cow__cu_ptr p;

	cu_ok(cu->ctx_set_current(driver_context(0)));
	cu_ok(cu->event_create(&e, 0));
	cu_ok(cu->thread_capture_mode(&mode));
	ck_assert_uint_eq(mode, COW_CU_CAPTURE_GLOBAL);
	switch (b->call) {
	case WAITS:
		cu_gives(b->gives, cu->stream_synchronize(b->stream));
		break;
	case WAITS_FOR_ALL:
		cu_gives(b->gives, cu->ctx_synchronize());
		break;
	case ASKS_AN_EVENT:
		cu_gives(b->gives, cu->event_query(e));
		break;
	case MAKES_MEMORY:
		cu_gives(b->gives, cu->mem_alloc(&p, 100));
		break;
	case USES_DEFAULT:
		cu_gives(b->gives, cu->event_record(e, NULL));
		break;
	case ASKS_DEFAULT:
		cu_gives(b->gives, cu->stream_is_capturing(NULL, &status));
		break;
	}
	mode = COW_CU_CAPTURE_GLOBAL;
	cu_ok(cu->thread_capture_mode(&mode));
	return NULL;
}

static const struct breaking breakings[] = {
#define BREAKS COW_CU_STREAM_CAPTURE_UNSUPPORTED
#define GONE COW_CU_CAPTURE_INVALIDATED
#define STAYS COW_CU_CAPTURE_ACTIVE
#define GLOBAL COW_CU_CAPTURE_GLOBAL
#define LOCAL COW_CU_CAPTURE_THREAD_LOCAL
#define RELAXED COW_CU_CAPTURE_RELAXED
	/* for the stream, or all, in any mode */
	{ WAITS, 1, RELAXED, RELAXED, true, BREAKS, GONE, NULL },
	{ WAITS, 1, LOCAL, RELAXED, false, BREAKS, GONE, NULL },
	{ WAITS_FOR_ALL, 1, RELAXED, RELAXED, false, BREAKS, GONE, NULL },
	/* what is only unsafe, by who and how */
	{ ASKS_AN_EVENT, 1, GLOBAL, GLOBAL, false, BREAKS, GONE, NULL },
	{ MAKES_MEMORY, 1, GLOBAL, GLOBAL, false, BREAKS, GONE, NULL },
	{ MAKES_MEMORY, 1, GLOBAL, LOCAL, false, COW_CU_SUCCESS, STAYS, NULL },
	{ MAKES_MEMORY, 1, GLOBAL, RELAXED, false, COW_CU_SUCCESS, STAYS, NULL },
	{ MAKES_MEMORY, 1, LOCAL, GLOBAL, false, COW_CU_SUCCESS, STAYS, NULL },
	{ MAKES_MEMORY, 1, LOCAL, LOCAL, true, BREAKS, GONE, NULL },
	{ MAKES_MEMORY, 1, LOCAL, RELAXED, true, COW_CU_SUCCESS, STAYS, NULL },
	{ MAKES_MEMORY, 1, RELAXED, GLOBAL, true, COW_CU_SUCCESS, STAYS, NULL },
	/* the default stream, if it is ordered with that one */
	{ USES_DEFAULT, 1, GLOBAL, GLOBAL, false, COW_CU_SUCCESS, STAYS, NULL },
	{ USES_DEFAULT, 0, GLOBAL, RELAXED, false, COW_CU_STREAM_CAPTURE_IMPLICIT, GONE, NULL },
	{ ASKS_DEFAULT, 1, GLOBAL, GLOBAL, false, COW_CU_SUCCESS, STAYS, NULL },
	{ ASKS_DEFAULT, 0, GLOBAL, GLOBAL, false, COW_CU_STREAM_CAPTURE_IMPLICIT, STAYS, NULL },
};

START_TEST(who_breaks_a_capture)
{
	struct breaking b = breakings[_i];
	unsigned status;
	pthread_t t;

	driver_start();
	cu_ok(cu->stream_create(&b.stream, b.stream_flags, 0));
	cu_ok(cu->stream_is_capturing(b.stream, &status));
	ck_assert_uint_eq(status, COW_CU_CAPTURE_NONE);
	capture_begin(b.stream, b.recorder);
	if (b.same_thread) {
		breaks(&b);
	} else {
		must(pthread_create(&t, NULL, breaks, &b) == 0);
		must(pthread_join(t, NULL) == 0);
	}
	cu_ok(cu->stream_is_capturing(b.stream, &status));
	ck_assert_uint_eq(status, b.after);
	if (status == COW_CU_CAPTURE_ACTIVE)
		capture_end(b.stream);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("driver_devices");
	TCase *devices = add_bare_case(suite, "devices");

	tcase_add_test(devices, contexts);
	tcase_add_test(devices, failures_on_demand);
	tcase_add_test(devices, fork_ends_it);
	tcase_add_loop_test(devices, who_breaks_a_capture, 0, COUNT(breakings));
	return run_suite(suite);
}

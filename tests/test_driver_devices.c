/* SPDX-License-Identifier: MIT */
/*
 * The reference driver: devices, contexts, failures on demand, fork, captures
 */
#include "tests/support/driver.h"

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

START_TEST(captures_are_broken_by_waiting)
{
	struct cow__cu_stream *s;
	unsigned status;

	driver_start();
	cu_ok(cu->stream_create(&s, COW_CU_STREAM_NON_BLOCKING, 0));
	cu_ok(cu->stream_is_capturing(s, &status));
	ck_assert_uint_eq(status, COW_CU_CAPTURE_NONE);
	ref.capture(s, COW_CU_CAPTURE_ACTIVE);
	cu_ok(cu->stream_is_capturing(s, &status));
	ck_assert_uint_eq(status, COW_CU_CAPTURE_ACTIVE);
	cu_gives(COW_CU_STREAM_CAPTURE_UNSUPPORTED, cu->stream_synchronize(s));
	cu_ok(cu->stream_is_capturing(s, &status));
	ck_assert_uint_eq(status, COW_CU_CAPTURE_INVALIDATED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("driver_devices");
	TCase *devices = add_bare_case(suite, "devices");

	tcase_add_test(devices, contexts);
	tcase_add_test(devices, failures_on_demand);
	tcase_add_test(devices, fork_ends_it);
	tcase_add_test(devices, captures_are_broken_by_waiting);
	return run_suite(suite);
}

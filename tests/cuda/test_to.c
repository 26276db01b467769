/* SPDX-License-Identifier: MIT */
/*
 * Tensors to and from CUDA devices: the device and the memory of the result
 */
#include "tests/support/cuda.h"
#include "tests/support/tensors.h"

#include <string.h>

static struct cow_tensor *to(struct cow_tensor *t, int type, int index, uint32_t flags)
{
	struct cow_to o = { .size = sizeof(o), .dtype = -1, .set_device = true,
		            .format = COW_FORMAT_PRESERVE, .flags = flags,
		            .device = { (int16_t)type, (int16_t)index } };
	struct cow_tensor *r;

	ok(cow_tensor_to(t, &o, &r));
	return r;
}

static int index_of(const struct cow_tensor *t)
{
	return cow_tensor_device(t).index;
}

static void nothing_left(void)
{
	cuda_finish(0);
	ok(cow_cuda_pinned_empty_cache());
	ok(cow_cuda_empty_cache(-1));
}

/* "cuda" without a number is the device of the thread's context. */
START_TEST(the_current_device)
{
	struct cow_tensor_options o = { .size = sizeof(o), .device = { COW_DEVICE_CUDA, -1 } };
	struct cow_tensor *h = counting(4, 4), *d, *e;
	int last;

	cuda_start();
	last = cow_cuda_count() - 1;
	for (int i = 0; i <= last; i += last ? last : 1) {
		cu_ok(cu->ctx_set_current(driver_context(i)));
		ok(cow_tensor_new(COW_INT32, 1, SIZES(3), &o, &d));
		ck_assert_int_eq(index_of(d), i);
		cow_tensor_unref(d);
		d = to(h, COW_DEVICE_CUDA, -1, 0);
		ck_assert_int_eq(index_of(d), i);
		e = to(d, COW_DEVICE_CUDA, -1, 0);
		ck_assert_ptr_eq(e, d); /* it is there */
		cow_tensor_unref(e);
		e = to(d, COW_DEVICE_CPU, -1, 0);
		must(cow_tensor_equal(e, h) == 1 && index_of(e) == 0);
		cow_tensor_unref(e);
		cow_tensor_unref(d);
	}
	cu_ok(cu->ctx_set_current(NULL));
	d = to(h, COW_DEVICE_CUDA, -1, 0);
	ck_assert_int_eq(index_of(d), 0);
	cow_tensor_unref(d);
	d = to(h, COW_DEVICE_CPU, -1, 0);
	ck_assert_ptr_eq(d, h);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	cu_ok(cu->ctx_set_current(driver_context(0)));
	nothing_left();
}
END_TEST

static bool is_pinned(const struct cow_tensor *t)
{
	return cow_cuda_is_pinned(cow_tensor_storage(t));
}

/* A copy from a device that is left unfinished goes to pinned memory. */
START_TEST(a_pinned_result)
{
	struct cow_tensor *h = counting(32, 17), *d, *r;

	cuda_start();
	d = to(h, COW_DEVICE_CUDA, 0, COW_COPY_NON_BLOCKING);
	r = to(d, COW_DEVICE_CPU, 0, 0);
	must(!is_pinned(r) && cow_tensor_equal(r, h) == 1);
	cow_tensor_unref(r);
	d = transpose(d, 0, 1);
	h = transpose(h, 0, 1);
	r = to(d, COW_DEVICE_CPU, 0, COW_COPY_NON_BLOCKING);
	must(is_pinned(r) && cow_tensor_equal(r, h) == 1);
	cow_tensor_unref(r);
	/* Nothing comes from a device here. */
	r = to(h, COW_DEVICE_CPU, 0, COW_COPY_NON_BLOCKING);
	ck_assert_ptr_eq(r, h);
	cow_tensor_unref(r);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	nothing_left();
}
END_TEST

/* If no more memory can be pinned, ordinary memory is used. */
START_TEST(no_pinned_memory)
{
	struct cow_tensor *h = counting(32, 17), *d, *r;

	cuda_start();
	d = to(h, COW_DEVICE_CUDA, 0, 0);
	ref.fail_call("cuMemHostRegister", 1, COW_CU_NOT_PERMITTED);
	r = to(d, COW_DEVICE_CPU, 0, COW_COPY_NON_BLOCKING);
	must(!is_pinned(r) && cow_tensor_equal(r, h) == 1);
	cow_tensor_unref(r);
	cow_tensor_unref(d);
	cow_tensor_unref(h);
	nothing_left();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_to");
	TCase *c = add_case(s, "to");

	driver_choose();
	tcase_add_test(c, the_current_device);
	tcase_add_test(c, a_pinned_result);
	add_test_needing(NEEDS_CONTROL, c, no_pinned_memory);
	return run_suite(s);
}

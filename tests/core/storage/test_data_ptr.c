/* SPDX-License-Identifier: MIT */
/*
 * Data pointers: bytes, a context, and a deleter that runs once
 *
 * The rules are PyTorch's (its DataPtr): the deleter gets the context and not
 * the data; it runs whenever there is a context, even without data; its
 * address says what the context is.
 */
#include "tests/support/support.h"

#include <string.h>

static const struct cow_device cpu = { COW_DEVICE_CPU, 0 };
static const struct cow_device third_cuda = { COW_DEVICE_CUDA, 3 };

struct owner {
	int runs;
};

static void count_run(void *context)
{
	struct owner *owner = context;

	owner->runs++;
}

static void count_ten(void *context)
{
	struct owner *owner = context;

	owner->runs += 10;
}

START_TEST(made_of_four_words)
{
	struct owner owner = { 0 };
	char bytes[16];
	struct cow_data_ptr ptr =
		cow_data_ptr_make(bytes, &owner, count_run, third_cuda);

	ck_assert_uint_eq(sizeof(ptr), 4 * sizeof(void *));
	ck_assert_ptr_eq(ptr.data, bytes);
	ck_assert_ptr_eq(ptr.context, &owner);
	ck_assert(ptr.deleter == count_run);
	ck_assert_int_eq(ptr.device.type, COW_DEVICE_CUDA);
	ck_assert_int_eq(ptr.device.index, 3);
	ck_assert_int_eq(owner.runs, 0);
}
END_TEST

START_TEST(deleter_gets_the_context_once)
{
	struct owner owner = { 0 };
	char bytes[16];
	struct cow_data_ptr ptr =
		cow_data_ptr_make(bytes, &owner, count_run, third_cuda);

	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 1);
	ck_assert_ptr_null(ptr.data);
	ck_assert_ptr_null(ptr.context);
	ck_assert_int_eq(ptr.device.type, COW_DEVICE_CUDA);
	ck_assert_int_eq(ptr.device.index, 3);
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(deleter_runs_without_data)
{
	struct owner owner = { 0 };
	struct cow_data_ptr ptr =
		cow_data_ptr_make(NULL, &owner, count_run, cpu);

	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

/* Runs only for a context; a NULL here would crash count_run(). */
START_TEST(no_context_no_deleter)
{
	char bytes[16];
	struct cow_data_ptr ptr =
		cow_data_ptr_make(bytes, NULL, count_run, cpu);

	cow_data_ptr_clear(&ptr);
	ck_assert_ptr_null(ptr.data);
}
END_TEST

START_TEST(null_deleter_disposes_of_nothing)
{
	struct owner owner = { 0 };
	char bytes[16];
	struct cow_data_ptr ptr = cow_data_ptr_make(bytes, &owner, NULL, cpu);

	cow_data_ptr_clear(&ptr);
	ck_assert_ptr_null(ptr.context);
	ck_assert_int_eq(owner.runs, 0);
}
END_TEST

START_TEST(release_gives_the_context_up)
{
	struct owner owner = { 0 };
	char bytes[16];
	struct cow_data_ptr ptr =
		cow_data_ptr_make(bytes, &owner, count_run, cpu);

	ck_assert_ptr_eq(cow_data_ptr_release_context(&ptr), &owner);
	ck_assert_ptr_eq(ptr.data, bytes);
	ck_assert_ptr_null(ptr.context);
	ck_assert_ptr_null(cow_data_ptr_release_context(&ptr));
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 0);
}
END_TEST

START_TEST(move_leaves_an_empty_one)
{
	struct owner owner = { 0 };
	char bytes[16];
	struct cow_data_ptr from =
		cow_data_ptr_make(bytes, &owner, count_run, third_cuda);
	struct cow_data_ptr to = cow_data_ptr_move(&from);

	ck_assert_ptr_null(from.data);
	ck_assert_ptr_null(from.context);
	ck_assert_int_eq(from.device.type, COW_DEVICE_CUDA);
	ck_assert_int_eq(from.device.index, 3);
	ck_assert_ptr_eq(to.data, bytes);
	ck_assert_ptr_eq(to.context, &owner);
	ck_assert_int_eq(to.device.index, 3);
	cow_data_ptr_clear(&from);
	ck_assert_int_eq(owner.runs, 0);
	cow_data_ptr_clear(&to);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(cast_asks_the_deleter)
{
	struct owner owner = { 0 };
	struct cow_data_ptr ptr =
		cow_data_ptr_make(NULL, &owner, count_run, cpu);

	ck_assert_ptr_eq(cow_data_ptr_cast(&ptr, count_run), &owner);
	ck_assert_ptr_null(cow_data_ptr_cast(&ptr, count_ten));
	cow_data_ptr_clear(&ptr);
	ck_assert_ptr_null(cow_data_ptr_cast(&ptr, count_run));
}
END_TEST

START_TEST(exchange_only_the_expected_deleter)
{
	struct owner owner = { 0 };
	struct cow_data_ptr ptr =
		cow_data_ptr_make(NULL, &owner, count_run, cpu);

	ck_assert(!cow_data_ptr_compare_exchange_deleter(&ptr, count_ten,
	                                                 count_run));
	ck_assert(ptr.deleter == count_run);
	ck_assert(cow_data_ptr_compare_exchange_deleter(&ptr, count_run,
	                                                count_ten));
	ck_assert_ptr_eq(ptr.context, &owner);
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 10);
}
END_TEST

static void uses_the_library(void *context)
{
	struct cow_storage *a = new_filled(3 * PAGE, 0, 4), *b = lazy(a);

	mut(b)[0] ^= 1;
	ck_pattern(data(a), 3 * PAGE, 4);
	cow_storage_unref(a);
	cow_storage_unref(b);
	count_run(context);
}

START_TEST(deleter_may_call_the_library)
{
	struct owner owner = { 0 };
	struct cow_data_ptr ptr =
		cow_data_ptr_make(NULL, &owner, uses_the_library, cpu);

	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

static struct cow_data_ptr *cleared_again;

/* By the time the deleter runs, the pointer is empty already. */
static void clears_again(void *context)
{
	cow_data_ptr_clear(cleared_again);
	count_run(context);
}

START_TEST(deleter_that_clears_again)
{
	struct owner owner = { 0 };
	struct cow_data_ptr ptr =
		cow_data_ptr_make(NULL, &owner, clears_again, cpu);

	cleared_again = &ptr;
	cow_data_ptr_clear(&ptr);
	ck_assert_int_eq(owner.runs, 1);
}
END_TEST

START_TEST(making_one_allocates_nothing)
{
	struct cow_stats before = stats_now(), after;
	struct owner owner = { 0 };
	struct cow_data_ptr ptr, moved;
	int i;

	for (i = 0; i < 1000; i++) {
		ptr = cow_data_ptr_make(NULL, &owner, count_run, cpu);
		moved = cow_data_ptr_move(&ptr);
		cow_data_ptr_clear(&moved);
	}
	after = stats_now();
	ck_assert_int_eq(owner.runs, 1000);
	ck_assert_uint_eq(after.bytes_served, before.bytes_served);
	ck_assert_uint_eq(after.blocks_served, before.blocks_served);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("data_ptr");
	TCase *tcase = add_case(suite, "data_ptr");

	tcase_add_test(tcase, made_of_four_words);
	tcase_add_test(tcase, deleter_gets_the_context_once);
	tcase_add_test(tcase, deleter_runs_without_data);
	tcase_add_test(tcase, no_context_no_deleter);
	tcase_add_test(tcase, null_deleter_disposes_of_nothing);
	tcase_add_test(tcase, release_gives_the_context_up);
	tcase_add_test(tcase, move_leaves_an_empty_one);
	tcase_add_test(tcase, cast_asks_the_deleter);
	tcase_add_test(tcase, exchange_only_the_expected_deleter);
	tcase_add_test(tcase, deleter_may_call_the_library);
	tcase_add_test(tcase, deleter_that_clears_again);
	tcase_add_test(tcase, making_one_allocates_nothing);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Functions that make no kernel call, and so can't fail for the kernel's sake
 *
 * Each is called here with the next kernel call, and then the next object of a pool,
 * set to fail: neither comes to that. tests/core/test_swept.c wants each public function
 * here or in a sweep.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"
#include "tests/support/quantized.h"

#include <cowshed-broker.h>
#include <cowshed-cuda.h>
#include <cowshed-file.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static struct cow_storage *s;
static struct cow_tensor *t, *q;
static void *block;

static void names(void)
{
	must(cow_version()[0] != '\0');
	must(cow_last_error() != NULL);
	ck_assert_str_eq(cow_fallback_name(COW_FALLBACK_MEMFD), "memfd");
	ck_assert_str_eq(cow_dtype_name(COW_INT8), "int8");
	must(cow_format_name(COW_FORMAT_CONTIGUOUS) != NULL);
	ck_assert_uint_eq(cow_dtype_bytes(COW_FLOAT64), 8);
	must(cow_dtype_is_complex(COW_COMPLEX64) && !cow_dtype_is_floating(COW_BOOL));
}

static void end_of_context(void *context)
{
	++*(int *)context;
}

static void data_pointers(void)
{
	struct cow_device cpu = { COW_DEVICE_CPU, 0 };
	int ended = 0;
	struct cow_data_ptr p = cow_data_ptr_make(&ended, &ended, end_of_context, cpu);
	struct cow_data_ptr moved = cow_data_ptr_move(&p);

	must(p.data == NULL && cow_data_ptr_cast(&moved, end_of_context) == &ended);
	must(cow_data_ptr_compare_exchange_deleter(&moved, end_of_context,
	                                           end_of_context));
	must(cow_data_ptr_release_context(&moved) == &ended);
	cow_data_ptr_clear(&moved);
	ck_assert_int_eq(ended, 0);
}

static void registries(void)
{
	struct cow_device cpu = { COW_DEVICE_CPU, 0 };
	struct cow_device theirs = { COW_DEVICE_PRIVATE, 1 };
	struct cow_allocator *a;

	ok(cow_allocator_get(cpu, &a));
	must(a == cow_allocator_default());
	ok(cow_allocator_set(cpu, a, 0));
	fails(-ENODEV, cow_allocator_get(theirs, &a));
	ok(cow_device_set(COW_DEVICE_PRIVATE, NULL));
	ok(cow_profiler_set(NULL));
	cow_warning_set(NULL, NULL);
}

static void of_storages(void)
{
	uintptr_t start, end;

	ck_assert_uint_eq(cow_storage_bytes(s), 1000);
	ck_assert_int_eq(cow_storage_device(s).type, COW_DEVICE_CPU);
	must(cow_storage_use_count(s) >= 1);
	must(cow_storage_data(s) != NULL);
	must(cow_storage_file_name(s) == NULL);
	must(cow_storage_ref(s) == s);
	cow_storage_unref(s);
	must(cow_block_bytes(block) >= 100000);
	cow_window(&start, &end);
	must((uintptr_t)block - start < end - start);
	ok(cow_window_shrink(SIZE_MAX)); /* all of it is kept */
}

/* The last reference to written bytes, few and many: the write takes them over as they are. */
static struct cow_storage *heirs[3][2]; /* of each run of of_heirs(), and of each size */
static int run;

static void heirs_make(void)
{
	static const size_t bytes[] = { PAGE, 2 * MIB };

	for (size_t i = 0; i < COUNT(heirs) * COUNT(bytes); i++) {
		struct cow_storage *first = new_filled(bytes[i % 2], 0, 7);

		heirs[i / 2][i % 2] = lazy(first);
		cow_storage_unref(first);
	}
	run = 0;
}

static void heirs_end(void)
{
	for (size_t i = 0; i < COUNT(heirs) * 2; i++)
		cow_storage_unref(heirs[i / 2][i % 2]);
}

static void of_heirs(void)
{
	uint64_t before = stats_now().steals;
	void *p;

	for (int i = 0; i < 2; i++)
		ok(cow_storage_data_mut(heirs[run][i], &p));
	ck_assert_uint_eq(stats_now().steals, before + 2);
	run++;
}

static void of_the_engine(void)
{
	struct cow_stats stats = { .size = sizeof(stats) };
	struct cow_settings settings = { .size = sizeof(settings) };

	ok(cow_stats_get(&stats));
	ok(cow_settings_read(0, &settings));
	ok(cow_options_check("heal=3", NULL, NULL));
	must(cow_threads_get() >= 0);
	ok(cow_threads_set(cow_threads_get()));
	fails(-ENOENT, cow_option_set("no such key", "1"));
}

static void of_tensors(void)
{
	struct cow_quantizer quantizer = { .size = sizeof(quantizer) };

	ck_assert_int_eq(cow_tensor_dtype(t), COW_INT8);
	ck_assert_int_eq(cow_tensor_dims(t), 1);
	ck_assert_int_eq(cow_tensor_sizes(t)[0], 1000);
	ck_assert_int_eq(cow_tensor_strides(t)[0], 1);
	ck_assert_int_eq(cow_tensor_offset(t), 0);
	ck_assert_int_eq(cow_tensor_numel(t), 1000);
	ck_assert_int_eq(cow_tensor_device(t).type, COW_DEVICE_CPU);
	must(!cow_tensor_is_conj(t) && !cow_tensor_is_neg(t));
	must(cow_tensor_storage(t) == s && cow_tensor_data(t) == cow_storage_data(s));
	ck_assert_int_eq(cow_tensor_format(t), COW_FORMAT_CONTIGUOUS);
	must(cow_tensor_is_contiguous(t, COW_FORMAT_CONTIGUOUS));
	must(cow_tensor_is_dense(t));
	ok(cow_tensor_get_quantizer(q, &quantizer));
	fails(-ENODATA, cow_tensor_get_quantizer(t, &quantizer));
	must(cow_tensor_ref(t) == t);
	cow_tensor_unref(t);
	must(cow_work_free(NULL) == NULL);
}

static struct cow_group *group;
static struct cow_channel *channel;

static void of_others(void)
{
	must(cow_group_ref(group) == group);
	cow_group_unref(group);
	must(cow_channel_group(channel) == group);
	must(cow_channel_pending(channel, NULL) == 0);
	must(cow_parcel_of(s, COW_SHARE_CLONE).length == cow_storage_bytes(s));
	must(cow_broker_ref(NULL) == NULL && cow_broker_unref(NULL) == NULL);
	must(cow_broker_release(NULL, NULL) == -EINVAL);
	ck_assert_int_eq(cow_strategy_get(), COW_STRATEGY_FD);
}

/* Before devices were started there are none. */
static void of_devices(void)
{
	cow_cuda_stream stream;

	ck_assert_int_eq(cow_cuda_count(), 0);
	ck_assert_int_eq(cow_cuda_is_pinned(s), 0);
	refuses(cow_cuda_stream_get(0, &stream));
	ok(cow_cuda_observe(NULL));
	cow_cuda_annotate(1);
	ok(cow_cuda_set_poison(false));
}

static void (*const quiet[])(void) = {
	names, data_pointers, registries, of_storages, of_heirs, of_the_engine, of_tensors,
	of_others, of_devices,
};

START_TEST(makes_no_call)
{
	int fd[2];

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	ok(cow_group_new(&group));
	ok(cow_channel_new(fd[0], group, 0, &channel));
	s = new_storage(1000, 0);
	ok(cow_tensor_on(s, COW_INT8, 1, SIZES(1000), NULL, 0, &t));
	q = channels();
	block = new_block(100000, 0);
	heirs_make();
	quiet[_i]();
	for (int i = 0; i < 2; i++) {
		fault_after(1, i ? FAULT_POOLS : EPERM);
		quiet[_i]();
		if (fault_disarm())
			ck_abort_msg("system call %ld", fault_fired_nr());
	}
	heirs_end();
	cow_block_free(block);
	cow_tensor_unref(q);
	cow_tensor_unref(t);
	cow_storage_unref(s);
	cow_channel_free(channel);
	cow_group_unref(group);
	close(fd[0]);
	close(fd[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_quiet");
	TCase *tcase = add_case(suite, "fault_quiet");

	tcase_add_loop_test(tcase, makes_no_call, 0, COUNT(quiet));
	return run_suite(suite);
}

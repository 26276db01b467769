/* SPDX-License-Identifier: MIT */
/*
 * Loading a driver: when there is none, an old one, one that fails, and after fork
 */
#include "tests/support/driver.h"

#include <cowshed-cuda.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct cow__cu *table;

static void says(const char *words)
{
	if (!strstr(cow_last_error(), words))
		ck_abort_msg("it says: %s", cow_last_error());
}

START_TEST(no_driver)
{
	must(setenv("COWSHED_CUDA_DRIVER", "/no/such/library.so", 1) == 0);
	fails(-ENODEV, cow__cu_start(&table));
	says("no CUDA driver: /no/such/library.so");
	must(table == NULL);
	/* The first result stays, also if a later try would succeed. */
	must(unsetenv("COWSHED_CUDA_DRIVER") == 0);
	driver_choose();
	fails(-ENODEV, cow__cu_start(&table));
	says("/no/such/library.so");
}
END_TEST

START_TEST(old_driver)
{
	must(setenv("COWREF_LACKS", "cuMemHostRegister", 1) == 0);
	driver_choose();
	fails(-ENOSYS, cow__cu_start(&table));
	says("lacks cuMemHostRegister");
}
END_TEST

START_TEST(calls_that_may_lack)
{
	must(setenv("COWREF_LACKS", "cuMemCreate,cuMemAllocAsync", 1) == 0);
	driver_choose();
	ok(cow__cu_start(&table));
	must(table->mem_create == NULL && table->mem_alloc_async == NULL);
	must(table->mem_release != NULL && table->mem_alloc != NULL);
}
END_TEST

START_TEST(failing_driver)
{
	must(setenv("COWREF_FAIL", "cuInit:1:100", 1) == 0);
	driver_choose();
	fails(-ENODEV, cow__cu_start(&table));
	says("CUDA_ERROR_NO_DEVICE, no CUDA-capable device");
}
END_TEST

START_TEST(nothing_before_use)
{
	char line[600];
	FILE *maps;

	driver_choose();
	cow_storage_unref(new_storage(4 << 20, 0));
	maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		must(!strstr(line, "libcuda"));
	fclose(maps);
}
END_TEST

static void forbidden(void *arg)
{
	(void)arg;
	table = NULL;
	fails(-ECHILD, cow__cu_start(&table));
	says("before fork()");
	must(table == NULL);
}

START_TEST(child_is_told)
{
	driver_start();
	in_child(forbidden, NULL);
	ok(cow__cu_start(&table));
}
END_TEST

/* No handler runs in this child. */
START_TEST(raw_child_is_told)
{
	int status;
	long child;

	driver_start();
	child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		_exit(cow__cu_start(&table) == -ECHILD ? 7 : 1);
	must(waitpid((pid_t)child, &status, 0) == child);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
END_TEST

static void may_start(void *arg)
{
	(void)arg;
	driver_start();
}

START_TEST(child_may_be_first)
{
	in_child(may_start, NULL);
	driver_start();
}
END_TEST

static struct gate counting, go_on;
static enum cow__cu_result (*real_count)(int *);

static enum cow__cu_result count(int *ret)
{
	gate_open(&counting);
	gate_wait(&go_on);
	return real_count(ret);
}

static void *starts(void *ret)
{
	ok(cow_cuda_start());
	return ret;
}

static void is_told(void *arg)
{
	(void)arg;
	alarm(20); /* rather than for ever */
	fails(-ECHILD, cow_cuda_start());
	says("before fork()");
}

/* It lacks the thread that starts the devices, and has its locks. */
START_TEST(child_of_a_start_is_told)
{
	struct cow__cu *calls;
	pthread_t thread;

	driver_start();
	gate_make(&counting);
	gate_make(&go_on);
	calls = (struct cow__cu *)(uintptr_t)cu;
	real_count = calls->device_get_count;
	calls->device_get_count = count;
	must(pthread_create(&thread, NULL, starts, NULL) == 0);
	gate_wait(&counting);
	in_child(is_told, NULL);
	gate_open(&go_on);
	must(pthread_join(thread, NULL) == 0);
	calls->device_get_count = real_count;
	must(cow_cuda_count() > 0);
	gate_free(&counting);
	gate_free(&go_on);
}
END_TEST

static void *start_too(void *ret)
{
	must(cow__cu_start(ret) == 0);
	return NULL;
}

START_TEST(once)
{
	const struct cow__cu *seen[8];
	pthread_t threads[8];
	int i;

	driver_choose();
	for (i = 0; i < 8; i++)
		must(pthread_create(&threads[i], NULL, start_too, &seen[i]) == 0);
	for (i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_ptr_eq(seen[i], seen[0]);
	}
	driver_start();
	must(!driver_is_reference() || ref.calls("cuInit") == 1);
}
END_TEST

START_TEST(results_become_errors)
{
	driver_start();
	ck_assert_int_eq(cow__cu_error(COW_CU_SUCCESS, "x"), 0);
	ck_assert_int_eq(cow__cu_error(COW_CU_OUT_OF_MEMORY, "a test"), -ENOMEM);
	ck_assert_str_eq(cow_last_error(), "a test: CUDA_ERROR_OUT_OF_MEMORY, out of memory");
	ck_assert_int_eq(cow__cu_error(COW_CU_ILLEGAL_ADDRESS, "a test"), -EIO);
	ck_assert_int_eq(cow__cu_error((enum cow__cu_result)12345, "a test"), -EIO);
	ck_assert_str_eq(cow_last_error(), "a test: CUDA error 12345");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_driver");
	TCase *loading = add_bare_case(suite, "loading"), *fork = add_bare_case(suite, "fork");

	tcase_add_test(loading, no_driver);
	add_test_needing(NEEDS_CONTROL, loading, old_driver);
	add_test_needing(NEEDS_CONTROL, loading, calls_that_may_lack);
	add_test_needing(NEEDS_CONTROL, loading, failing_driver);
	tcase_add_test(loading, nothing_before_use);
	tcase_add_test(loading, once);
	tcase_add_test(loading, results_become_errors);
	tcase_add_test(fork, child_is_told);
	tcase_add_test(fork, raw_child_is_told);
	tcase_add_test(fork, child_may_be_first);
	tcase_add_test(fork, child_of_a_start_is_told);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Bytes that a program wrote to its own /proc/self/mem were lost
 *
 * A thread in write() counts as parked. But a write to this file changes any memory of the
 * process, while the engine brings copied pages home. Now nothing comes home while such a
 * descriptor may be written. Reading changes nothing, and other empty files are no danger.
 */
#include "memfd/pins.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void opened(const char *path, int flags, bool pins)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	ck_assert(fd >= 0);
	ck_assert_int_eq(cow__pins_memory(), pins);
	close(fd);
	ck_assert(!cow__pins_memory());
}

START_TEST(memory_that_may_be_written_is_a_pin)
{
	char path[64];

	opened("/proc/self/mem", O_RDWR, true);
	opened("/proc/self/mem", O_WRONLY, true);
	opened("/proc/thread-self/mem", O_RDWR, true);
	snprintf(path, sizeof(path), "/proc/%d/mem", getpid());
	opened(path, O_RDWR, true);
}
END_TEST

START_TEST(memory_that_is_read_is_no_pin)
{
	opened("/proc/self/mem", O_RDONLY, false);
}
END_TEST

START_TEST(an_empty_file_is_no_pin)
{
	char path[64];
	int fd = memfd_create("empty", MFD_CLOEXEC);

	ck_assert(fd >= 0 && fchmod(fd, 0600) == 0);
	ck_assert(!cow__pins_memory());
	close(fd);
	snprintf(path, sizeof(path), "/dev/shm/cowshed-test-%d", getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return; /* there is no such folder */
	unlink(path);
	ck_assert(!cow__pins_memory());
	close(fd);
	opened("/proc/self/comm", O_RDWR, false);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_writes_to_proc_self_mem_were_lost");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_test(tcase, memory_that_may_be_written_is_a_pin);
	tcase_add_test(tcase, memory_that_is_read_is_no_pin);
	tcase_add_test(tcase, an_empty_file_is_no_pin);
	return run_suite(suite);
}

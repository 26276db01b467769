/* SPDX-License-Identifier: MIT */
/*
 * Which number a descriptor gets, and that the limits stay as they were
 */
#include "memfd/descriptor.h"
#include "memfd/memfd.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SOFT = 600, ABOVE = 4096 };

static struct rlimit limit;

/* The number of a new memfd, with the limits from before. */
static int number_of_new(void)
{
	struct cow__descriptor d;
	struct rlimit now;
	int fd;

	must(cow__memfd_new("test", PAGE, &d) == 0);
	must(getrlimit(RLIMIT_NOFILE, &now) == 0);
	ck_assert_uint_eq(now.rlim_cur, limit.rlim_cur);
	ck_assert_uint_eq(now.rlim_max, limit.rlim_max);
	ck_assert(cow__descriptor_ok(&d));
	ck_assert_int_eq(fcntl(d.fd, F_GETFD), FD_CLOEXEC);
	fd = d.fd;
	cow__descriptor_close(&d);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	return fd;
}

static void set(rlim_t soft, rlim_t hard)
{
	limit = (struct rlimit){ soft, hard };
	must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* As high as it goes below the soft limit. The engine has numbers there, too. */
static void high(int fd)
{
	ck_assert_int_ge(fd, 400);
	ck_assert_int_lt(fd, SOFT);
}

START_TEST(above_the_soft_limit)
{
	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	set(SOFT, limit.rlim_max);
	ck_assert_int_eq(number_of_new(), SOFT);
	/* A program that has lowered its limit may look for its files right above. */
	set(SOFT / 2, limit.rlim_max);
	high(number_of_new());
	/* The last number below the hard limit. */
	set(SOFT, SOFT + 1);
	ck_assert_int_eq(number_of_new(), SOFT);
}
END_TEST

START_TEST(equal_limits)
{
	set(SOFT, SOFT);
	high(number_of_new());
	set(100, 100);
	ck_assert_int_ge(number_of_new(), COW__FD_HIGH);
	set(20, 20);
	ck_assert_int_lt(number_of_new(), 20);
}
END_TEST

START_TEST(no_number_left_above)
{
	int fd;

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	set(SOFT + ABOVE, limit.rlim_max);
	for (fd = SOFT; fd < SOFT + ABOVE; fd++)
		must(dup2(0, fd) == fd);
	set(SOFT, limit.rlim_max);
	high(number_of_new());
	for (fd = SOFT; fd < SOFT + ABOVE; fd++)
		close(fd);
}
END_TEST

START_TEST(a_high_soft_limit)
{
	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max <= 16385)
		return;
	set(16384, limit.rlim_max);
	ck_assert_int_eq(number_of_new(), 16384);
	set(16385, limit.rlim_max);
	high(number_of_new());
}
END_TEST

static void *waits(void *arg)
{
	char byte;

	must(read(*(int *)arg, &byte, 1) == 1);
	return NULL;
}

START_TEST(beside_another_thread)
{
	pthread_t thread;
	int ends[2];

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	set(SOFT, limit.rlim_max);
	must(pipe(ends) == 0);
	must(pthread_create(&thread, NULL, waits, &ends[0]) == 0);
	high(number_of_new());
	must(write(ends[1], "", 1) == 1);
	must(pthread_join(thread, NULL) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("descriptor");
	TCase *tcase = add_case(suite, "descriptor");
	struct rlimit now;

	tcase_add_test(tcase, equal_limits);
	if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_max > SOFT + ABOVE) {
		tcase_add_test(tcase, above_the_soft_limit);
		tcase_add_test(tcase, no_number_left_above);
		tcase_add_test(tcase, a_high_soft_limit);
		tcase_add_test(tcase, beside_another_thread);
	} else {
		printf("skip above_the_soft_limit the hard limit is too low\n");
	}
	return run_suite(suite);
}

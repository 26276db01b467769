/* SPDX-License-Identifier: MIT */
/*
 * Threads that copy, around calls that give up privileges: none is there, none is made.
 */
#include "core/memory/helper.h"
#include "cowshed-tensor.h"
#include "tests/support/support.h"
#include "core/memory/workers.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 4000

#if !SANITIZED
struct job {
	uintptr_t stack; /* the caller's */
	uint32_t others; /* parts that other threads did */
	uint32_t inside, meet; /* wait until so many are inside at once */
};

static bool is_another(const struct job *j)
{
	char here;

	return (uintptr_t)&here - j->stack + MIB > 2 * MIB;
}

static void part(void *arg, int64_t first, int64_t last)
{
	struct job *j = arg;

	must(first >= 0 && first < last && last <= N);
	if (is_another(j))
		__atomic_add_fetch(&j->others, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&j->inside, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&j->inside, __ATOMIC_SEQ_CST) < j->meet)
		;
}

static void run(struct job *j, int64_t grain,
                void (*body)(void *arg, int64_t first, int64_t last))
{
	char here;

	j->stack = (uintptr_t)&here;
	cow__workers_run(N, grain, body, j);
}

static int threads_now(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	must(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static bool alone(void *arg)
{
	(void)arg;
	return threads_now() == 1;
}

/* Two threads meet inside a job: so there was another one. */
static void met(void)
{
	struct job *j = calloc(1, sizeof(*j));

	j->meet = 2;
	run(j, N / 2, part);
	ck_assert_uint_eq(j->others, 1);
	free(j);
}

/* A copy while another thread is in setuid(): it would make threads that keep what that
 * one gives up. */
START_TEST(no_threads_while_they_are_suspended)
{
	struct job *j = calloc(1, sizeof(*j));

	ok(cow_threads_set(2));
	met();
	must(cow__threads_suspend());
	ck_assert_int_eq(threads_now(), 1);
	for (int i = 0; i < 20; i++) {
		memset(j, 0, sizeof(*j));
		run(j, 1, part);
		ck_assert_uint_eq(j->others, 0);
	}
	ck_assert_int_eq(threads_now(), 1);
	cow__helper_resume();
	met();
	free(j);
}
END_TEST

static void suspend_in_the_middle(void *arg, int64_t first, int64_t last)
{
	struct job *j = arg;

	part(arg, first, last);
	/* The caller, as if a signal handler had interrupted it here. */
	if (!is_another(j)) {
		must(cow__threads_suspend());
		cow__helper_resume();
	}
}

START_TEST(a_handler_wants_to_be_alone_in_the_middle)
{
	struct job *j = calloc(1, sizeof(*j));

	ok(cow_threads_set(2));
	for (int i = 0; i < 20; i++) {
		memset(j, 0, sizeof(*j));
		j->meet = 2;
		run(j, N / 2, suspend_in_the_middle);
		ck_assert_uint_eq(j->others, 1);
		/* Well before they would end by themselves. */
		must(wait_until(alone, NULL, 1));
	}
	met();
	free(j);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("workers_suspended");
	TCase *c = add_case(s, "suspended");

	(void)c;
#if SANITIZED
	puts("skip workers_suspended sanitizers have no workers");
#else
	tcase_add_test(c, no_threads_while_they_are_suspended);
	tcase_add_test(c, a_handler_wants_to_be_alone_in_the_middle);
#endif
	return run_suite(s);
}

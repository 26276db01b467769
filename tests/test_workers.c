/* SPDX-License-Identifier: MIT */
/*
 * Threads that copy: every range once, whoever calls, also after a fork.
 */
#include "support/support.h"
#include "tensor/strided.h"
#include "tensor/workers.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 4000

struct job {
	uint32_t seen[N];
	uint32_t parts, others; /* not on the caller's stack */
	uintptr_t stack;
	struct job *nested;
	uint32_t inside, meet; /* wait until so many are inside at once */
};

static void part(void *arg, int64_t first, int64_t last)
{
	struct job *j = arg;
	char here;

	must(first >= 0 && first < last && last <= N);
	__atomic_add_fetch(&j->parts, 1, __ATOMIC_RELAXED);
	if ((uintptr_t)&here - j->stack + MIB > 2 * MIB)
		__atomic_add_fetch(&j->others, 1, __ATOMIC_RELAXED);
	for (int64_t i = first; i < last; i++)
		__atomic_add_fetch(&j->seen[i], 1, __ATOMIC_RELAXED);
	if (j->meet) {
		__atomic_add_fetch(&j->inside, 1, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&j->inside, __ATOMIC_SEQ_CST) < j->meet)
			;
	}
	if (j->nested)
		cow__workers_run(N, 1, part, j->nested);
}

static void run(struct job *j, int64_t n, int64_t grain)
{
	char here;

	j->stack = (uintptr_t)&here;
	cow__workers_run(n, grain, part, j);
	for (int64_t i = 0; i < N; i++)
		must(j->seen[i] == (i < n));
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

/* Runs jobs until two threads met inside one: so there was another thread. */
static void met(void)
{
	struct job *j = calloc(1, sizeof(*j));

	j->meet = 2;
	run(j, N, N / 2);
	ck_assert_uint_eq(j->others, 1);
	free(j);
}

START_TEST(settings)
{
	int own = cow_threads_get();

	ck_assert_int_ge(own, 1);
	ok(cow_threads_set(3));
	ck_assert_int_eq(cow_threads_get(), 3);
	fails(-EINVAL, cow_threads_set(-1));
	ck_assert_int_eq(cow_threads_get(), 3);
	ok(cow_threads_set(0));
	ck_assert_int_eq(cow_threads_get(), own);
}
END_TEST

START_TEST(every_range_once)
{
	static const int64_t sizes[] = { 0, 1, 2, 3, 7, 100, 3999, N };
	static const int64_t grains[] = { 1, 2, 9, 5000 };

	for (int threads = 1; threads <= 5; threads++)
		for (size_t s = 0; s < COUNT(sizes); s++)
			for (size_t g = 0; g < COUNT(grains); g++) {
				struct job *j = calloc(1, sizeof(*j));

				ok(cow_threads_set(threads));
				run(j, sizes[s], grains[g]);
				if (threads == 1 || grains[g] == 5000)
					must(j->parts <= 1 && j->others == 0);
				free(j);
			}
}
END_TEST

#if !SANITIZED
/* The two wait for each other: one thread alone would wait for ever. */
START_TEST(another_thread_works)
{
	ok(cow_threads_set(2));
	for (int i = 0; i < 100; i++)
		met();
}
END_TEST

static bool alone(void *arg)
{
	(void)arg;
	return threads_now() == 1;
}

START_TEST(idle_threads_end_and_come_back)
{
	ok(cow_threads_set(3));
	met();
	ck_assert_int_gt(threads_now(), 1);
	must(wait_until(alone, NULL, 30));
	met();
}
END_TEST

static void grandchild(void *arg)
{
	(void)arg;
	met();
}

static void child(void *arg)
{
	(void)arg;
	ck_assert_int_eq(threads_now(), 1);
	met();
	ck_assert_int_gt(threads_now(), 1);
	in_child(grandchild, NULL);
}

START_TEST(a_child_has_threads_of_its_own)
{
	ok(cow_threads_set(2));
	met();
	in_child(child, NULL);
	met();
}
END_TEST

static void *fork_now(void *arg)
{
	struct job *j = arg;

	/* The pool is in the middle of a job. */
	while (__atomic_load_n(&j->inside, __ATOMIC_SEQ_CST) < 2)
		;
	in_child(child, NULL);
	__atomic_add_fetch(&j->inside, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

START_TEST(a_fork_while_the_pool_is_busy)
{
	struct job *j = calloc(1, sizeof(*j));
	pthread_t thread;

	ok(cow_threads_set(2));
	j->meet = 3; /* both parts, and the child is done */
	must(pthread_create(&thread, NULL, fork_now, j) == 0);
	run(j, N, N / 2);
	pthread_join(thread, NULL);
	free(j);
}
END_TEST
#endif

START_TEST(nested_runs_are_done_alone)
{
	struct job *j = calloc(1, sizeof(*j)), *inner = calloc(1, sizeof(*inner));

	ok(cow_threads_set(4));
	j->nested = inner;
	run(j, N, N / 4);
	for (int i = 0; i < N; i++)
		must(inner->seen[i] == j->parts);
	must(inner->parts == j->parts); /* each in one piece */
	free(inner);
	free(j);
}
END_TEST

static void *runs(void *arg)
{
	struct job *j = malloc(sizeof(*j));

	(void)arg;
	for (int i = 0; i < ROUNDS(2000); i++) {
		memset(j, 0, sizeof(*j));
		run(j, N, 1 + i % 300);
	}
	free(j);
	return NULL;
}

START_TEST(many_callers)
{
	pthread_t threads[4];

	ok(cow_threads_set(3));
	for (size_t i = 0; i < COUNT(threads); i++)
		must(pthread_create(&threads[i], NULL, runs, NULL) == 0);
	for (size_t i = 0; i < COUNT(threads); i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("workers");
	TCase *c = add_case(s, "workers");

	tcase_add_test(c, settings);
	tcase_add_test(c, every_range_once);
#if !SANITIZED
	tcase_add_test(c, another_thread_works);
	tcase_add_test(c, idle_threads_end_and_come_back);
	tcase_add_test(c, a_child_has_threads_of_its_own);
	tcase_add_test(c, a_fork_while_the_pool_is_busy);
#endif
	tcase_add_test(c, nested_runs_are_done_alone);
	tcase_add_test(c, many_callers);
	return run_suite(s);
}

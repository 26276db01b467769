/* SPDX-License-Identifier: MIT */
/*
 * File pages under copied ones stayed, after a fork while they were given back
 *
 * A fork ends that early. When the child had gone nothing was done about the
 * rest, since all of it was written down as given back.
 */
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { RUNS = 2048 };

/* Calls of the library want the helper, every few milliseconds at most. */
static bool helper_held(void *arg)
{
	cow_block_free(new_block(MIB, 0));
	return hold_is_on(arg);
}

static bool helper_runs_again(void *before)
{
	cow_block_free(new_block(MIB, 0));
	return stats_now().helper_starts > *(uint64_t *)before;
}

static bool all_returned(void *arg)
{
	(void)arg;
	return stats_now().bytes_shadow_returned >= RUNS * PAGE;
}

static void waits(void *arg)
{
	gate_wait(arg);
}

/* Another thread, which might write: no thaw. */
static void *sleeps(void *arg)
{
	while (!__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return NULL;
}

START_TEST(forked_while_shadows_go)
{
	const size_t bytes = 2 * RUNS * PAGE;
	unsigned char *p;
	struct gate gate;
	pthread_t thread;
	int stop = 0;
	pid_t child;
	uint64_t starts;
	size_t n;

	ok(cow_option_set("backing", "memfd"));
	gate_make(&gate);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleeps, &stop), 0);
	p = new_block(bytes, 0);
	memset(p, 1, bytes);
	child = child_start(waits, &gate);
	for (n = 0; n < RUNS; n++)
		p[2 * n * PAGE] = 2;
	hold_at(SYS_madvise, MADV_REMOVE);
	gate_open(&gate);
	child_finish(child);
	ck_assert(wait_until(helper_held, NULL, 10));
	child = child_start(waits, &gate);
	starts = stats_now().helper_starts;
	hold_finish(); /* it has seen the child */
	ck_assert(wait_until(helper_runs_again, &starts, 10));
	gate_open(&gate);
	child_finish(child);
	ck_assert(wait_until(all_returned, NULL, 5));
	for (n = 0; n < 2 * RUNS; n++)
		must(p[n * PAGE] == (n % 2 ? 1 : 2) && p[n * PAGE + 1] == 1);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	cow_block_free(p);
	gate_free(&gate);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_shadows_stay_after_a_fork");
	TCase *tcase = add_case(suite, "bug");

	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, forked_while_shadows_go);
	else
		puts("skip forked_while_shadows_go sanitizers have no helper");
	return run_suite(suite);
}

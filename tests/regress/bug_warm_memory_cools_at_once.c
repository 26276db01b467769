/* SPDX-License-Identifier: MIT */
/*
 * Memory that was freed while the helper worked lost its pages at once
 *
 * The helper asks the clock once in a round, and does not hold the lock
 * throughout. What is freed meanwhile was freed after that time; the difference
 * wrapped around, and was older than any decay time.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/support.h"

#include <string.h>
#include <time.h>

static long main_tid;
static int hold; /* 1: hold the helper at its next collapse; 2: it is held */

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	int one = 1;

	if (nr == SYS_madvise && c == 25 /* MADV_COLLAPSE */ &&
	    real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0) != main_tid &&
	    __atomic_compare_exchange_n(&hold, &one, 2, false,
	                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&hold, __ATOMIC_ACQUIRE) == 2)
			real_gate(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	return real_gate(nr, a, b, c, d, e, f);
}

static bool held(void *arg)
{
	(void)arg;
	return __atomic_load_n(&hold, __ATOMIC_ACQUIRE) == 2;
}

START_TEST(freed_while_the_helper_works)
{
	const size_t bytes = 8 * MIB;
	struct cow_stats before, after;
	unsigned char *p, *large;

	ok(cow_option_set("decay", "60000"));
	main_tid = real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0);
	p = new_block(bytes, 0);
	memset(p, 1, bytes);
	__atomic_store_n(&hold, 1, __ATOMIC_RELEASE);
	large = new_block(64 * MIB, 0);
	memset(large, 1, 32 * MIB);
	ck_assert(wait_until(held, NULL, 10));
	before = stats_now();
	cow_block_free(p);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	after = stats_now();
	ck_assert_uint_eq(after.bytes_returned, before.bytes_returned);
	cow_block_free(large);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_warm_memory_cools_at_once");
	TCase *tcase = add_case(suite, "bug");

	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, freed_while_the_helper_works);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * File pages under copied ones stayed in programs that clone and never fork
 *
 * Without the helper thread only forks led to a look for such pages (shadows) and to healing.
 * So a storage that was cloned once and rewritten held twice its memory until it was freed.
 * Where there is a helper, calls of the library start it for them.
 */
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { BYTES = 8 * MIB, WRITTEN = 2 * MIB };

/* Calls of the library do the regular work, every few milliseconds at most. */
static void call(void)
{
	cow_block_free(new_block(64 * KIB, 0));
}

static bool helper_starts(void *before)
{
	call();
	return stats_now().helper_starts > *(uint64_t *)before;
}

static bool shadows_are_returned(void *arg)
{
	(void)arg;
	call();
	return stats_now().bytes_shadow_returned >= WRITTEN;
}

static bool nothing_is_frozen(void *arg)
{
	(void)arg;
	call();
	return cow__engine.frozen == 0;
}

/* A storage that a clone froze. It was written since, and the clone is gone. */
static struct cow_storage *rewritten(void)
{
	struct cow_storage *a = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1), *clone;
	unsigned char *p = expose(a);

	clone = lazy(a);
	fill(p, WRITTEN, 2);
	cow_trim(); /* page tables that the freeze moved away */
	must(cow__engine.frozen && stats_now().forks == 0);
	cow_storage_unref(clone);
	return a;
}

static void check_and_free(struct cow_storage *a)
{
	struct cow_storage *whole = new_filled(BYTES, 0, 1);

	ck_pattern(data(a), WRITTEN, 2);
	must(!memcmp((const char *)data(a) + WRITTEN, (const char *)data(whole) + WRITTEN,
	             BYTES - WRITTEN));
	cow_storage_unref(whole);
	cow_storage_unref(a);
}

/* Another thread, which might write: no thaw. */
static void *sleeps(void *arg)
{
	while (!__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return NULL;
}

START_TEST(without_the_helper)
{
	struct cow_storage *a;
	pthread_t thread;
	int stop = 0;

	ok(cow_option_set("helper", "no"));
	ck_assert_int_eq(pthread_create(&thread, NULL, sleeps, &stop), 0);
	a = rewritten();
	ck_assert(wait_until(shadows_are_returned, NULL, 10));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	check_and_free(a);
}
END_TEST

/* In a program with one thread the memory is mapped shared again. */
START_TEST(healed_without_the_helper)
{
	struct cow_storage *a;

	ok(cow_option_set("helper", "no"));
	a = rewritten();
	ck_assert(wait_until(nothing_is_frozen, NULL, 10));
	ck_assert_int_eq(stats_now().bytes_shadow_returned, 0);
	check_and_free(a);
}
END_TEST

/* Nothing else wants the helper here. */
START_TEST(calls_start_the_helper)
{
	struct cow_storage *a;
	uint64_t starts;
	pthread_t thread;
	int stop = 0;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleeps, &stop), 0);
	cow__helper_suspend();
	a = rewritten();
	starts = stats_now().helper_starts;
	cow__helper_resume();
	ck_assert(wait_until(helper_starts, &starts, 10));
	ck_assert(wait_until(shadows_are_returned, NULL, 10));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	check_and_free(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_clones_keep_shadows");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_test(tcase, without_the_helper);
	tcase_add_test(tcase, healed_without_the_helper);
	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, calls_start_the_helper);
	else
		puts("skip calls_start_the_helper sanitizers have no helper");
	return run_suite(suite);
}

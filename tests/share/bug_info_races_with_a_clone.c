/* SPDX-License-Identifier: MIT */
/*
 * A thread asked about a storage while another thread cloned it
 *
 * Both only read the storage, so both may do it at once. But a clone marks the allocation, and
 * cow_storage_get_info() read that mark without atomics: a data race, in C. ThreadSanitizer reports
 * it here.
 */
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <pthread.h>

enum { TIMES = 100 };

static void *clones(void *arg)
{
	for (int i = 0; i < TIMES; i++)
		cow_storage_unref(lazy(arg));
	return NULL;
}

START_TEST(info_beside_clones)
{
	struct cow_group *group;
	struct cow_storage *s;
	pthread_t thread;

	ok(cow_group_new(&group));
	ok(cow_group_storage_new(group, MIB, COW_SHARE_CLONE, &s));
	must(pthread_create(&thread, NULL, clones, s) == 0);
	for (int i = 0; i < TIMES; i++)
		must(info_of(s).sharers >= 1);
	must(pthread_join(thread, NULL) == 0);
	cow_storage_unref(s);
	cow_group_unref(group);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("info_races_with_a_clone");

	tcase_add_test(add_case(suite, "bug"), info_beside_clones);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * A thread that made an alias wrote a pointer of the library while others read it
 *
 * The engine tells share/ when an alias ends, through a pointer that share/ sets. Each
 * new alias set it again, and a thread that freed a storage read it without a lock: a data race, in
 * C, though the value never changed. ThreadSanitizer reports it here.
 */
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <pthread.h>

enum { ROUNDS_EACH = 1000 };

struct both {
	struct cow_group *group;
	pthread_barrier_t start;
};

static struct cow_storage *with_home(struct both *b)
{
	struct cow_storage *s;

	ok(cow_group_storage_new(b->group, 100, COW_SHARE_ALIAS, &s));
	return s;
}

static void *frees(void *arg)
{
	struct both *b = arg;

	for (int i = 0; i < ROUNDS_EACH; i++) {
		struct cow_storage *s = with_home(b);

		pthread_barrier_wait(&b->start);
		/* Ever later, so that now and then the other thread has just been there. */
		for (volatile int later = 0; later < i % 100 * 50; later++)
			;
		cow_storage_unref(s);
		pthread_barrier_wait(&b->start);
	}
	return NULL;
}

START_TEST(new_aliases_beside_frees)
{
	pthread_t thread;
	struct both b;

	ok(cow_group_new(&b.group));
	must(pthread_barrier_init(&b.start, NULL, 2) == 0);
	must(pthread_create(&thread, NULL, frees, &b) == 0);
	for (int i = 0; i < ROUNDS_EACH; i++) {
		struct cow_storage *s;

		pthread_barrier_wait(&b.start);
		s = with_home(&b);
		pthread_barrier_wait(&b.start);
		cow_storage_unref(s);
	}
	must(pthread_join(thread, NULL) == 0);
	pthread_barrier_destroy(&b.start);
	cow_group_unref(b.group);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("new_alias_races_with_a_free");

	tcase_add_test(add_case(suite, "bug"), new_aliases_beside_frees);
	return run_suite(suite);
}

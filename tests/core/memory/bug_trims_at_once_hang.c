/* SPDX-License-Identifier: MIT */
/*
 * Two threads that called cow_trim() at once waited for the end of one helper thread, and
 * the kernel, which tells it, wakes one: the other one slept for ever.
 */
#include "tests/support/support.h"

#include <pthread.h>

enum { THREADS = 4, TURNS = 400, BYTES = 40 * 1024 * 1024 };

static void *trims(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS(TURNS); i++) {
		struct cow_storage *s = new_storage(BYTES, 0);

		mut(s)[0] = 1; /* the helper goes ahead of who fills it */
		cow_trim();
		cow_storage_unref(s);
	}
	return NULL;
}

START_TEST(trims_at_once_return)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, trims, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		must(pthread_join(threads[i], NULL) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trims at once");

	tcase_add_test(add_case(suite, "trims at once"), trims_at_once_return);
	return run_suite(suite);
}

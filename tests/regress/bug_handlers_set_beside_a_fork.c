/* SPDX-License-Identifier: MIT */
/*
 * A thread that sets signal handlers while another one forks and waits
 *
 * To prove that nobody writes, all handlers were replaced for a moment, also while a
 * thread was running: it was told of a handler that it had never set, and what it set
 * was undone.
 */
#include "tests/support/support.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 300, BYTES = 4 * MIB };

static int stop, wrong;

static void one(int number)
{
	(void)number;
}

static void two(int number)
{
	(void)number;
}

static void *sets(void *unused)
{
	struct sigaction a = { .sa_handler = one }, b = { .sa_handler = two }, was;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		wrong += sigaction(SIGUSR1, &b, &was) != 0 || was.sa_handler != one;
		wrong += sigaction(SIGUSR1, &a, &was) != 0 || was.sa_handler != two;
	}
	return unused;
}

START_TEST(it_finds_its_own)
{
	struct sigaction a = { .sa_handler = one };
	struct cow_storage *s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 1);
	unsigned char *p = expose(s);
	pthread_t thread;

	ck_assert_int_eq(sigaction(SIGUSR1, &a, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, sets, NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		p[i * PAGE] = 9;
		ck_assert_int_eq(waitpid(child, NULL, 0), child);
		cow_trim();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_assert_int_eq(wrong, 0);
	cow_storage_unref(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_handlers_set_beside_a_fork");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_test(tcase, it_finds_its_own);
	return run_suite(suite);
}

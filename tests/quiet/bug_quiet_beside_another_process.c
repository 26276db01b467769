/* SPDX-License-Identifier: MIT */
/*
 * A process was taken to be quiet while another one wrote its memory
 *
 * vfork() and clone(CLONE_VM) make processes that share an address space, and
 * neither finds the other's threads in its own list. A child of vfork() that
 * freed a block thawed what the threads of its parent were writing.
 */
#include "quiet/quiet.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;
static _Alignas(16) char stack[64 << 10];

static bool quiet(void)
{
	bool yes = cow__quiet_begin(0, NULL, 0, 0, 0, false) == COW__QUIET;

	if (yes)
		cow__quiet_end();
	return yes;
}

static void *runs(void *arg)
{
	while (!atomic_load(&stop))
		;
	return arg;
}

START_TEST(in_a_child_of_vfork)
{
	static volatile bool answer;
	pthread_t thread;
	pid_t child;

	answer = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, runs, NULL), 0);
	child = vfork();
	if (child == 0) {
		answer = quiet();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	ck_assert(!answer);
}
END_TEST

static int lives(void *arg)
{
	while (!atomic_load(&stop))
		;
	return arg != NULL;
}

START_TEST(beside_a_bare_clone)
{
	pid_t child = clone(lives, stack + sizeof(stack), CLONE_VM | SIGCHLD,
	                    NULL);
	bool answer;

	ck_assert_int_gt(child, 0);
	answer = quiet();
	atomic_store(&stop, 1);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(!answer);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quiet_beside_another_process");
	TCase *tcase = add_case(suite, "quiet");

	if (UNDER_TSAN)
		puts("skip in_a_child_of_vfork TSan makes a vfork() a fork()");
	else
		tcase_add_test(tcase, in_a_child_of_vfork);
	tcase_add_test(tcase, beside_a_bare_clone);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * A thread that sets signal handlers while another one forks and waits
 *
 * To prove that nobody writes, all handlers were replaced for a moment, also while a
 * thread was running: it was told of a handler that it had never set, and what it set
 * was undone.
 */
#include "quiet/quiet.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* ---- Should a thread run all the same, between the look and the gates ---------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t ones;

static void counts(int number)
{
	(void)number;
	ones = ones + 1;
}

static void *sleeps(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

/* A quiet moment, with gates: another thread sleeps. */
static pthread_t quiet_begins(void)
{
	pthread_t thread;

	pthread_mutex_lock(&mutex);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleeps, NULL), 0);
	while (cow__quiet_begin(0, NULL, 0, 0, 0, false) != COW__QUIET)
		;
	return thread;
}

static void quiet_ends(pthread_t thread)
{
	cow__quiet_end();
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
}

/* What it sets stays; and the gate that it is told of is no handler to keep, also if it
 * sets it later, and the next moment comes. */
START_TEST(it_sets_one_meanwhile)
{
	struct sigaction a = { .sa_handler = counts }, b = { .sa_handler = two }, gate, was;
	pthread_t thread;

	ck_assert_int_eq(sigaction(SIGUSR1, &a, NULL), 0);
	thread = quiet_begins();
	ck_assert_int_eq(sigaction(SIGUSR1, &b, &gate), 0);
	must(gate.sa_handler != counts && gate.sa_handler != two);
	quiet_ends(thread);
	ck_assert_int_eq(sigaction(SIGUSR1, &gate, &was), 0);
	must(was.sa_handler == two);
	raise(SIGUSR1);
	ck_assert_int_eq(ones, 1);
	quiet_ends(quiet_begins());
	raise(SIGUSR1);
	ck_assert_int_eq(ones, 2);
}
END_TEST

/* A child that is made behind our back has the gates, and nobody to open them. */
START_TEST(a_raw_fork_meanwhile)
{
	struct sigaction a = { .sa_handler = counts };
	sigset_t none;
	pthread_t thread;
	pid_t child;
	int status;

	ck_assert_int_eq(sigaction(SIGUSR1, &a, NULL), 0);
	sigemptyset(&none);
	thread = quiet_begins();
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_SETMASK, &none, NULL);
		syscall(SYS_kill, syscall(SYS_getpid), SIGUSR1);
		_exit(ones == 1 ? 5 : 1);
	}
	quiet_ends(thread);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_handlers_set_beside_a_fork");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_test(tcase, it_finds_its_own);
	if (!SANITIZED) { /* they have threads, or handlers, of their own */
		tcase_add_test(tcase, it_sets_one_meanwhile);
		tcase_add_test(tcase, a_raw_fork_meanwhile);
	}
	return run_suite(suite);
}

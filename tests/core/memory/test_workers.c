/* SPDX-License-Identifier: MIT */
/*
 * Threads that copy: every range once, whoever calls, also after a fork.
 */
#include "tests/support/support.h"
#include "tensor/strided.h"
#include "core/memory/workers.h"

#include <dirent.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

#if !SANITIZED
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
#endif

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

#if !SANITIZED
static bool denied_by(unsigned number, int error)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(rules), rules };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void without_threads(void *arg)
{
	struct job *j = calloc(1, sizeof(*j));

	(void)arg;
	ok(cow_threads_set(4));
	must(denied_by(SYS_clone, EPERM));
	for (int i = 0; i < 50; i++) {
		memset(j, 0, sizeof(*j));
		run(j, N, 1);
		ck_assert_uint_eq(j->others, 0);
	}
	ck_assert_int_eq(threads_now(), 1);
	cow_threads_end();
	free(j);
}

/* As sandboxes do it: copies are made by the caller alone. */
START_TEST(threads_are_denied)
{
	in_child(without_threads, NULL);
}
END_TEST

static void with_threads_at_first(void *arg)
{
	(void)arg;
	ok(cow_threads_set(2));
	met();
	must(denied_by(SYS_clone, EAGAIN));
	met(); /* those that are there go on */
	cow_threads_end();
	ck_assert_int_eq(threads_now(), 1);
	without_threads(NULL);
}

START_TEST(threads_are_denied_later)
{
	in_child(with_threads_at_first, NULL);
}
END_TEST

static void *meets(void *arg)
{
	for (int i = 0; i < 200; i++) {
		struct job *j = calloc(1, sizeof(*j));

		run(j, N, 1 + i);
		free(j);
		if (i % 8 == 0)
			cow_threads_end();
		ok(cow_threads_set(1 + i % (2 + (int)(intptr_t)arg)));
	}
	return NULL;
}

/* ... and their number changes, and all of them are ended, from several threads. */
START_TEST(threads_are_ended_by_several)
{
	pthread_t threads[3];

	for (size_t i = 0; i < COUNT(threads); i++)
		must(pthread_create(&threads[i], NULL, meets, (void *)i) == 0);
	for (size_t i = 0; i < COUNT(threads); i++)
		pthread_join(threads[i], NULL);
	cow_threads_end();
	/* The kernel lists the three above for a moment after they were joined. */
	must(wait_until(alone, NULL, 30));
	ok(cow_threads_set(2));
	met();
}
END_TEST

static void own_namespace(void *arg)
{
	int first;

	(void)arg;
	ok(cow_threads_set(2));
	met();
	first = unshare(CLONE_NEWUSER) ? errno : 0;
	ck_assert_int_ne(first, 0); /* they are idle, and there */
	cow_threads_end();
	ck_assert_int_eq(threads_now(), 1);
	/* What is allowed at all is allowed now. */
	if (unshare(CLONE_NEWUSER))
		ck_assert_int_ne(errno, EINVAL);
	met();
}

START_TEST(a_process_that_wants_to_be_alone)
{
	in_child(own_namespace, NULL);
}
END_TEST

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

/* A signal to the process that its only thread blocks is nobody else's. */
START_TEST(workers_take_no_signals)
{
	sigset_t set, pending;

	signals = 0;
	signal(SIGUSR1, count_signal);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	ok(cow_threads_set(2));
	met();
	ck_assert_int_gt(threads_now(), 1);
	must(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	must(kill(getpid(), SIGUSR1) == 0);
	met();
	must(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	ck_assert_int_eq(signals, 0);
	must(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
	ck_assert_int_eq(signals, 1);
	signal(SIGUSR1, SIG_DFL);
}
END_TEST

static struct {
	pid_t caller, child;
	uint32_t inside, forked;
	bool copies;
} handler;

/* In the middle of its job, while the other thread is inside, too, the caller is
 * interrupted, and its handler forks. The child may run jobs of its own there; then it
 * goes on with what was interrupted. */
static void forks_inside(void *arg, int64_t first, int64_t last)
{
	if (syscall(SYS_gettid) != handler.caller) {
		__atomic_store_n(&handler.inside, 1, __ATOMIC_SEQ_CST);
		while (!__atomic_load_n(&handler.forked, __ATOMIC_SEQ_CST))
			;
		part(arg, first, last);
		return;
	}
	part(arg, first, last);
	if (handler.child)
		return;
	while (!__atomic_load_n(&handler.inside, __ATOMIC_SEQ_CST))
		;
	handler.child = fork();
	__atomic_store_n(&handler.forked, 1, __ATOMIC_SEQ_CST);
	if (handler.child == 0) {
		handler.child = -1;
		if (handler.copies)
			met();
	}
}

START_TEST(a_handler_forks_in_the_middle)
{
	struct job *j = calloc(1, sizeof(*j));
	int status = 0, missing = 0;

	ok(cow_threads_set(2));
	met();
	memset(&handler, 0, sizeof(handler));
	handler.caller = (pid_t)syscall(SYS_gettid);
	handler.copies = _i % 2;
	j->stack = (uintptr_t)&status;
	cow__workers_run(N, N / 2, forks_inside, j);
	for (int i = 0; i < N; i++)
		missing += j->seen[i] == 0;
	if (handler.child < 0) /* no assertions: this is not the test's process */
		_exit(missing ? 3 : 42);
	ck_assert_int_eq(missing, 0);
	must(waitpid(handler.child, &status, 0) == handler.child);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 42);
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
	tcase_add_test(c, threads_are_denied);
	tcase_add_test(c, threads_are_denied_later);
	tcase_add_test(c, threads_are_ended_by_several);
	tcase_add_test(c, a_process_that_wants_to_be_alone);
	tcase_add_test(c, workers_take_no_signals);
	tcase_add_loop_test(c, a_handler_forks_in_the_middle, 0, 4);
#endif
	tcase_add_test(c, nested_runs_are_done_alone);
	tcase_add_test(c, many_callers);
	return run_suite(s);
}

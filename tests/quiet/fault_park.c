/* SPDX-License-Identifier: MIT */
/*
 * The proof of a quiet moment, with each of its calls failing
 *
 * A thread is parked, runs, or is one that the proof knows nothing of. Whatever the kernel
 * denies, a thread that runs is never taken for quiet, the reason is told, and afterwards all
 * is as before: nobody has the floor, and signals are not blocked.
 */
#include "quiet/quiet.h"
#include "tests/support/fault/fault.h"
#include "tests/support/support.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS_MAX = 100 };

/* What the other thread does; ENDLESS has no record, and waits for a word. */
enum state { PARKED, RUNS, UNKNOWN_RUNS, ENDLESS, ALONE };

static atomic_int is_there, over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void no_gate(int sig, void *info, void *context)
{
	(void)sig, (void)info, (void)context;
}

static void runs_until_over(void)
{
	atomic_store(&is_there, 1);
	while (!atomic_load(&over))
		sched_yield();
}

static void *other(void *arg)
{
	enum state state = (enum state)(uintptr_t)arg;
	struct cow__park_call call = { .fenced = true };
	struct cow__park_thread *t = NULL;

	if (state == PARKED || state == RUNS)
		t = cow__park_register((uintptr_t)pthread_self());
	if (state == PARKED)
		cow__park_enter(t, &call);
	if (state == ENDLESS) {
		atomic_store(&is_there, 1);
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	} else {
		runs_until_over();
	}
	if (state == PARKED)
		cow__park_leave(t, true);
	return NULL;
}

/* The kernel's; NULL: only look. */
static uint64_t mask(const uint64_t *set)
{
	uint64_t was = 0;

	ck_assert_int_eq(syscall(SYS_rt_sigprocmask, SIG_SETMASK, set, &was, sizeof(was)), 0);
	return was;
}

/* One proof, after which nothing is left of it. */
static enum cow__busy proof(void)
{
	uint64_t before = mask(NULL);
	enum cow__busy busy = cow__quiet_begin(0, NULL, 0, 0, 0, false);

	if (!busy)
		cow__quiet_end();
	ck_assert_uint_eq(mask(NULL), before);
	ck_assert_uint_eq(cow__park_word & (COW__PARK_FLOOR | COW__PARK_AWAITED), 0);
	return busy;
}

static pthread_t begin(enum state state)
{
	pthread_t thread = pthread_self();

	/* Those of the test's own harness are no gates. */
	for (int sig = 1; sig < 32; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			signal(sig, SIG_DFL);
	cow__park_gates(no_gate, no_gate, 3ull << 31);
	ck_assert_ptr_nonnull(cow__park_register((uintptr_t)pthread_self()));
	atomic_store(&is_there, 0);
	atomic_store(&over, 0);
	pthread_mutex_lock(&lock);
	if (state == ALONE)
		return thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, other, (void *)(uintptr_t)state), 0);
	while (!atomic_load(&is_there))
		sched_yield();
	/* The thread is about to wait. */
	for (int i = 0; state == ENDLESS && proof() != COW__QUIET; i++) {
		ck_assert_int_lt(i, 5000);
		usleep(1000);
	}
	return thread;
}

static void end(enum state state, pthread_t thread)
{
	atomic_store(&over, 1);
	pthread_mutex_unlock(&lock);
	if (state != ALONE)
		pthread_join(thread, NULL);
}

static bool may_be_quiet(enum state state)
{
	return state != RUNS && state != UNKNOWN_RUNS;
}

static const int errors[] = { ENOMEM, EPERM, ENOSYS, EINTR, FAULT_LASTING | EPERM,
	                      FAULT_LASTING | ENOSYS, FAULT_LASTING | EMFILE };

/* One call fails, or all from one on. */
START_TEST(each_call_fails)
{
	enum state state = (enum state)(_i % (ALONE + 1));
	int error = errors[_i / (ALONE + 1)], n;
	pthread_t thread = begin(state);
	const uint64_t none = 0;
	bool fired = true;

	for (n = 1; fired; n++) {
		enum cow__busy busy;

		fault_after(n, error);
		busy = cow__quiet_begin(0, NULL, 0, 0, 0, false);
		fired = fault_disarm();
		ck_assert(busy || may_be_quiet(state));
		if (!busy)
			cow__quiet_end();
		ck_assert_uint_eq(cow__park_word &
		                  (COW__PARK_FLOOR | COW__PARK_AWAITED), 0);
		/* A call that sets the mask back may have been the one. */
		(void)mask(&none);
		ck_assert_int_eq(!proof(), may_be_quiet(state));
		ck_assert_int_lt(n, CALLS_MAX);
	}
	ck_assert_int_gt(n, 2);
	end(state, thread);
}
END_TEST

static const struct denial {
	const char *name;
	long nr;
	int arg;
	long value;
	int error;
	enum cow__busy parked, running, unknown, endless;
} denials[] = {
	{ "membarrier", SYS_membarrier, FAULT_ANY, 0, ENOSYS, COW__QUIET, COW__BUSY_RUNNING,
	  COW__BUSY_BLOCKED, COW__QUIET },
	{ "membarrier", SYS_membarrier, FAULT_ANY, 0, EPERM, COW__QUIET, COW__BUSY_RUNNING,
	  COW__BUSY_BLOCKED, COW__QUIET },
	{ "unshare", SYS_unshare, FAULT_ANY, 0, EPERM, COW__QUIET, COW__BUSY_RUNNING,
	  COW__BUSY_BLOCKED, COW__QUIET },
	{ "unshare", SYS_unshare, FAULT_ANY, 0, ENOSYS, COW__QUIET, COW__BUSY_RUNNING,
	  COW__BUSY_BLOCKED, COW__QUIET },
	{ "/proc/self/task", SYS_newfstatat, FAULT_ANY, 0, ENOENT, COW__QUIET,
	  COW__BUSY_RUNNING, COW__BUSY_UNKNOWN, COW__QUIET },
	{ "the list of tasks", SYS_getdents64, FAULT_ANY, 0, EPERM, COW__QUIET,
	  COW__BUSY_RUNNING, COW__BUSY_BLOCKED, COW__BUSY_BLOCKED },
	{ "schedstat", SYS_openat, FAULT_ANY, 0, EACCES, COW__QUIET, COW__BUSY_RUNNING,
	  COW__BUSY_BLOCKED, COW__BUSY_BLOCKED },
	{ "reading", SYS_read, FAULT_ANY, 0, EPERM, COW__QUIET, COW__BUSY_RUNNING,
	  COW__BUSY_BLOCKED, COW__BUSY_BLOCKED },
	{ "handlers", SYS_rt_sigaction, FAULT_ANY, 0, EPERM, COW__BUSY_HANDLER,
	  COW__BUSY_RUNNING, COW__BUSY_BLOCKED, COW__BUSY_HANDLER },
	{ "masks", SYS_rt_sigprocmask, FAULT_ANY, 0, EPERM, COW__BUSY_RUNNING,
	  COW__BUSY_RUNNING, COW__BUSY_RUNNING, COW__BUSY_RUNNING },
};

START_TEST(denied)
{
	const struct denial *d = &denials[_i / ALONE];
	enum state state = (enum state)(_i % ALONE);
	const enum cow__busy expected[] = { d->parked, d->running, d->unknown, d->endless };
	pthread_t thread = begin(state);
	enum cow__busy busy;

	fault_deny(d->nr, d->arg, d->value, d->error);
	for (int times = 0; times < 3; times++) {
		busy = proof();
		ck_assert_msg(busy == expected[state], "%s, state %d: %d, not %d",
		              d->name, (int)state, (int)busy, (int)expected[state]);
	}
	/* Where threads are parked, some calls are not needed. */
	ck_assert(state != ENDLESS || fault_denials() > 0);
	end(state, thread);
}
END_TEST

/* Without membarrier, the prover believes only calls that began with a fence. */
START_TEST(fences)
{
	struct cow__park_call call = { .fenced = false };
	struct cow__park_thread *t;
	uint32_t parked;

	(void)begin(ALONE);
	fault_deny(SYS_membarrier, FAULT_ANY, 0, _i ? EPERM : ENOSYS);
	t = cow__park_register(1);
	ck_assert_ptr_nonnull(t);
	t->id = 0; /* neither the caller nor one that has ended */
	cow__park_enter(t, &call);
	ck_assert_int_eq(cow__park_begin(0, 0, false, &parked), COW__BUSY_RUNNING);
	ck_assert_uint_eq(cow__park_word, COW__PARK_FENCES);
	call.fenced = true;
	cow__park_enter(t, &call);
	ck_assert_int_eq(cow__park_begin(0, 0, false, &parked), COW__QUIET);
	ck_assert_uint_eq(parked, 1);
	cow__park_end();
	ck_assert_uint_eq(cow__park_word, COW__PARK_FENCES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_park");
	TCase *tcase = add_bare_case(suite, "fault_park");

	if (UNDER_TSAN) {
		puts("skip each_call_fails, denied TSan's own thread is never quiet");
	} else {
		tcase_add_loop_test(tcase, each_call_fails, 0, (int)COUNT(errors) * (ALONE + 1));
		tcase_add_loop_test(tcase, denied, 0, (int)COUNT(denials) * ALONE);
	}
	tcase_add_loop_test(tcase, fences, 0, 2);
	return run_suite(suite);
}

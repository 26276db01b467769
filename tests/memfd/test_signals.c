/* SPDX-License-Identifier: MIT */
/*
 * Sections that block signals: which ones stay open, and who waits for whom
 */
#include "memfd/gate.h"
#include "memfd/signals.h"
#include "quiet/floor.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_int begins, began;

static void gate(int sig, void *info, void *context)
{
	(void)sig, (void)info, (void)context;
}

static void handler(int sig)
{
	(void)sig;
}

static bool blocked(int sig)
{
	sigset_t now;

	must(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	return sigismember(&now, sig) == 1;
}

/* Is SIGCHLD blocked in a section? */
static bool blocks(void)
{
	struct cow__signals s;
	bool r;

	ck_assert(cow__signals_block(&s));
	r = blocked(SIGCHLD);
	ck_assert(blocked(SIGUSR1) && s.open == !blocked(SIGURG));
	cow__signals_restore(&s);
	ck_assert(!blocked(SIGUSR1));
	return r;
}

START_TEST(without_the_shim_all_are_blocked)
{
	ck_assert(blocks());
}
END_TEST

START_TEST(those_that_do_nothing_stay_open)
{
	struct cow__signals outer, inner;

	cow__park_gates(gate, gate, 0);
	ck_assert(!blocks());
	must(signal(SIGCHLD, handler) != SIG_ERR);
	ck_assert(blocks());
	must(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	ck_assert(!blocks());
	/* They nest. */
	ck_assert(cow__signals_block(&outer) && cow__signals_block(&inner));
	cow__signals_restore(&inner);
	ck_assert(!blocked(SIGCHLD) && blocked(SIGUSR1));
	cow__signals_restore(&outer);
	ck_assert(!blocked(SIGUSR1));
}
END_TEST

/* What the program has blocked stays blocked. */
START_TEST(the_mask_of_the_program_stays)
{
	struct cow__signals s;
	sigset_t set;

	cow__park_gates(gate, gate, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	must(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	ck_assert(cow__signals_block(&s));
	ck_assert(blocked(SIGCHLD) && !blocked(SIGURG));
	cow__signals_restore(&s);
	ck_assert(blocked(SIGCHLD) && !blocked(SIGUSR1));
}
END_TEST

START_TEST(all_are_blocked_while_a_handler_is_set)
{
	cow__park_gates(gate, gate, 0);
	cow__signals_handler_begin();
	ck_assert(blocks());
	cow__signals_handler_end();
	ck_assert(!blocks());
	cow__sandboxed = 1;
	ck_assert(blocks());
	cow__sandboxed = 0;
}
END_TEST

static void *sets(void *arg)
{
	atomic_store(&begins, 1);
	cow__signals_handler_begin();
	atomic_store(&began, 1);
	cow__signals_handler_end();
	return arg;
}

/* A new thread of the engine may have signals open until it has run. */
START_TEST(a_handler_waits_for_a_thread_that_starts)
{
	pthread_t thread;

	cow__park_gates(gate, gate, 0);
	cow__signals_thread_starts();
	must(pthread_create(&thread, NULL, sets, NULL) == 0);
	while (!atomic_load(&begins) || !blocks()) /* until it waits */
		continue;
	ck_assert_int_eq(atomic_load(&began), 0);
	cow__signals_thread_fails();
	must(pthread_join(thread, NULL) == 0);
	ck_assert_int_eq(atomic_load(&began), 1);
}
END_TEST

/* A thread that began before a fork counts down what the fork has cleared. */
START_TEST(counts_never_fall_below_none)
{
	struct cow__signals s;

	cow__park_gates(gate, gate, 0);
	cow__signals_thread_starts();
	ck_assert(cow__signals_block(&s));
	cow__signals_child();
	cow__signals_restore(&s);
	cow__signals_thread();
	cow__signals_handler_begin(); /* else it would wait for ever */
	cow__signals_handler_end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("signals");
	TCase *tcase = add_case(suite, "signals");

	tcase_add_test(tcase, without_the_shim_all_are_blocked);
	tcase_add_test(tcase, those_that_do_nothing_stay_open);
	tcase_add_test(tcase, the_mask_of_the_program_stays);
	tcase_add_test(tcase, all_are_blocked_while_a_handler_is_set);
	tcase_add_test(tcase, a_handler_waits_for_a_thread_that_starts);
	tcase_add_test(tcase, counts_never_fall_below_none);
	return run_suite(suite);
}

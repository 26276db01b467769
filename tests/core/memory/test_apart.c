/* SPDX-License-Identifier: MIT */
/*
 * Long kernel calls of a program's thread: other threads need not wait for them
 *
 * A thread is held inside the call. Meanwhile another one allocates, frees and forks.
 */
#include "tests/support/hold.h"

#include "tests/support/support.h"

#include "core/memory/state.h"
#include "quiet/floor.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 16 * MIB, SMALL = 3 * MIB };

static unsigned char *made;
static _Thread_local struct cow__park_thread *own;

static void *make(void *unused)
{
	made = new_block(BLOCK, 0);
	return unused;
}

static struct cow__park_thread *own_record(void)
{
	return own;
}

static void *make_parked(void *unused)
{
	own = cow__park_register((uintptr_t)pthread_self());
	return make(unused);
}

static void *end(void *block)
{
	cow_block_free(block);
	return NULL;
}

/* What other threads do meanwhile. */
static void work(void)
{
	unsigned char *p = new_block(SMALL, 0), *q = new_block(BLOCK, 0);

	fill(p, SMALL, 7);
	fill(q, BLOCK, 8);
	ck_pattern(p, SMALL, 7);
	ck_pattern(q, BLOCK, 8);
	cow_block_free(p);
	cow_block_free(q);
}

static void child_works(void *unused)
{
	(void)unused;
	work();
}

static void hold_thread(pthread_t *thread, void *(*f)(void *), void *arg, long advice)
{
	hold_at(SYS_madvise, advice);
	ck_assert_int_eq(pthread_create(thread, NULL, f, arg), 0);
	ck_assert(wait_until(hold_is_on, NULL, 10));
}

static void join(pthread_t thread)
{
	hold_release();
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* 1: a fork freezes the block meanwhile. */
START_TEST(huge_pages_are_made_without_the_lock)
{
	pthread_t thread;

	ok(cow_option_set("helper", "no"));
	hold_thread(&thread, make, NULL, HOLD_COLLAPSE);
	work();
	if (_i)
		in_child(child_works, NULL);
	join(thread);
	ck_assert(made[0] == 0 && memcmp(made, made + 1, BLOCK - 1) == 0);
	fill(made, BLOCK, 1);
	in_child(child_works, NULL);
	ck_pattern(made, BLOCK, 1);
	cow_block_free(made);
	work();
}
END_TEST

struct old {
	unsigned char *block;
	struct gate go;
};

static void child_reads(void *arg)
{
	struct old *old = arg;

	gate_wait(&old->go);
	ck_pattern(old->block, BLOCK, 1);
	cow_block_free(old->block);
	work();
}

/* It holds copied pages, and its file pages are another process's, too. */
START_TEST(a_frozen_block_is_emptied_without_the_lock)
{
	struct old old = { .block = new_block(BLOCK, 0) };
	unsigned char *p = old.block;
	pthread_t thread;
	pid_t pid;

	ok(cow_option_set("helper", "no"));
	gate_make(&old.go);
	fill(p, BLOCK, 1);
	pid = child_start(child_reads, &old);
	fill(p, BLOCK, 2);
	hold_thread(&thread, end, p, MADV_DONTNEED);
	work();
	in_child(child_works, NULL);
	join(thread);
	work();
	gate_open(&old.go);
	child_finish(pid);
	work();
	gate_free(&old.go);
}
END_TEST

static pid_t parent, forked;
static unsigned char *in_handler; /* the child's */

/* Its pages are copied ones, so emptying them would lose bytes. */
static void forks(int sig)
{
	(void)sig;
	forked = fork();
	if (forked != 0)
		return;
	alarm(60);
	in_handler = new_block(BLOCK, 0);
	fill(in_handler, BLOCK, 5);
	in_child(child_works, NULL);
	fill(in_handler, BLOCK, 6);
}

static void *end_and_go_on(void *block)
{
	cow_block_free(block);
	if (getpid() == parent)
		return NULL;
	ck_pattern(in_handler, BLOCK, 6);
	work();
	cow_block_free(in_handler);
	_exit(0);
}

/* A handler forks in the middle. The child ends the block at once, so the call must not go
 * on there: its memory may serve again. */
START_TEST(a_handler_forks_meanwhile)
{
	struct old old = { .block = new_block(BLOCK, 0) };
	unsigned char *p = old.block;
	pthread_t thread;
	pid_t pid;
	int status;

	ok(cow_option_set("helper", "no"));
	parent = getpid();
	ck_assert(signal(SIGUSR1, forks) != SIG_ERR);
	gate_make(&old.go);
	fill(p, BLOCK, 1);
	pid = child_start(child_reads, &old);
	fill(p, BLOCK, 2);
	hold_thread(&thread, end_and_go_on, p, MADV_DONTNEED);
	ck_assert_int_eq(pthread_kill(thread, SIGUSR1), 0);
	join(thread);
	ck_assert_int_gt(forked, 0);
	ck_assert_int_eq(waitpid(forked, &status, 0), forked);
	ck_assert_int_eq(status, 0);
	work();
	gate_open(&old.go);
	child_finish(pid);
	gate_free(&old.go);
}
END_TEST

static void no_gate(int sig, void *info, void *context)
{
	(void)sig, (void)info, (void)context;
}

START_TEST(memory_thaws_meanwhile)
{
	unsigned char *p = new_block(BLOCK, 0);
	pthread_t thread;

	ok(cow_option_set("helper", "no"));
	/* Those of the test's own harness are no gates. */
	for (int sig = 1; sig < 32; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			signal(sig, SIG_DFL);
	cow__park_gates(no_gate, no_gate, 3ull << 31);
	cow__park_records(own_record);
	own = cow__park_register((uintptr_t)pthread_self());
	fill(p, BLOCK, 1);
	hold_thread(&thread, make_parked, NULL, HOLD_COLLAPSE);
	in_child(child_works, NULL);
	ck_assert_uint_gt(cow__engine.frozen, 0);
	fill(p, BLOCK / 2, 3);
	(void)cow_trim();
	ck_assert_uint_eq(cow__engine.frozen, 0);
	ck_pattern(p, BLOCK / 2, 3);
	join(thread);
	fill(made, BLOCK, 2);
	ck_pattern(made, BLOCK, 2);
	cow_block_free(made);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("apart");
	TCase *tcase = add_case(suite, "apart");

	tcase_add_test(tcase, a_frozen_block_is_emptied_without_the_lock);
	tcase_add_test(tcase, a_handler_forks_meanwhile);
	if (hold_collapses()) {
		tcase_add_loop_test(tcase, huge_pages_are_made_without_the_lock, 0, 2);
		tcase_add_test(tcase, memory_thaws_meanwhile);
	} else {
		puts("skip huge_pages_are_made_without_the_lock the kernel refuses MADV_COLLAPSE");
		puts("skip memory_thaws_meanwhile the kernel refuses MADV_COLLAPSE");
	}
	return run_suite(suite);
}

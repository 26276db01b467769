/* SPDX-License-Identifier: MIT */
/*
 * What another thread does in the middle of a call of the library
 *
 * A test puts a function of its own in the place of one of the driver's; in it
 * meanwhile_begin() runs something in a second thread and returns when that has ended, or
 * waits for a lock, and then the first thread goes on. meanwhile_end() joins it.
 *
 * Who sleeps for another reason is taken to wait for a lock. Then the test sees less than
 * it could, and is right all the same.
 */
#ifndef TESTS_SUPPORT_MEANWHILE_H
#define TESTS_SUPPORT_MEANWHILE_H

#include "tests/support/driver.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	void (*act)(void);
	pthread_t thread;
	int tid, ended, begun;
} meanwhile;

static void *meanwhile_run(void *arg)
{
	(void)arg;
	__atomic_store_n(&meanwhile.tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	meanwhile.act();
	__atomic_store_n(&meanwhile.ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static bool meanwhile_sleeps(void)
{
	int tid = __atomic_load_n(&meanwhile.tid, __ATOMIC_ACQUIRE);

	return tid && thread_sleeps(tid);
}

/* Once: later calls do nothing. */
static inline void meanwhile_begin(void (*act)(void))
{
	if (meanwhile.begun)
		return;
	meanwhile.begun = 1;
	meanwhile.act = act;
	must(pthread_create(&meanwhile.thread, NULL, meanwhile_run, NULL) == 0);
	while (!__atomic_load_n(&meanwhile.ended, __ATOMIC_ACQUIRE) && !meanwhile_sleeps())
		sched_yield();
}

/* It did begin, and has ended. */
static inline void meanwhile_end(void)
{
	must(meanwhile.begun);
	must(pthread_join(meanwhile.thread, NULL) == 0);
}

/* The table of the driver's calls, to put something in it. */
static inline struct cow__cu *meanwhile_table(void)
{
	return (struct cow__cu *)(uintptr_t)cu;
}

#endif

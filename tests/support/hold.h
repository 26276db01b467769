/* SPDX-License-Identifier: MIT */
/*
 * Holding the helper inside a system call
 *
 * What may happen while the helper works without the lock happens seldom by
 * itself. A program that includes this (once, first of all) puts a gate of its
 * own in the place of the library's; there hold_at() makes the helper stop
 * before its next call of that kind, until hold_release().
 */
#ifndef COWSHED_TESTS_HOLD_H
#define COWSHED_TESTS_HOLD_H

#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "core/memory/helper.h"
#include "core/memory/state.h"

#include <cowshed.h>
#include <errno.h>
#include <stdbool.h>

#define HOLD_ADVICE_ANY (-1L)
#define HOLD_COLLAPSE 25L /* MADV_COLLAPSE */

static long hold_nr, hold_advice, hold_main_tid;
static long hold_bytes;  /* 0, or only those of so many bytes */
static int hold_state;   /* 1: hold it; 2: it is held */
static int hold_no_huge; /* nobody gets huge pages */

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	int one = 1;

	if (nr == SYS_madvise && c == HOLD_COLLAPSE &&
	    __atomic_load_n(&hold_no_huge, __ATOMIC_ACQUIRE))
		return -EBUSY;
	if (nr == hold_nr &&
	    (hold_advice == HOLD_ADVICE_ANY || c == hold_advice) &&
	    (!hold_bytes || b == hold_bytes) &&
	    real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0) != hold_main_tid &&
	    __atomic_compare_exchange_n(&hold_state, &one, 2, false,
	                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&hold_state, __ATOMIC_ACQUIRE) == 2)
			real_gate(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	return real_gate(nr, a, b, c, d, e, f);
}

static void hold_at(long nr, long advice)
{
	hold_main_tid = real_gate(SYS_gettid, 0, 0, 0, 0, 0, 0);
	hold_nr = nr;
	hold_advice = advice;
	__atomic_store_n(&hold_state, 1, __ATOMIC_RELEASE);
}

/* For wait_until(). */
static bool hold_is_on(void *arg)
{
	(void)arg;
	return __atomic_load_n(&hold_state, __ATOMIC_ACQUIRE) == 2;
}

/* The same. Where it has no huge pages to make, the helper ends before there is other work. */
static inline bool hold_is_on_if_asked(void *arg)
{
	cow__engine_lock();
	cow__helper_want(true);
	cow__engine_unlock();
	return hold_is_on(arg);
}

static void hold_release(void)
{
	__atomic_store_n(&hold_state, 0, __ATOMIC_RELEASE);
}

/* False where nobody asks for huge pages, as without MADV_COLLAPSE (Linux 6.1). */
static inline bool hold_collapses(void)
{
	return cow_feature_probe(COW_FEATURE_COLLAPSE, NULL, NULL) == 1;
}

/* The same; and what the helper was about to do has been done. */
static inline void hold_finish(void)
{
	hold_release();
	cow__helper_suspend();
	cow__helper_resume();
}

#endif

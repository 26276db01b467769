/* SPDX-License-Identifier: MIT */
/*
 * The helper thread: see the header. memfd/thread.h says what it must not do: no
 * thread-local data (so no cow_last_error()), no libc.
 */
#include "core/memory/helper.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/descriptor.h"
#include "memfd/forked.h"
#include "memfd/pagemap.h"
#include "memfd/process.h"
#include "memfd/signals.h"
#include "memfd/thread.h"
#include "memfd/wait.h"
#include "memfd/watch.h"

static struct cow__thread thread COW_FORK_DATA;
static bool running COW_FORK_DATA;
static unsigned suspended COW_FORK_DATA; /* so many callers want to be the only thread */
static bool retired; /* this one is to end; written also by signal handlers */
static uint32_t bell; /* futex: changes when there is news */
static bool rung COW_FORK_DATA;     /* ... that the helper has not seen yet */
static bool wanted;   /* asked for since its round began: another round follows */

static void
ring_helper(void)
{
	rung = true;
	__atomic_fetch_add(&bell, 1, __ATOMIC_RELAXED);
	cow__wake(&bell);
}

/* The shortest sleep that a job asks for. */
static uint64_t
run_jobs(void)
{
	uint64_t now = cow__now(), sleep = UINT64_MAX;

	for (cow__job_fn *const *job = cow__hooks.jobs; *job && sleep; job++)
		sleep = cow__min(sleep, (*job)(now));
	return sleep;
}

void
cow__helper_lock(void)
{
	uint32_t nothing = 0;

	for (int i = 0; i < COW__HELPER_LOCK_TRIES; i++) {
		if (cow__mutex_try_lock(&cow__engine.lock))
			return;
		cow__wait(&nothing, 0, COW__HELPER_LOCK_NS);
	}
	cow__engine_lock();
}

/* The program may have closed them. */
static void
keep_descriptors(void)
{
	cow__pagemap_keep();
	if (cow__engine.frozen)
		cow__watch_keep();
}

COW_FORK_CODE static void
forget_descriptors(void)
{
	cow__pagemap_forget();
	cow__watch_forget();
}

static void
helper_main(void)
{
	cow__signals_thread();
	cow__engine_lock();
	cow__pagemap_read_kept();
	while (!cow__helper_suspended() &&
	       !__atomic_load_n(&retired, __ATOMIC_RELAXED)) {
		uint32_t heard = __atomic_load_n(&bell, __ATOMIC_RELAXED);
		uint64_t sleep;

		rung = wanted = false;
		sleep = run_jobs();
		if (sleep == 0 || (sleep == UINT64_MAX && wanted))
			continue;
		if (sleep == UINT64_MAX)
			break;
		cow__engine_unlock();
		cow__wait(&bell, heard, sleep);
		cow__helper_lock();
	}
	running = false;
	forget_descriptors();
	cow__engine_unlock();
}

void
cow__helper_want(bool wake)
{
	wanted = true;
	if (running && !wake)
		return;
	/* A child of vfork() uses this memory, but its threads and descriptors
	 * end with it. */
	if (cow__engine.process && cow__engine.process != cow__process_id())
		return;
	if (running) {
		keep_descriptors();
		if (!rung)
			ring_helper();
		return;
	}
	if (!cow__engine.use_helper || cow__helper_suspended())
		return;
	/* The last helper may still be on its stack, about to end. */
	cow__thread_join(&thread);
	keep_descriptors();
	cow__descriptor_helper(&thread);
	running = true;
	__atomic_store_n(&retired, false, __ATOMIC_RELAXED);
	if (cow__thread_start(&thread, helper_main) < 0) {
		running = false;
		forget_descriptors();
		cow__engine.use_helper = false;
		cow__fallback(COW_FALLBACK_THREAD);
		return;
	}
	cow__stat_add(helper_starts, 1);
}

uint32_t
cow__helper_id(void)
{
	return __atomic_load_n(&thread.tid, __ATOMIC_ACQUIRE);
}

COW_FORK_CODE void
cow__helper_child(void)
{
	running = rung = false;
	forget_descriptors(); /* it shows the parent */
	thread.tid = thread.last = 0;
	__atomic_store_n(&suspended, 0, __ATOMIC_RELAXED);
}

bool
cow__helper_suspended(void)
{
	/* Sequentially consistent, as in cow__helper_suspend(): see
	 * core/memory/workers.c. */
	return __atomic_load_n(&suspended, __ATOMIC_SEQ_CST) != 0;
}

void
cow__helper_suspend(void)
{
	__atomic_add_fetch(&suspended, 1, __ATOMIC_SEQ_CST);
	cow__engine_lock();
	if (running)
		ring_helper();
	cow__engine_unlock();
	/* This may be a handler. The helper may sleep for a mutex that is free. */
	cow__mutex_wake(&cow__engine.lock);
	cow__pools_wake();
	cow__thread_join(&thread);
	cow__thread_left(&thread);
}

bool
cow__helper_suspend_signal(void)
{
	if (!cow__engine.process || cow__engine.process != cow__process_id())
		return false;
	if (!cow__mutex_is_mine(&cow__engine.lock) && !cow__pools_mine()) {
		cow__helper_suspend();
		return true;
	}
	__atomic_add_fetch(&suspended, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&retired, true, __ATOMIC_RELAXED);
	__atomic_fetch_add(&bell, 1, __ATOMIC_RELAXED);
	cow__wake(&bell);
	return true;
}

COW_EXPORT void
cow__helper_resume(void)
{
	unsigned n = __atomic_load_n(&suspended, __ATOMIC_RELAXED);

	/* No lock: the caller may have forbidden itself all system calls. If the
	 * count is 0, this is a child that was forked in between. */
	while (n && !__atomic_compare_exchange_n(&suspended, &n, n - 1, 0,
	                                         __ATOMIC_RELEASE,
	                                         __ATOMIC_RELAXED))
		;
}

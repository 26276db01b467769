/* SPDX-License-Identifier: MIT */
/*
 * Threads that copy: see the header.
 *
 * The gate is one word: open, how many may come in, how many are in.
 *
 *      caller                              worker
 *      owned: 0 -> 1, or works alone
 *      job = ...; gate = open | limit
 *      bell++, wake              ------>   gate: count + 1, if open and below limit
 *      claims ranges of the job            claims ranges of the job
 *      gate: closed                        gate: count - 1; the last one wakes the
 *      waits until count == 0   <------    caller
 *      owned: 0
 *
 * So the caller never waits for a worker that did not come yet. On a busy machine
 * the caller has done all the work by then, and the worker finds the gate closed.
 *
 * The pool lies in a page that the kernel wipes in a forked child, and the stacks
 * are not inherited. So a child starts without a pool, whatever its parent was
 * doing.
 */
#include "core/memory/workers.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/memory/helper.h"
#include "core/policy/constants.h"
#include "cowshed.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/signals.h"
#include "memfd/thread.h"
#include "memfd/wait.h"

#define WIPEONFORK 18

#define OPEN ((uint32_t)1 << 31)
#define LIMIT_SHIFT 16
#define COUNT ((uint32_t)0xffff)

struct job {
	void (*part)(void *arg, int64_t first, int64_t last);
	void *arg;
	int64_t n, piece, next;
};

struct pool {
	uint32_t owned; /* by this thread; 0: by none */
	uint32_t quit;  /* all are to end */
	uint32_t gate; /* futex */
	uint32_t bell; /* futex */
	uint32_t asleep;
	struct job *job; /* of the owner, until it gives the pool back; else NULL */
	uint64_t denied; /* when threads were denied; 0: they were not */
	struct cow__thread threads[COW__WORKERS_MOST];
};

static struct pool *pool; /* NULL: not made yet */
static int32_t asked;     /* cow_threads_set() */
static int32_t processors;

static void
spin_once(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void
do_ranges(struct job *job)
{
	int64_t at;

	/* NULL: a signal handler forked just before the gate was opened. */
	while (job && (at = __atomic_fetch_add(&job->next, job->piece,
	                                       __ATOMIC_RELAXED)) < job->n)
		job->part(job->arg, at,
		          job->n - at < job->piece ? job->n : at + job->piece);
}

static bool
gate_enter(struct pool *p)
{
	uint32_t gate = __atomic_load_n(&p->gate, __ATOMIC_RELAXED);

	while ((gate & OPEN) &&
	       (gate & COUNT) < ((gate & ~OPEN) >> LIMIT_SHIFT))
		/* Pairs with the owner's release: its job is there to be read. */
		if (__atomic_compare_exchange_n(&p->gate, &gate, gate + 1, 1,
		                                __ATOMIC_ACQUIRE,
		                                __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Pairs with the owner's acquire: what was copied is there. */
static void
gate_leave(struct pool *p)
{
	uint32_t gate = __atomic_sub_fetch(&p->gate, 1, __ATOMIC_RELEASE);

	if (!(gate & OPEN) && !(gate & COUNT))
		cow__wake(&p->gate);
}

static void
worker_main(void)
{
	struct pool *p = pool;
	uint64_t since;

	cow__signals_thread();
	since = cow__now();
	for (;;) {
		uint32_t heard = __atomic_load_n(&p->bell, __ATOMIC_SEQ_CST);

		if (gate_enter(p)) {
			do_ranges(p->job);
			gate_leave(p);
			since = cow__now();
		}
		if (__atomic_load_n(&p->quit, __ATOMIC_SEQ_CST) ||
		    cow__elapsed(since, cow__now()) > COW__WORKERS_IDLE_NS)
			return;
		__atomic_add_fetch(&p->asleep, 1, __ATOMIC_SEQ_CST);
		cow__wait(&p->bell, heard, COW__WORKERS_IDLE_NS);
		__atomic_sub_fetch(&p->asleep, 1, __ATOMIC_SEQ_CST);
	}
}

/* A thread that is about to end counts as one that is there. The next job makes
 * another one. */
static void
pool_start_threads(struct pool *p, int count)
{
	for (int i = 0; i < count; i++) {
		struct cow__thread *t = &p->threads[i];
		bool fresh = !t->memory;

		if (__atomic_load_n(&t->tid, __ATOMIC_ACQUIRE))
			continue;
		cow__thread_join(t);
		if (cow__thread_start(t, worker_main) < 0) {
			__atomic_store_n(&p->denied, cow__now(),
			                 __ATOMIC_RELAXED);
			return;
		}
		__atomic_store_n(&p->denied, 0, __ATOMIC_RELAXED);
		if (fresh && t->memory)
			cow__thread_not_inherited(t);
	}
}

static struct pool *
pool_get(void)
{
	static bool failed;
	struct pool *p = __atomic_load_n(&pool, __ATOMIC_ACQUIRE), *other = NULL;
	void *memory;
	size_t bytes = cow__round_up(sizeof(*p), 64 * KIB); /* any page */

	if (p || __atomic_load_n(&failed, __ATOMIC_RELAXED))
		return p;
	if (cow__map_meta(bytes, &memory) < 0)
		return NULL;
	if (cow__map_advise((uintptr_t)memory, bytes, WIPEONFORK) < 0) {
		__atomic_store_n(&failed, true, __ATOMIC_RELAXED);
		(void)cow__map_release((uintptr_t)memory, bytes);
		return NULL;
	}
	if (__atomic_compare_exchange_n(&pool, &other, memory, 0,
	                                __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
		return memory;
	(void)cow__map_release((uintptr_t)memory, bytes);
	return other;
}

COW_EXPORT int
cow__workers(void)
{
	int32_t n = __atomic_load_n(&asked, __ATOMIC_RELAXED);

	if (n <= 0)
		n = __atomic_load_n(&processors, __ATOMIC_RELAXED);
	if (n <= 0) {
		n = cow__process_processors();
		__atomic_store_n(&processors, n, __ATOMIC_RELAXED);
	}
	return n > COW__WORKERS_MOST + 1 ? COW__WORKERS_MOST + 1 : n;
}

static uint32_t
self_id(void)
{
	uint32_t high = (uint32_t)(cow__mutex_self() >> 32);

	return high ? high : 1;
}

static bool
pool_own(struct pool *p)
{
	uint32_t nobody = 0;

	return __atomic_compare_exchange_n(&p->owned, &nobody, self_id(), 0,
	                                   __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static void
pool_disown(struct pool *p)
{
	__atomic_store_n(&p->owned, 0, __ATOMIC_RELEASE);
}

/* The pool is the caller's. */
static void
pool_end_threads(struct pool *p)
{
	for (int i = 0; i < COW__WORKERS_MOST; i++) {
		cow__thread_join(&p->threads[i]);
		cow__thread_left(&p->threads[i]);
	}
	__atomic_store_n(&p->quit, 0, __ATOMIC_SEQ_CST);
}

/* Suspending threads sets `suspended` first, and looks at the pool then. Here the
 * order is the opposite. So at least one of both sees the other. */
static bool
pool_own_to_run(struct pool *p)
{
	if (!pool_own(p))
		return false;
	if (cow__helper_suspended()) {
		pool_disown(p);
		return false;
	}
	if (__atomic_load_n(&p->quit, __ATOMIC_RELAXED))
		pool_end_threads(p); /* a signal handler wanted it */
	return true;
}

/* False: this is a child that a signal handler forked in the middle of a job.
 * Nobody does the ranges that the parent's threads had taken. The pool was wiped,
 * and may have had other jobs since. */
static bool
pool_run(struct pool *p, struct job *job, int helpers)
{
	uint32_t gate;
	bool whole;

	p->job = job;
	__atomic_store_n(&p->gate, OPEN | (uint32_t)helpers << LIMIT_SHIFT,
	                 __ATOMIC_RELEASE);
	pool_start_threads(p, helpers);
	__atomic_add_fetch(&p->bell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&p->asleep, __ATOMIC_SEQ_CST))
		cow__wake_some(&p->bell, (uint32_t)helpers);
	do_ranges(job);
	gate = __atomic_and_fetch(&p->gate, COUNT, __ATOMIC_ACQUIRE);
	for (int i = 0; gate && i < COW__WORKERS_SPINS; i++) {
		spin_once();
		gate = __atomic_load_n(&p->gate, __ATOMIC_ACQUIRE);
	}
	while (gate) {
		cow__wait(&p->gate, gate, 0);
		gate = __atomic_load_n(&p->gate, __ATOMIC_ACQUIRE);
	}
	whole = p->job == job;
	p->job = NULL;
	return whole;
}

/* Were threads denied so recently that asking again is not worth a system
 * call? */
static bool
pool_is_denied(struct pool *p)
{
	uint64_t since = __atomic_load_n(&p->denied, __ATOMIC_RELAXED);

	return since && cow__elapsed(since, cow__now()) < COW__WORKERS_RETRY_NS;
}

COW_EXPORT void
cow__workers_run(int64_t n, int64_t grain,
                 void (*part)(void *arg, int64_t first, int64_t last),
                 void *arg)
{
	struct job job = { part, arg, n, grain, 0 };
	int64_t ranges = n / (grain > 0 ? grain : 1);
	int threads = ranges > 1 ? cow__workers() : 1;
	struct pool *p = threads > 1 ? pool_get() : NULL;
	bool whole;

	if (threads > ranges)
		threads = (int)ranges;
	if (n <= 0)
		return;
	if (!p || pool_is_denied(p) || !pool_own_to_run(p)) {
		part(arg, 0, n);
		return;
	}
	job.piece = n / ((int64_t)threads * COW__WORKERS_PARTS);
	if (job.piece < grain)
		job.piece = grain;
	whole = pool_run(p, &job, threads - 1);
	pool_disown(p);
	if (!whole)
		part(arg, 0, n);
}

COW_EXPORT int
cow_threads_set(int threads)
{
	if (threads < 0)
		return cow__error(-EINVAL, "cow_threads_set: a negative number of threads");
	__atomic_store_n(&asked, threads, __ATOMIC_RELAXED);
	__atomic_store_n(&processors, 0, __ATOMIC_RELAXED);
	return 0;
}

/* In a signal handler that interrupted a copy of this thread, the others end when
 * that copy is done. The handler does not wait for them. */
static void
workers_end(void)
{
	struct pool *p = __atomic_load_n(&pool, __ATOMIC_SEQ_CST);
	bool mine = false;

	if (!p)
		return;
	while (!mine && !pool_own(p)) {
		uint32_t owner = __atomic_load_n(&p->owned, __ATOMIC_RELAXED);

		mine = cow__mutex_self() && owner == self_id();
		if (!mine && owner)
			cow__wait(&p->owned, owner, COW__WORKERS_GLANCE_NS);
	}
	__atomic_store_n(&p->quit, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&p->bell, 1, __ATOMIC_SEQ_CST);
	cow__wake_some(&p->bell, COW__WORKERS_MOST);
	if (mine)
		return;
	pool_end_threads(p);
	pool_disown(p);
}

COW_EXPORT void
cow_threads_end(void)
{
	cow__helper_suspend();
	cow__helper_resume();
	workers_end();
}

COW_EXPORT bool
cow__threads_suspend(void)
{
	if (!cow__helper_suspend_signal())
		return false;
	workers_end();
	return true;
}

COW_EXPORT bool
cow__threads_none(void)
{
	struct pool *p = __atomic_load_n(&pool, __ATOMIC_ACQUIRE);

	if (cow__helper_id())
		return false;
	for (int i = 0; p && i < COW__WORKERS_MOST; i++)
		if (__atomic_load_n(&p->threads[i].tid, __ATOMIC_RELAXED))
			return false;
	return true;
}

COW_EXPORT int
cow_threads_get(void)
{
	return cow__workers();
}

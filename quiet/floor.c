/* SPDX-License-Identifier: MIT */
/*
 * The floor: see the header.
 */
#include "quiet/floor.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/gate.h"
#include "memfd/sys.h"
#include "memfd/wait.h"
#include "quiet/stop.h"

#define SIGNALS 64
#define MEMBARRIER_PRIVATE 8   /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */
#define MEMBARRIER_REGISTER 16 /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED */

static void (*gates[2])(int, void *, void *);
static uint64_t exempt;

COW_EXPORT void
cow__park_shared(void)
{
	__atomic_store_n(&cow__park_state.shared, true, __ATOMIC_SEQ_CST);
}

COW_EXPORT void
cow__park_gates(void (*a)(int, void *, void *), void (*b)(int, void *, void *),
                uint64_t exempted)
{
	gates[0] = a;
	gates[1] = b;
	exempt = exempted;
	cow__signals_setters_tell();
	/* Now, while there is one thread: later the kernel would wait for all
	 * processors. Where it is denied, a thread that parks now for long must have
	 * made its fence. */
	if (SYS3(SYS_membarrier, MEMBARRIER_REGISTER, 0, 0) < 0)
		__atomic_fetch_or(&cow__park_word, COW__PARK_FENCES,
		                  __ATOMIC_SEQ_CST);
}

bool
cow__park_used(void)
{
	return gates[0] != NULL;
}

bool
cow__park_running(void)
{
	uint32_t self = (uint32_t)sys_gettid();

	for (struct cow__park_thread *t = cow__park_threads(); t; t = t->next)
		if (__atomic_load_n(&t->in_use, __ATOMIC_RELAXED) &&
		    !__atomic_load_n(&t->now, __ATOMIC_RELAXED) &&
		    t->id != self && !cow__park_has_ended(t->id))
			return true;
	return false;
}

/* Makes every running thread pass a fence. False: threads make their own. */
static bool
fence_all(void)
{
	if (__atomic_load_n(&cow__park_word, __ATOMIC_RELAXED) & COW__PARK_FENCES)
		return false;
	if (SYS3(SYS_membarrier, MEMBARRIER_PRIVATE, 0, 0) == 0)
		return true;
	if (SYS3(SYS_membarrier, MEMBARRIER_REGISTER, 0, 0) == 0 &&
	    SYS3(SYS_membarrier, MEMBARRIER_PRIVATE, 0, 0) == 0)
		return true;
	__atomic_fetch_or(&cow__park_word, COW__PARK_FENCES, __ATOMIC_SEQ_CST);
	return false;
}

struct found {
	uint32_t parked, running, unknown;
	uint32_t busy; /* parked in a call of our own */
};

/* Is the thread parked? Removes the record of one that has ended. */
static enum cow__busy
check_thread(struct cow__park_thread *t, bool fenced, struct found *found)
{
	uintptr_t now = __atomic_load_n(&t->now, __ATOMIC_ACQUIRE);

	if (t->cancelled) {
		t->in_use = !cow__park_has_ended(t->id);
		return t->in_use ? COW__BUSY_CANCEL : COW__QUIET;
	}
	if (!now) {
		t->in_use = !cow__park_has_ended(t->id);
		found->running += t->in_use;
	} else if (!fenced && !(now & 1)) {
		return COW__BUSY_RUNNING;
	} else if (cow__park_counts(t)) {
		found->parked++;
		found->busy += (now & ~1ul) == (uintptr_t)&cow__park_library;
	} else {
		found->unknown++;
	}
	return COW__QUIET;
}

bool
cow__park_gated(void)
{
	for (int sig = 1; sig <= SIGNALS; sig++) {
		struct cow__kernel_action a;

		if (exempt >> (sig - 1) & 1)
			continue;
		if (sys_rt_sigaction(sig, NULL, &a) < 0)
			return false;
		if ((uintptr_t)a.handler > 1 && a.handler != gates[0] &&
		    a.handler != gates[1] && !cow__stop_is_handler(a.handler))
			return false;
	}
	return true;
}

static struct cow__signals old_mask COW_FORK_DATA;
static uint32_t stopped COW_FORK_DATA; /* so many cow__park_threads(), for this floor */
static uint32_t kept COW_FORK_DATA; /* ... or are in a call of our own */

static enum cow__busy
look_at_all(uint32_t self, struct found *found)
{
	enum cow__busy busy = COW__QUIET;
	bool fenced = fence_all();

	for (struct cow__park_thread *t = cow__park_threads(); t && !busy; t = t->next)
		if (t->in_use && t->id != self)
			busy = check_thread(t, fenced, found);
	return busy;
}

enum cow__busy
cow__park_begin(uint64_t stop_ns, uint64_t others, bool sleepers,
                uint32_t *ret_parked)
{
	uint32_t self = (uint32_t)sys_gettid();
	struct found found = { 0, 0, 0, 0 };
	enum cow__busy busy;

	if (__atomic_load_n(&cow__park_state.shared, __ATOMIC_SEQ_CST))
		return COW__BUSY_PROCESS;
	/* Held until the end: no thread gets a record, none is cancelled. */
	cow__park_lock(&old_mask);
	if (__atomic_load_n(&cow__sandboxed, __ATOMIC_RELAXED)) {
		cow__park_unlock(&old_mask);
		return COW__BUSY_RUNNING;
	}
	stopped = 0;
	__atomic_store_n(&cow__park_state.owner, (int32_t)sys_getpid(), __ATOMIC_RELAXED);
	__atomic_fetch_or(&cow__park_word, COW__PARK_FLOOR, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	busy = look_at_all(self, &found);
	/* With a thread of which nothing is known, stops would be in vain. */
	if (!busy && found.running &&
	    found.parked + found.running + found.unknown != others)
		stop_ns = 0;
	if (!busy && found.running && stop_ns)
		busy = cow__stop_all(cow__park_threads(), self, stop_ns, &stopped);
	else if (!busy && found.running && !sleepers)
		busy = COW__BUSY_RUNNING;
	*ret_parked = found.parked + stopped;
	kept = found.busy;
	if (busy)
		cow__park_end();
	return busy;
}

void
cow__park_end(void)
{
	const uint32_t both = COW__PARK_FLOOR | COW__PARK_AWAITED;
	uint32_t was = __atomic_fetch_and(&cow__park_word, ~both,
	                                  __ATOMIC_SEQ_CST);

	if ((was & COW__PARK_AWAITED) || (was & COW__PARK_STOPS))
		cow__wake(&cow__park_word);
	cow__park_unlock(&old_mask);
}

bool
cow__park_stopped(void)
{
	return stopped + kept != 0;
}

bool
cow__park_uncancelled(bool all_have_records)
{
	if (all_have_records)
		cow__park_state.cancelled_unknown = false;
	return !cow__park_state.cancelled_unknown;
}

/* SPDX-License-Identifier: MIT */
/*
 * The engine's state: see the header.
 */
#include "core/memory/state.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "core/base/settings.h"
#include "core/base/stats.h"
#include "core/memory/check.h"
#include "core/memory/helper.h"
#include "core/memory/slots.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/process.h"
#include "memfd/wait.h"
#include "quiet/quiet.h"
#include "quiet/stop.h"

struct cow__engine cow__engine = {
	.use_helper = true,
	.use_collapse = true,
	.decay_ns = 1000000000u,
	.warm_max = SIZE_MAX,
	.window_bytes = 8192 * GIB,
	.heal_percent = 3,
};

COW_FORK_CODE COW_EXPORT void
cow__engine_lock(void)
{
	cow__mutex_lock(&cow__engine.lock);
}

COW_FORK_CODE COW_EXPORT void
cow__engine_unlock(void)
{
	cow__slots_settle();
	cow__check();
	cow__mutex_unlock(&cow__engine.lock);
}

bool
cow__engine_lock_within(uint64_t ns)
{
	uint64_t until = cow__now() + ns;

	while (!cow__mutex_try_lock(&cow__engine.lock)) {
		if (cow__mutex_is_mine(&cow__engine.lock) ||
		    cow__now() > until)
			return false;
		cow__mutex_want(&cow__engine.lock);
		cow__yield();
	}
	return true;
}

bool
cow__engine_lock_in_handler(void)
{
	return !cow__pools_mine() && cow__engine_lock_within(COW__HANDLER_LOCK_NS);
}

int
cow__engine_enter(void)
{
	cow__engine_lock();
	if (cow__likely(cow__engine.ready)) {
		if (cow__unlikely(!cow__stats_published()))
			cow__stats_publish(cow__settings_publish);
		return 0;
	}
	if (!cow__engine.failed)
		cow__engine.failed = cow__hooks.start();
	if (!cow__engine.failed)
		return 0;
	cow__engine_unlock();
	return cow__engine.failed;
}

void
cow__engine_tick(void)
{
	if (!cow__engine.retired)
		cow__hooks.tick();
}

bool
cow__mappings_left(size_t n)
{
	if (cow__engine.mappings + n < cow__engine.mappings_max)
		return true;
	cow__fallback(COW_FALLBACK_MAPPINGS);
	return false;
}

static uint64_t sleepers_at; /* the next look for threads that sleep past libc */

bool
cow__engine_sleepers_due(uint64_t now)
{
	return now >= sleepers_at;
}

/* vfork's child does not find its parent's threads in its own list of threads. */
bool
cow__engine_quiet(uint64_t stop_ns)
{
	static const enum cow_fallback reasons[COW__BUSY_REASONS] = {
		[COW__BUSY_RUNNING] = COW_FALLBACK_BUSY,
		[COW__BUSY_BLOCKED] = COW_FALLBACK_BLOCKED,
		[COW__BUSY_HANDLER] = COW_FALLBACK_HANDLER,
		[COW__BUSY_STACK] = COW_FALLBACK_STACK,
		[COW__BUSY_CANCEL] = COW_FALLBACK_CANCEL,
		[COW__BUSY_PROCESS] = COW_FALLBACK_PROCESS,
		[COW__BUSY_UNKNOWN] = COW_FALLBACK_PAGEMAP,
	};
	uint64_t now = cow__now();
	bool sleepers = cow__engine_sleepers_due(now);
	enum cow__busy busy;

	if (cow__engine.retired || cow__engine.process != cow__process_id())
		return false;
	busy = cow__quiet_begin(cow__helper_id(), &cow__engine.lock,
	                        cow__engine.start, cow__engine.end,
	                        cow__stop_used() ? stop_ns : 0, sleepers);
	/* The look may have been in vain. Then it is too dear to be made each time. */
	if (sleepers && busy)
		sleepers_at = now + COW__SLEEPERS_NS;
	/* A thread was stopped with a lock that the caller may want. */
	if (!busy && cow__quiet_stopped() && !cow__pools_idle()) {
		cow__quiet_end();
		busy = COW__BUSY_RUNNING;
	}
	if (busy)
		cow__fallback(reasons[busy]);
	return !busy;
}

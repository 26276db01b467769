/* SPDX-License-Identifier: MIT */
/*
 * Quiet moments of the engine: see the header.
 */
#include "core/memory/quiet_window.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/process.h"
#include "memfd/wait.h"
#include "quiet/quiet.h"
#include "quiet/stop.h"

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

/* SPDX-License-Identifier: MIT */
/*
 * The engine: its start, its regular work, and the hooks of all folders
 *
 * There is one engine in a process. It starts at the first allocation, before or
 * after constructors, in any thread. Where the machine or a limit does not allow
 * the window the engine has failed: every allocation returns an error, and the
 * shim passes them all on.
 */
#include "core/base/base.h"
#include "core/base/settings.h"
#include "core/base/stats.h"
#include "core/cow/forward.h"
#include "core/cow/heal.h"
#include "core/cow/old_tables.h"
#include "core/cow/shadow.h"
#include "core/fork/feedback.h"
#include "core/fork/fork.h"
#include "core/memory/commit.h"
#include "core/memory/decay.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/holders.h"
#include "core/memory/resident.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "core/memory/window.h"
#include "core/policy/constants.h"
#include "core/storage/moment.h"
#include "memfd/gate.h"
#include "memfd/map.h"
#include "memfd/probe.h"
#include "memfd/process.h"
#include "memfd/wait.h"
#include "quiet/quiet.h"

static int
start_engine(void)
{
	int r;

	cow__page_init();
	if (cow__gate_is_libcs())
		return -EPERM;
	r = cow__window_reserve();
	if (r < 0) {
		cow__fallback(COW_FALLBACK_WINDOW);
		return r;
	}
	cow__engine.mappings = 1;
	/* 48 % of the kernel's limit: the engine's count is an estimate. */
	cow__engine.mappings_max = cow__probe_mappings_max() / 100 * 48;
	cow__engine.no_locks = !cow__probe_locks();
	cow__engine.no_memfd = !cow__probe_memfd();
	if (cow__engine.no_memfd || cow__engine.no_locks)
		cow__fallback(COW_FALLBACK_MEMFD);
	if (cow__probe_charges() || cow__map_private_limit() != UINT64_MAX)
		cow__engine.counted = true;
	cow__engine.merged = cow__probe_merged();
	cow__stats_publish(cow__settings_publish);
	cow__engine.ready = true;
	return 0;
}

static void
tick(void)
{
	static uint64_t last;
	uint64_t now;

	cow__stat_set(mappings, cow__engine.mappings);
	if (cow__segments_ended())
		cow__segments_end();
	if (!cow__engine.warm_first && !cow__engine.frozen && !cow__spares_any())
		return;
	now = cow__now();
	if (cow__engine.use_helper && cow__engine.warm_bytes > COW__WARM_HELPER_LEAST)
		cow__helper_want(cow__decay_due(now));
	else
		(void)cow__decay(now, COW__WARM_SLICE, false);
	if (cow__elapsed(last, now) < COW__TICK_NS)
		return;
	last = now;
	(void)cow__extent_poll_limbo();
	if (!cow__engine.use_helper) {
		cow__segments_return_filled(now, false);
		(void)cow__spares_release(now, false);
	}
	if (!cow__engine.use_helper || cow__engine.forked_once || cow__engine.generation)
		cow__heal_due();
	if (!cow__engine.use_helper)
		cow__shadows_release(now, false);
	else if (cow__engine.frozen && (cow__engine.forked_once || cow__engine.generation ||
	                                cow__shadows_due(now)))
		cow__helper_want(false); /* clones have shadows, too */
	if (cow__old_tables_pending()) {
		if (cow__engine.use_helper)
			cow__helper_want(false);
		else
			cow__old_tables_release();
	}
	cow__segments_sweep(false);
}

static cow__job_fn *const jobs[] = {
	cow__old_tables_job,
	cow__commit_job,
	cow__resident_job,
	cow__heal_job,
	cow__forward_job,
	cow__spares_job,
	cow__decay_job,
	cow__shadows_job,
	cow__limbo_job,
	cow__moment_job,
	NULL,
};

const struct cow__hooks cow__hooks = {
	.start = start_engine,
	.tick = tick,
	.trim = cow_trim,
	.tile_freed = cow__feedback_freed,
	.jobs = jobs,
};

void (*cow__trim_others)(void);

COW_EXPORT int
cow_trim(void)
{
	size_t done;

	void (*others)(void);

	if (cow__retired())
		return 0;
	others =
	        /* Pairs with the store in share/group.c. */
	        __atomic_load_n(&cow__trim_others, __ATOMIC_ACQUIRE);

	if (others)
		others();
	/* What the helper works on is to go, too. */
	cow__helper_suspend();
	cow__helper_resume();
	cow__engine_lock();
	cow__forward_stop();
	if (cow__engine.ready) {
		(void)cow__extent_poll_limbo();
		cow__segments_return_filled(cow__now(), true);
		cow__heal(UINT64_MAX);
		cow__old_tables_release();
	}
	done = cow__spares_release(cow__now(), true);
	done += cow__decay_all();
	cow__segments_sweep(true);
	cow__stat_set(mappings, cow__engine.mappings);
	cow__engine_unlock();
	return done > 0;
}

COW_EXPORT __attribute__((constructor)) void
cow__engine_load(void)
{
	if (cow__engine.process)
		return;
	cow__page_init(); /* groups need no engine */
	cow__engine.process = cow__process_id();
	(void)cow__fork_init();
}

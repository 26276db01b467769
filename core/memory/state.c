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
#include "core/memory/slots.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/wait.h"

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

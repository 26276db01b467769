/* SPDX-License-Identifier: MIT */
/*
 * Shadows: see the header.
 */
#include "core/cow/shadow.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/ahead.h"
#include "core/cow/exclusive.h"
#include "core/cow/heal.h"
#include "core/cow/part.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/wait.h"

/* Frees the file pages under private ones. */
static void
punch_runs(const struct cow__run *runs, int n, uintptr_t delta)
{
	for (int i = 0; i < n; i++) {
		size_t len = runs[i].end - runs[i].start;

		if (cow__map_punch(runs[i].start + delta, len) == 0)
			cow__stat_add(bytes_shadow_returned, len);
	}
}

/*
 * Gives the file pages under copied ones back. Nobody needs them if nobody else
 * reads the tile. Copied pages stay copied, so this needs no quiet moment.
 *
 * The kernel's work needs no lock: a child that is forked meanwhile has these
 * copies, too. But the child lacks what is copied after that fork. So each batch
 * is looked up under the lock, and each time the tile must still be exclusive.
 *
 * Ends the tile if it was freed meanwhile.
 */
static void
release_shadow(struct cow__tile *t, bool unlocked)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	ssize_t copied = cow__copied_bytes(t);
	struct cow__run runs[128];
	struct cow__tile *alias;
	int n;

	if (copied < 0 || ((size_t)copied == t->own.shadow && !t->own.shadow_less))
		return;
	alias = cow__part_alias(t, at, end);
	if (!alias)
		return;
	cow__ahead_forget();
	t->own.shadow = 0; /* if a fork ends this early, the rest goes later */
	t->own.shadow_less = false;
	while (at < end) {
		struct cow__census c = { .asked = 0 };
		uintptr_t delta = cow__tile_start(alias) - cow__tile_start(t);

		if (t->map.backing != COW__PRIVATE || !cow__unread(t, &c))
			break;
		n = cow__pagemap_copied(at, end, runs, 128, &at);
		if (n <= 0)
			break;
		t->own.shadow += cow__runs_bytes(runs, n);
		if (!unlocked) {
			punch_runs(runs, n, delta);
			continue;
		}
		t->work = COW__WORK_PUNCH;
		cow__engine_unlock();
		punch_runs(runs, n, delta);
		cow__helper_lock();
		cow__tile_work_ends(t);
		if (t->work == COW__WORK_DOOMED) {
			cow__tile_inner_free(alias);
			cow__extent_free(t);
			return;
		}
	}
	cow__tile_inner_free(alias);
}

static uint64_t shadows_at; /* the last look for them */

bool
cow__shadows_due(uint64_t now)
{
	return cow__engine.frozen && cow__elapsed(shadows_at, now) >= COW__SHADOW_NS;
}

void
cow__shadows_release(uint64_t now, bool unlocked)
{
	struct cow__census c = { .asked = 0 };
	struct cow__tile *t, *next;
	uintptr_t end;

	if (!cow__shadows_due(now) || cow__heal_soon(now))
		return;
	shadows_at = now;
	for (t = cow__tile_first(); t; t = next) {
		next = t->next;
		end = cow__tile_end(t);
		if (t->kind != COW__LIVE || t->work ||
		    t->map.backing != COW__PRIVATE || !cow__unread(t, &c))
			continue;
		release_shadow(t, unlocked);
		if (!unlocked)
			continue;
		next = cow__tile_find(end);
		c = (struct cow__census){ .asked = 0 };
	}
}

uint64_t
cow__shadows_job(uint64_t now)
{
	cow__shadows_release(now, true);
	return UINT64_MAX;
}

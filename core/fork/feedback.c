/* SPDX-License-Identifier: MIT */
/*
 * Feedback: see the header.
 */
#include "core/fork/feedback.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/thaw.h"
#include "core/memory/state.h"

/* The share 1/n of the frozen bytes that was copied since the last fork, without
 * a thaw. If more is copied, freezing costs the program more than it brings. */
#define COPIED_SHARE 16

static size_t frozen_bytes; /* at the last fork, of what stayed frozen */
static size_t freed_frozen, freed_copied; /* freed since then */

static bool
learning(void)
{
	return frozen_bytes && !cow__engine.prefer_anon &&
	       cow__engine.policy == COW__POLICY_AUTO;
}

/* Did the program rewrite what could not be thawed since the last fork? */
void
cow__feedback_learn(void)
{
	size_t frozen = freed_frozen, copied = freed_copied;

	freed_frozen = freed_copied = 0;
	if (!learning())
		return;
	frozen_bytes = 0;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		ssize_t n;

		if (t->kind != COW__LIVE || t->backing != COW__PRIVATE)
			continue;
		n = cow__copied_bytes(t);
		if (n < 0)
			return;
		frozen += t->bytes;
		copied += (size_t)n;
	}
	cow__stat_set(pages_private, copied / cow__page);
	if (copied > frozen / COPIED_SHARE)
		cow__engine.prefer_anon = true;
}

void
cow__feedback_freed(const struct cow__tile *t)
{
	struct cow__census c = { 0, 0 };
	ssize_t n;

	if (t->backing != COW__PRIVATE || !t->inherited || !learning() ||
	    !cow__exclusive(t, &c))
		return;
	n = cow__copied_bytes(t);
	if (n < 0)
		return;
	freed_frozen += t->bytes;
	freed_copied += (size_t)n;
	/* The blocks that the program makes next are new ones. */
	if (freed_copied > frozen_bytes / COPIED_SHARE)
		cow__engine.prefer_anon = true;
}

void
cow__feedback_forked(void)
{
	frozen_bytes = 0;
	if (cow__engine.policy != COW__POLICY_AUTO)
		return;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		if (t->kind == COW__LIVE && t->backing == COW__PRIVATE)
			frozen_bytes += t->bytes;
}

void
cow__feedback_child(void)
{
	frozen_bytes = freed_frozen = freed_copied = 0;
}

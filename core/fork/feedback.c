/* SPDX-License-Identifier: MIT */
/*
 * Feedback: see the header.
 */
#include "core/fork/feedback.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/exclusive.h"
#include "core/cow/heal.h"
#include "core/memory/state.h"
#include "core/policy/decide.h"
#include "memfd/forked.h"
#include "memfd/pagemap.h"
#include "memfd/process.h"
#include "memfd/wait.h"

static size_t frozen_bytes COW_FORK_DATA; /* at the last fork, of what stayed frozen */
static size_t freed_frozen COW_FORK_DATA, freed_copied COW_FORK_DATA; /* freed since then */

static bool
is_learning(void)
{
	return !cow__without(FEEDBACK) && frozen_bytes && !cow__engine.prefer_anon &&
	       cow__engine.policy == COW__POLICY_AUTO;
}

/* What was anonymous memory before says nothing of freezing. */
static bool
is_private(const struct cow__tile *t)
{
	return t && t->kind == COW__LIVE && t->map.backing == COW__PRIVATE && !t->map.zeroed;
}

/* The first tile of the next run of frozen neighbours, from `t` on, and its last. */
static struct cow__tile *
next_frozen_run(struct cow__tile *t, struct cow__tile **ret_last)
{
	while (t && !is_private(t))
		t = t->next;
	for (*ret_last = t; t && is_private((*ret_last)->next);)
		*ret_last = (*ret_last)->next;
	return t;
}

static size_t
sum_frozen(void)
{
	struct cow__tile *t = cow__tile_first(), *last;
	size_t bytes = 0;

	for (; (t = next_frozen_run(t, &last)); t = last->next)
		bytes += cow__tile_end(last) - cow__tile_start(t);
	return bytes;
}

/* 0 or -errno. */
static int
sum_copied(size_t *bytes)
{
	struct cow__tile *t = cow__tile_first(), *last;
	struct cow__run runs[64];

	for (; (t = next_frozen_run(t, &last)); t = last->next) {
		uintptr_t at = cow__tile_start(t);

		while (at < cow__tile_end(last)) {
			int n = cow__pagemap_copied(at, cow__tile_end(last),
			                            runs, 64, &at);

			if (n < 0)
				return n;
			for (int i = 0; i < n; i++)
				*bytes += runs[i].end - runs[i].start;
		}
	}
	return 0;
}

/* Did the program rewrite what could not be thawed since the last fork? To look at
 * all page tables takes milliseconds. A copied page is anonymous, so it is enough to
 * ask first whether the process has that much anonymous memory at all. */
void
cow__feedback_learn(void)
{
	size_t frozen = freed_frozen, copied = freed_copied;

	freed_frozen = freed_copied = 0;
	/* Memory that thaws between forks need not become anonymous. */
	if (!is_learning() || cow__heal_soon(cow__now()))
		return;
	frozen_bytes = 0;
	frozen += sum_frozen();
	if (!cow__copies_too_much(copied, frozen) &&
	    !cow__copies_too_much(copied + cow__min(cow__process_anonymous(), SIZE_MAX / 2), frozen))
		return;
	if (sum_copied(&copied) < 0)
		return;
	cow__stat_set(pages_private, copied / cow__page);
	if (cow__copies_too_much(copied, frozen))
		cow__engine.prefer_anon = true;
}

void
cow__feedback_freed(const struct cow__tile *t)
{
	struct cow__census c = { .asked = 0 };
	ssize_t n;

	if (!is_private(t) || !t->own.held || !is_learning() ||
	    !cow__exclusive(t, &c))
		return;
	n = cow__copied_bytes(t);
	if (n < 0)
		return;
	freed_frozen += t->bytes;
	freed_copied += (size_t)n;
	/* The blocks that the program makes next are new ones. */
	if (cow__copies_too_much(freed_copied, frozen_bytes))
		cow__engine.prefer_anon = true;
}

void
cow__feedback_forked(const struct cow__tile *t)
{
	if (!t)
		frozen_bytes = 0;
	else if (is_private(t))
		frozen_bytes += t->bytes;
}

COW_FORK_CODE void
cow__feedback_child(void)
{
	frozen_bytes = freed_frozen = freed_copied = 0;
}

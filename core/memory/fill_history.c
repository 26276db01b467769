/* SPDX-License-Identifier: MIT */
/*
 * Fill history: see the header, and docs/design/commit-ahead.md for the shares.
 */
#include "core/memory/fill_history.h"
#include "core/base/base.h"
#include "core/policy/constants.h"

#define SIZES 128 /* two for each power of two */

struct history {
	size_t filled, wasted;
};

static struct history all, sizes[SIZES];

static struct history *
history_of(size_t bytes)
{
	unsigned log = 63u - (unsigned)__builtin_clzll(bytes | 2);

	return &sizes[log * 2 + (bytes >> (log - 1) & 1)];
}

static void
learn(struct history *t, size_t filled, size_t wasted)
{
	if (t->filled + t->wasted > COW__FILL_MEMORY) {
		t->filled /= 2;
		t->wasted /= 2;
	}
	t->filled += filled;
	t->wasted += wasted;
}

void
cow__fill_history_learn(size_t bytes, size_t filled, size_t wasted)
{
	learn(&all, filled, wasted);
	learn(history_of(bytes), filled, wasted);
}

static bool
fills(const struct history *t)
{
	return t->filled > COW__FILL_LEAST * t->wasted;
}

bool
cow__fill_history_fills(size_t bytes)
{
	const struct history *same = history_of(bytes);

	return !cow__without(FILL_HISTORY) && same->filled >= bytes && fills(same);
}

size_t
cow__fill_history_share(size_t bytes)
{
	const struct history *same = history_of(bytes);

	if (cow__fill_history_fills(bytes))
		return COW__FILL_SHARE_FILLS;
	if (cow__without(FILL_HISTORY))
		return COW__FILL_SHARE;
	if (!fills(&all))
		return COW__FILL_SHARE_SPARSE;
	return same->wasted ? COW__FILL_SHARE_WASTED : COW__FILL_SHARE;
}

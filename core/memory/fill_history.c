/* SPDX-License-Identifier: MIT */
/*
 * Fill history: see the header, and docs/design/commit-ahead.md for the shares.
 */
#include "core/memory/fill_history.h"
#include "core/base/base.h"

#define SIZES 128 /* two for each power of two */
#define FILLED_LEAST 16 /* times what is wasted */
#define MEMORY GIB /* bytes of history: then its weight is halved */

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
	if (t->filled + t->wasted > MEMORY) {
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
	return t->filled > FILLED_LEAST * t->wasted;
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
		return 2;
	if (cow__without(FILL_HISTORY))
		return 4;
	if (!fills(&all))
		return 16;
	return same->wasted ? 10 : 4;
}

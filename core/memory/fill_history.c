/* SPDX-License-Identifier: MIT */
/*
 * Trust. See the header, and docs/design/commit-ahead.md for the shares.
 */
#include "core/memory/fill_history.h"
#include "core/base/base.h"

#include <stdbool.h>

#define SIZES 128 /* two to the power of two */
#define DISTRUST 16
#define MEMORY GIB /* of experience: then it fades */

struct trust {
	size_t filled, wasted;
};

static struct trust all, sizes[SIZES];

static struct trust *
trust_of(size_t bytes)
{
	unsigned log = 63u - (unsigned)__builtin_clzll(bytes | 2);

	return &sizes[log * 2 + (bytes >> (log - 1) & 1)];
}

static void
learn(struct trust *t, size_t filled, size_t wasted)
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
	learn(trust_of(bytes), filled, wasted);
}

static bool
is_trusted(const struct trust *t)
{
	return t->filled > DISTRUST * t->wasted;
}

size_t
cow__fill_history_share(size_t bytes)
{
	const struct trust *same = trust_of(bytes);

	if (same->filled >= bytes && is_trusted(same))
		return 2;
	if (!is_trusted(&all))
		return 16;
	return same->wasted ? 10 : 4;
}

/* SPDX-License-Identifier: MIT */
/*
 * Does the program fill what it asks for? See the header.
 */
#include "core/policy/fill.h"
#include "core/policy/constants.h"

static unsigned
class_of(size_t bytes)
{
	unsigned log = 63u - (unsigned)__builtin_clzll(bytes | 2);

	return log * 2 + (bytes >> (log - 1) & 1);
}

static void
learn(struct cow__fill_count *t, size_t filled, size_t wasted)
{
	if (t->filled + t->wasted > COW__FILL_MEMORY) {
		t->filled /= 2;
		t->wasted /= 2;
	}
	t->filled += filled;
	t->wasted += wasted;
}

void
cow__fill_learn(struct cow__fill *f, size_t bytes, size_t filled, size_t wasted)
{
	learn(&f->all, filled, wasted);
	learn(&f->sizes[class_of(bytes)], filled, wasted);
}

static bool
fills(const struct cow__fill_count *t)
{
	return t->filled > COW__FILL_LEAST * t->wasted;
}

bool
cow__fill_is_usual(const struct cow__fill *f, size_t bytes)
{
	const struct cow__fill_count *same = &f->sizes[class_of(bytes)];

	return !cow__without(FILL_HISTORY) && same->filled >= bytes && fills(same);
}

size_t
cow__fill_share(const struct cow__fill *f, size_t bytes)
{
	if (cow__fill_is_usual(f, bytes))
		return COW__FILL_SHARE_FILLS;
	if (cow__without(FILL_HISTORY))
		return COW__FILL_SHARE;
	if (!fills(&f->all))
		return COW__FILL_SHARE_SPARSE;
	return f->sizes[class_of(bytes)].wasted ? COW__FILL_SHARE_WASTED : COW__FILL_SHARE;
}

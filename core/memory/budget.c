/* SPDX-License-Identifier: MIT */
/*
 * Budget: see the header.
 */
#include "core/memory/budget.h"
#include "core/base/base.h"
#include "core/memory/state.h"
#include "core/policy/fill.h"
#include "memfd/forked.h"

static struct cow__fill fills;
static size_t ahead COW_FORK_DATA;
static size_t touched_total;
static size_t touched_most COW_FORK_DATA; /* at any time so far */

size_t
cow__budget_room(size_t least, size_t bytes)
{
	size_t most = least + touched_total / cow__fill_share(&fills, bytes);

	return most > ahead ? most - ahead : 0;
}

size_t
cow__budget_room_again(const struct cow__tile *t)
{
	size_t used = cow__engine.live_bytes - t->bytes;

	if (cow__without(AGAIN) || !cow__fill_is_usual(&fills, t->bytes) || used >= touched_most)
		return 0;
	return touched_most - used;
}

void
cow__budget_learn(size_t bytes, size_t filled, size_t wasted)
{
	cow__fill_learn(&fills, bytes, filled, wasted);
}

void
cow__budget_ahead(size_t bytes)
{
	ahead += bytes;
}

void
cow__budget_ahead_ends(size_t bytes)
{
	ahead -= bytes;
}

void
cow__budget_touched(size_t bytes)
{
	touched_total += bytes;
	touched_most = cow__max(touched_most, touched_total);
}

void
cow__budget_touched_ends(size_t bytes)
{
	touched_total -= bytes;
}

COW_FORK_CODE void
cow__budget_child(void)
{
	ahead = 0;
	touched_most = touched_total; /* so much it has itself */
}

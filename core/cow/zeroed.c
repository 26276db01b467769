/* SPDX-License-Identifier: MIT */
/*
 * Zeroed blocks: see the header.
 */
#include "core/cow/zeroed.h"
#include "core/base/base.h"
#include "core/cow/part.h"
#include "core/memory/can.h"
#include "core/memory/commit.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/pagemap.h"

/* One fork alone may be the last. */
static bool
is_join_due(struct cow__tile *t)
{
	unsigned forks = t->map.zeroed++;

	if (forks > COW__ZEROED_FORKS_MOST)
		t->map.zeroed--;
	return forks > 1 && forks <= COW__ZEROED_FORKS_MOST && (forks & (forks - 1)) == 0;
}

/* Was half of it written? */
static bool
is_half_written(const struct cow__tile *t)
{
	return cow__made_bytes(cow__tile_start(t), cow__tile_end(t), t->bytes / 2) >=
	       t->bytes / 2;
}

static void
join_file(struct cow__tile *t)
{
	struct cow__segment *s;

	if (cow__segment_current(&s) < 0)
		return;
	cow__commit_forget(t);
	cow__tile_change_begin(t);
	cow__segment_ref(s);
	t->own.segment = s;
	t->own.shadow = t->bytes; /* the file has no page under any */
	cow__tile_set_backing(t, COW__PRIVATE);
	cow__tile_change_end(t);
}

void
cow__zeroed_before_fork(void)
{
	bool any = false;

	/* Without the look for pages of zeros, what was only read would become memory. */
	if (!cow__engine.zeroed || !cow__pagemap_has_scan())
		return;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		if (t->kind != COW__LIVE || t->map.backing != COW__ANON || !t->map.zeroed)
			continue;
		if (is_join_due(t) && !t->own.segment && cow__can(t, COW__TO_JOIN) &&
		    is_half_written(t))
			join_file(t);
		any |= t->map.backing == COW__ANON;
	}
	cow__engine.zeroed = any;
}

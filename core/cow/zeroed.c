/* SPDX-License-Identifier: MIT */
/*
 * Zeroed blocks: see the header.
 */
#include "core/cow/zeroed.h"
#include "core/base/base.h"
#include "core/memory/commit.h"
#include "core/memory/state.h"
#include "memfd/pagemap.h"

#define FORKS_LEAST 2 /* one fork alone may be the last */
#define FORKS_MOST 128 /* counted; looks are at 2, 4, 8 ... forks, because they take time */

static bool
can_join(const struct cow__tile *t)
{
	return t->block && !t->segment && !t->npieces && !t->attributes && !t->overlaid && !t->slow && !t->bound &&
	       !t->pinned && !t->busy && !t->doomed && t->refs == 1 && !t->common;
}

/* Was half of it written? */
static bool
is_full(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	struct cow__run runs[64];
	size_t made = 0;
	int n;

	while (at < end && made < t->bytes / 2) {
		n = cow__pagemap_made(at, end, runs, 64, &at);
		if (n < 0)
			return false;
		for (int i = 0; i < n; i++)
			made += runs[i].end - runs[i].start;
	}
	return made >= t->bytes / 2;
}

static void
join(struct cow__tile *t)
{
	struct cow__segment *s;

	if (cow__segment_current(&s) < 0)
		return;
	cow__commit_forget(t);
	cow__tile_change_begin(t);
	cow__segment_ref(s);
	t->segment = s;
	t->shadow = t->bytes; /* the file has no page under any */
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
		if (t->kind != COW__LIVE || t->backing != COW__ANON || !t->zeroed)
			continue;
		if (t->forks < FORKS_MOST)
			t->forks++;
		if (t->forks >= FORKS_LEAST && (t->forks & (t->forks - 1)) == 0 &&
		    t->forks < FORKS_MOST && can_join(t) && is_full(t))
			join(t);
		any |= t->backing == COW__ANON;
	}
	cow__engine.zeroed = any;
}

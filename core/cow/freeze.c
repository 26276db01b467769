/* SPDX-License-Identifier: MIT */
/*
 * Freezing: see the header.
 */
#include "core/cow/freeze.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/old_tables.h"
#include "core/cow/view.h"
#include "core/memory/attribute.h"
#include "core/memory/commit.h"
#include "core/memory/state.h"
#include "memfd/map.h"

bool
cow__freeze_joins(const struct cow__tile *a, const struct cow__tile *b)
{
	return a->segment == b->segment && !a->pinned && !b->pinned &&
	       !a->npieces && !b->npieces &&
	       !a->nkept && !b->nkept && !a->attributes && !b->attributes &&
	       cow__tile_end(a) == cow__tile_start(b);
}

static void
frozen(struct cow__tile *t)
{
	cow__tile_change_begin(t);
	cow__tile_set_backing(t, COW__PRIVATE);
	cow__array_free(t->kept, t->kept_cap, sizeof(*t->kept));
	t->kept = NULL;
	t->nkept = t->kept_cap = 0;
	cow__tile_change_end(t);
	cow__stat_add(freezes, 1);
	cow__stat_add(bytes_frozen, t->bytes);
}

int
cow__freeze_run(struct cow__tile *from, struct cow__tile *to, bool inherit)
{
	size_t bytes = cow__tile_end(to) - cow__tile_start(from), count = 0;
	int r;

	if (!cow__mappings_left(2))
		return -ENOMEM;
	if (!inherit) /* a fork has moved them, with those of more tiles */
		cow__old_tables_move(from, bytes);
	r = cow__map_private(cow__tile_start(from), bytes,
	                     &from->segment->file,
	                     cow__segment_offset(cow__tile_start(from)), inherit);
	if (r < 0)
		return r;
	cow__tiles_change_begin(from, to);
	for (struct cow__tile *t = from;; t = t->next) {
		cow__commit_frozen(t);
		cow__tile_set_backing(t, COW__PRIVATE);
		count++;
		if (t == to)
			break;
	}
	cow__tiles_change_end(from, to, count);
	cow__stat_add(freezes, count);
	cow__stat_add(bytes_frozen, bytes);
	return 0;
}

/* A freeze failed at `done`. Everything below is private now, which `kept` can
 * say: room for that was made before. */
static void
frozen_up_to(struct cow__tile *t, uintptr_t done)
{
	uint32_t n = 0;

	if (done == cow__tile_start(t)) {
		if (t->nkept)
			return;
		cow__array_free(t->kept, t->kept_cap, sizeof(*t->kept));
		t->kept = NULL;
		t->kept_cap = 0;
		return;
	}
	cow__tile_change_begin(t);
	while (n < t->nkept && t->kept[n].end <= done)
		n++;
	memmove(t->kept + 1, t->kept + n, (t->nkept - n) * sizeof(*t->kept));
	t->nkept = t->nkept - n + 1;
	t->kept[0] = (struct cow__span){ cow__tile_start(t), done };
	t->backing = COW__PRIVATE;
	cow__tile_change_end(t);
}

int
cow__freeze(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	int r;

	cow__require(t->kind == COW__LIVE);
	if (t->pinned || t->common)
		return -EBUSY;
	if (!t->npieces && !t->nkept && !t->attributes)
		return cow__freeze_run(t, t, false);
	if (!cow__mappings_left(2 + t->npieces + cow__attributes_count(t)))
		return -ENOMEM;
	r = cow__array_reserve((void **)&t->kept, &t->kept_cap,
	                       sizeof(*t->kept), t->nkept + 1);
	if (r < 0)
		return r;
	cow__commit_frozen(t);
	/* Around the parts that a thaw left private. */
	for (uint32_t i = 0; i <= t->nkept; i++) {
		uintptr_t end = i < t->nkept ? t->kept[i].start
		                             : cow__tile_end(t);

		r = cow__view_map(t, at, end, false, &at);
		if (r < 0) {
			frozen_up_to(t, at);
			return r;
		}
		if (i < t->nkept)
			at = t->kept[i].end;
	}
	frozen(t);
	return 0;
}

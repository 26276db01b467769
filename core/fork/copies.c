/* SPDX-License-Identifier: MIT */
/*
 * Copies for the child of a fork: see the header.
 */
#include "core/fork/copies.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/fork/eager.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/process.h"

struct copy {
	struct cow__tile *tile;
	void *data;
};

static struct copy *copies;
static uint32_t ncopies COW_FORK_DATA, copies_cap;

void
cow__copies_free(void)
{
	for (uint32_t i = 0; i < ncopies; i++) {
		copies[i].tile->mark = COW__MARK_NONE;
		(void)cow__map_release((uintptr_t)copies[i].data,
		                       copies[i].tile->bytes);
	}
	ncopies = 0;
}

int
cow__copies_make(struct cow__tile *t, enum cow_fallback reason)
{
	void *data;
	int r = cow__array_reserve((void **)&copies, &copies_cap,
	                           sizeof(*copies), ncopies + 1);

	if (r == 0)
		r = cow__eager_copy(t, true, &data);
	if (r < 0)
		return r;
	copies[ncopies++] = (struct copy){ t, data };
	t->mark = COW__MARK_COPIED;
	if (t->own.outside == COW__OUTSIDE_IDLE)
		return 0;
	cow__fallback_copied(reason, cow__extent_usable(t));
	cow__stat_add(bytes_copied, cow__extent_usable(t));
	return 0;
}

int
cow__copies_beside_shared(bool all)
{
	int r = 0;

	if (!ncopies && !all)
		return 0;
	for (struct cow__segment *s = cow__engine.segments; r == 0 && s; s = s->next) {
		bool stays = all;

		for (uint32_t i = 0; !stays && i < ncopies; i++)
			stays = copies[i].tile->map.backing == COW__SHARED &&
			        cow__eager_shows(copies[i].tile, s);
		for (struct cow__tile *t = cow__tile_first(); stays && r == 0 && t; t = t->next)
			if (t->map.backing == COW__PRIVATE && t->mark != COW__MARK_COPIED && cow__eager_shows(t, s))
				r = cow__copies_make(t, COW_FALLBACK_PINNED);
	}
	return r;
}

COW_FORK_CODE void
cow__copies_child(void)
{
	for (uint32_t i = 0; i < ncopies; i++) {
		copies[i].tile->mark = COW__MARK_NONE;
		if (cow__extent_replace(copies[i].tile, copies[i].data) < 0)
			cow__process_exit(127);
	}
	ncopies = 0;
}

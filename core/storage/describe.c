/* SPDX-License-Identifier: MIT */
/*
 * The present state of a storage, for people and tests (cow_storage_get_info())
 */
#include "core/storage/storage.h"
#include "core/memory/state.h"
#include "memfd/pagemap.h"

static uint64_t
copied_bytes(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	struct cow__run runs[32];
	uint64_t bytes = 0;

	while (at < end) {
		int n = cow__pagemap_copied(at, end, runs, 32, &at);

		if (n < 0)
			return 0;
		for (int i = 0; i < n; i++)
			bytes += runs[i].end - runs[i].start;
	}
	return bytes;
}

/* How many other mappings read its pages; for the page with most readers. */
static uint64_t
readers_beside(const struct cow__tile *t)
{
	uint64_t most = 0;

	if (!t->npieces)
		return t->refs > 1 ? t->refs - 1 : 0;
	for (uint32_t i = 0; i < t->npieces; i++) {
		const struct cow__tile *pages = t->pieces[i].pages;
		uint64_t mine = 0;

		for (uint32_t k = 0; k < t->npieces; k++)
			mine += t->pieces[k].pages == pages;
		if (pages->refs - mine > most)
			most = pages->refs - mine;
	}
	return most;
}

static void
describe_tile(const struct cow__tile *t, struct cow_storage_info *ret)
{
	ret->mappings = t->npieces ? t->npieces : 1;
	ret->frozen = t->backing == COW__PRIVATE;
	ret->bytes_written_back = t->written_back;
	/* Views of these pages keep them as a clone does. */
	ret->sharers += readers_beside(t);
	if (ret->sharers > 1 && !ret->frozen) {
		ret->state = COW_STATE_LAZY;
		ret->bytes_own = 0;
	}
	if (ret->state == COW_STATE_OWNED && ret->frozen && t->npieces)
		ret->state = COW_STATE_VIEW;
	if (ret->state != COW_STATE_LAZY && ret->frozen)
		ret->bytes_own = copied_bytes(t);
}

void
cow__storage_describe(const struct cow_storage *s, struct cow_storage_info *ret)
{
	const struct cow__allocation *a = s->data;

	ret->flags = s->flags;
	ret->sharers = __atomic_load_n(&a->refs, __ATOMIC_RELAXED);
	ret->state = ret->sharers > 1 ? COW_STATE_LAZY : COW_STATE_OWNED;
	if (a->kind == COW__AT_FOREIGN || a->kind == COW__AT_EXTERNAL)
		ret->state = COW_STATE_FOREIGN;
	if (a->ops && a->ops->describe) {
		a->ops->describe(a, ret);
		return;
	}
	if (a->kind == COW__AT_OTHER && !a->owned) {
		/* Another process may have it. */
		ret->state = COW_STATE_LAZY;
		return;
	}
	ret->bytes_own = ret->sharers > 1 ? 0 : s->bytes;
	if (a->kind != COW__AT_TILE)
		return;
	cow__engine_lock();
	describe_tile(a->tile, ret);
	cow__engine_unlock();
}

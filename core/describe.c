/* SPDX-License-Identifier: MIT */
/*
 * What a storage is at the moment, for people and tests
 */
#include "core/engine.h"
#include "core/storage.h"
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

static void
describe_tile(const struct cow__tile *t, struct cow_storage_info *ret)
{
	ret->mappings = t->npieces ? t->npieces : 1;
	ret->frozen = t->backing == COW__PRIVATE;
	/* Views of these pages keep them as a clone does. */
	if (!t->npieces && t->refs > 1) {
		ret->sharers += t->refs - 1;
		if (!ret->frozen)
			ret->state = COW_STATE_LAZY;
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
	ret->bytes_own = ret->sharers > 1 ? 0 : s->bytes;
	if (a->kind != COW__AT_TILE)
		return;
	cow__engine_lock();
	describe_tile(a->tile, ret);
	cow__engine_unlock();
}

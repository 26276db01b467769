/* SPDX-License-Identifier: MIT */
/*
 * The present state of a storage, for people and tests (cow_storage_get_info())
 */
#include "core/storage/storage.h"
#include "core/cow/seal.h"
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

	if (!t->map.npieces)
		return t->own.refs > 1 ? t->own.refs - 1 : 0;
	for (uint32_t i = 0; i < t->map.npieces; i++) {
		const struct cow__tile *pages = t->map.pieces[i].pages;
		uint64_t mine = 0;

		for (uint32_t k = 0; k < t->map.npieces; k++)
			mine += t->map.pieces[k].pages == pages;
		if (pages->own.refs - mine > most)
			most = pages->own.refs - mine;
	}
	return most;
}

static void
describe_tile(const struct cow__tile *t, struct cow_storage_info *ret)
{
	ret->mappings = t->map.npieces ? t->map.npieces : 1;
	ret->frozen = t->map.backing == COW__PRIVATE;
	ret->bytes_written_back = t->map.written_back;
	/* Views of these pages keep them as a clone does. */
	ret->sharers += readers_beside(t);
	if (ret->sharers > 1 && !ret->frozen) {
		ret->state = COW_STATE_LAZY;
		ret->bytes_own = 0;
	}
	if (ret->state == COW_STATE_OWNED && ret->frozen && t->map.npieces)
		ret->state = COW_STATE_VIEW;
	if (ret->state != COW_STATE_LAZY && ret->frozen)
		ret->bytes_own = copied_bytes(t);
}

/* Engine locked. */
static uint64_t
shared(const struct cow_storage *s, const struct cow__tile *t)
{
	if (cow__tile_is_common(t))
		return COW_SHARED_ALIAS;
	if (!cow__storage_gives(s, t->map.npieces))
		return COW_SHARED_NOT;
	switch (cow__seal_ready(t, s->bytes)) {
	case COW__SEAL_DONE:
		return COW_SHARED_SEALED;
	case COW__SEAL_READY:
		return COW_SHARED_READY;
	default:
		return COW_SHARED_NOT;
	}
}

void
cow__storage_describe(const struct cow_storage *s, struct cow_storage_info *ret)
{
	const struct cow__allocation *a = s->data;
	void (*tell)(const struct cow_storage *, struct cow_storage_info *);

	/* Pairs with the store in share/. */
	tell = __atomic_load_n(&cow__storage_shared, __ATOMIC_ACQUIRE);
	if (tell)
		tell(s, ret);
	ret->flags = s->flags;
	ret->sharers = __atomic_load_n(&a->refs, __ATOMIC_RELAXED);
	ret->state = ret->sharers > 1 ? COW_STATE_LAZY : COW_STATE_OWNED;
	if (a->kind == COW__AT_FOREIGN || a->kind == COW__AT_EXTERNAL)
		ret->state = COW_STATE_FOREIGN;
	if (a->ops && a->ops->describe) {
		a->ops->describe(a, ret);
		return;
	}
	/* Another thread may clone it, as in clone_by_reference(). */
	if (a->kind == COW__AT_OTHER && !__atomic_load_n(&a->owned, __ATOMIC_RELAXED)) {
		/* Another process may have it. */
		ret->state = COW_STATE_LAZY;
		return;
	}
	ret->bytes_own = ret->sharers > 1 ? 0 : s->bytes;
	if (a->kind != COW__AT_TILE)
		return;
	cow__engine_lock();
	describe_tile(a->tile, ret);
	ret->shared = shared(s, a->tile);
	cow__engine_unlock();
}

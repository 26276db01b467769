/* SPDX-License-Identifier: MIT */
/*
 * Homes on pages that the engine already has, without a copy. See share/home.h.
 */
#include "core/cow/alias.h"
#include "core/memory/state.h"
#include "core/cow/seal.h"
#include "core/memory/own_segment.h"
#include "core/base/stats.h"
#include "core/policy/constants.h"
#include "memfd/pins.h"
#include "memfd/wait.h"
#include "share/home.h"

#define GIVE_NS 100000000u

int
cow__home_give(struct cow_storage *s, struct cow__home **ret)
{
	struct cow__home_key key = { .pack = NULL };
	struct cow__descriptor file;
	uint64_t until;
	int r;

	if (s->data->kind != COW__AT_TILE)
		return -ENOTSUP;
	if (s->bytes >= COW__OWN_LEAST)
		cow__own_segments_expect();
	cow__engine_lock();
	r = cow__seal_may(s->data->tile) && cow__storage_gives(s, s->data->tile->map.npieces);
	cow__engine_unlock();
	if (!r)
		return -ENOTSUP;
	/* I/O that ends later would write the pages that were given away. */
	if (cow__pins_memory()) {
		cow__fallback_copied(COW_FALLBACK_PINNED, s->bytes);
		return -EBUSY;
	}
	/* -EBUSY: the helper works on its pages or page tables. That ends sooner than a
	 * copy would. */
	until = cow__now() + GIVE_NS;
	do {
		cow__engine_lock();
		r = cow__seal(s->data->tile, s->bytes, &file, &key.offset);
		cow__engine_unlock();
		if (r == -EBUSY)
			cow__yield();
	} while (r == -EBUSY && cow__now() < until);
	if (r < 0)
		return r;
	key.dev = file.dev;
	key.ino = file.ino;
	cow__share_enter();
	r = cow__home_open(COW__HOME_SEALED, &key, &file, s->bytes, ret);
	if (r == 0)
		(*ret)->exact = true;
	cow__share_leave();
	cow__descriptor_close(&file);
	return r;
}

int
cow__home_share_in_place(struct cow_storage *s)
{
	uint64_t until = cow__now() + GIVE_NS;
	int r;

	/* I/O that ends later would write the old pages. */
	if (cow__pins_memory()) {
		cow__fallback(COW_FALLBACK_PINNED);
		return -EBUSY;
	}
	do {
		cow__engine_lock();
		r = cow__alias_in_place(s->data->tile);
		cow__engine_unlock();
		if (r == -EBUSY)
			cow__yield();
	} while (r == -EBUSY && cow__now() < until);
	return r;
}

int
cow__home_common(struct cow_storage *s, struct cow__home **ret)
{
	struct cow__home_key key = { .pack = NULL };
	struct cow__descriptor file;
	int r;

	if (s->data->kind != COW__AT_TILE)
		return -ENOTSUP;
	cow__engine_lock();
	r = cow__alias_file(s->data->tile, &file, &key.offset);
	cow__engine_unlock();
	if (r < 0)
		return r;
	key.dev = file.dev;
	key.ino = file.ino;
	cow__share_enter();
	r = cow__home_open(COW__HOME_ALIAS, &key, &file, s->bytes, ret);
	cow__share_leave();
	cow__descriptor_close(&file);
	return r;
}

int
cow__home_alias_back(const struct cow__home_key *key, size_t bytes,
                     struct cow_storage **ret)
{
	struct cow_storage *s;
	uintptr_t at;
	bool ours;
	int r;

	cow__engine_lock();
	ours = cow__alias_at(key->dev, key->ino, key->offset, &at);
	cow__engine_unlock();
	if (!ours)
		return 0;
	r = cow_storage_from_ptr((void *)at, NULL, &s);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (cow_storage_bytes(s) == bytes) {
		*ret = s;
		return 1;
	}
	(void)cow_storage_unref(s);
	return 0;
}

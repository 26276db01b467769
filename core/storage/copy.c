/* SPDX-License-Identifier: MIT */
/*
 * Lazy copies from one storage to another
 *
 * Both storages lie in tiles of the engine. Of the range that is copied, the whole pages
 * become shared (core/cow/copy.h); the caller copies the ends.
 */
#include "core/policy/constants.h"
#include "core/storage/storage.h"
#include "core/base/stats.h"
#include "core/cow/copy.h"
#include "memfd/pins.h"

static bool
may_share(const struct cow_storage *to, const struct cow_storage *from)
{
	return to != from && to->data != from->data && !cow__transparent(to) &&
	       !to->home && !(to->flags & COW_STORAGE_STRICT) &&
	       to->data->kind == COW__AT_TILE &&
	       from->data->kind == COW__AT_TILE && !to->elements &&
	       !from->elements &&
	       /* Pairs with the release of the threads that gave theirs up. */
	       __atomic_load_n(&to->data->refs, __ATOMIC_ACQUIRE) == 1;
}

COW_EXPORT int
cow__storage_copy_lazily(struct cow_storage *to, size_t to_offset,
                         struct cow_storage *from, size_t from_offset,
                         size_t bytes, size_t *ret_first, size_t *ret_last)
{
	size_t first = cow__round_up(to_offset, cow__page) - to_offset;
	size_t whole;

	if (!may_share(to, from) || (to_offset - from_offset) % cow__page ||
	    bytes < first)
		return 0;
	whole = cow__round_down(bytes - first, cow__page);
	if (whole < COW__PAGED_LEAST)
		return 0;
	if (cow__pins_memory()) {
		cow__fallback_copied(COW_FALLBACK_PINNED, bytes);
		return 0;
	}
	cow__allocation_settle(to->data);
	if (cow__copy_part(to->data->tile, to_offset + first, from->data->tile,
	                   from_offset + first, whole) < 0)
		return 0;
	to->data->fresh_zero = false;
	*ret_first = first;
	*ret_last = first + whole;
	return 1;
}

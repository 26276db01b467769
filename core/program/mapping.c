/* SPDX-License-Identifier: MIT */
/*
 * Mappings: see the header.
 */
#include "core/program/mapping.h"
#include "core/base/base.h"
#include "core/memory/attribute.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/overcommit.h"
#include "core/memory/state.h"
#include "core/program/advise.h"
#include "core/program/grown.h"
#include "core/program/range.h"

#include <string.h>

/* Of <sys/mman.h>, which belongs to memfd/. */
enum {
	PROTECTION_ALL = 3,
	ADVICE_DONTNEED = 4,
	ADVICE_DONTFORK = 10,
	ADVICE_DODUMP = 17,
	ADVICE_WIPEONFORK = 18
};

COW_EXPORT int
cow__mapping_init(uintptr_t *ret_start)
{
	int r = cow__engine_enter();

	if (r < 0)
		return r;
	*ret_start = cow__round_down(cow__engine.start / 2 +
	                             cow__engine.end / 2, GIB);
	r = cow__tiles_part(*ret_start);
	cow__engine_unlock();
	return r;
}

COW_EXPORT int
cow__mapping_new(size_t bytes, int prot, void **ret)
{
	/* A mapping that can't be written yet is reserved, not filled: nothing is
	 * committed. */
	unsigned flags = COW__EXTENT_MAPPING |
	                 (prot == PROTECTION_ALL ? 0 : COW__EXTENT_WHOLE);
	struct cow__tile *t;
	size_t dirty = 0;
	uintptr_t addr;
	int r = prot == PROTECTION_ALL ? cow__overcommit_ask(bytes) : 0;

	if (r == 0)
		r = cow__extent_make(bytes, 0, flags, COW__USE_MAPPING, NULL, &t, &dirty);
	if (r < 0)
		return r;
	addr = cow__tile_start(t);
	memset((void *)addr, 0, dirty);
	if (prot != PROTECTION_ALL)
		r = cow__protect(addr, bytes, prot, -1);
	if (r < 0) {
		(void)cow__unmap(addr, bytes);
		return r;
	}
	*ret = (void *)addr;
	return 0;
}

COW_EXPORT int
cow__mapping_renew(uintptr_t addr, size_t bytes, int prot)
{
	int r;

	if (!cow__all_renewable(addr, bytes))
		return -EEXIST;
	r = cow__advise(addr, bytes, ADVICE_DONTNEED);
	return r < 0 ? r : cow__protect(addr, bytes, prot, -1);
}

static int
is_there(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int value)
{
	(void)t, (void)start, (void)end, (void)own, (void)value;
	return 0;
}

/* The tile of the last page, if the kernel would let the mapping grow there. Engine locked. */
static int
last_tile(uintptr_t addr, uintptr_t end, struct cow__tile **ret)
{
	int r = cow__range_each_locked(addr, end, is_there, 0, COW__HOLES_STOP), place;
	struct cow__tile *t = cow__tile_find(end - cow__page);
	uintptr_t to = end;

	if (r < 0 || !cow__is_uniform(addr, end))
		return -EFAULT;
	place = cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, end - cow__page, &to);
	if (cow__tile_end(t) != end || !cow__tile_is_mapping(t) || cow__tile_is_common(t) ||
	    cow__place_is_programs(place))
		return -ENOMEM;
	*ret = t;
	return 0;
}

/* Makes [start, end) live memory behind `t`, as tiles of their own if it can't be in one with `t`.
 * *ret_dirty: bytes of it that are not zero yet. */
static int
extend(struct cow__tile *t, uintptr_t start, uintptr_t end, size_t *ret_dirty)
{
	const struct cow__tile *next = t->next;
	struct cow__tile *first = t;
	bool warm = next && cow__tile_heat(next) == COW__WARM;
	int r;

	if (!next || next->kind != COW__FREE)
		return -ENOMEM;
	*ret_dirty = 0;
	if (!t->map.allocation && !t->map.attributes && cow__extent_resize(t, end - cow__tile_start(t))) {
		*ret_dirty = warm ? end - start : 0;
		return 0;
	}
	r = cow__extent_new_at(start, end - start, ret_dirty);
	if (r < 0)
		return r;
	/* None of them is the whole block (cow_storage_from_ptr()). */
	first->map.use = COW__USE_PART;
	for (t = cow__tile_find(start); t && cow__tile_start(t) < end; t = t->next)
		t->map.use = COW__USE_PART;
	return 0;
}

/* What was noted of the page at `from` holds for [start, end), too. */
static int
like(const struct cow__tile *t, uintptr_t from, uintptr_t start, size_t bytes)
{
	uintptr_t to = from + cow__page;
	int prot = cow__attribute_at(t, COW__ATTRIBUTE_PROTECTION, -1, from, &to);
	int dump = cow__attribute_at(t, COW__ATTRIBUTE_DUMP, -1, from, &to);
	int fork = cow__attribute_at(t, COW__ATTRIBUTE_FORK, 0, from, &to);
	int wipe = cow__attribute_at(t, COW__ATTRIBUTE_WIPE, 0, from, &to);
	int lock = cow__attribute_at(t, COW__ATTRIBUTE_LOCK, -1, from, &to);
	int r = 0;

	cow__engine_unlock();
	if (dump >= 0)
		r = cow__advise(start, bytes, dump);
	if (r == 0 && fork > 0)
		r = cow__advise(start, bytes, ADVICE_DONTFORK);
	if (r == 0 && wipe > 0)
		r = cow__advise(start, bytes, ADVICE_WIPEONFORK);
	if (r == 0 && prot >= 0)
		r = cow__protect(start, bytes, prot, -1);
	if (r == 0 && lock >= 0)
		r = cow__lock_pages(start, bytes, lock);
	return r;
}

COW_EXPORT int
cow__mapping_grow(uintptr_t addr, size_t old, size_t bytes)
{
	uintptr_t end = addr + old, to = addr + bytes;
	struct cow__tile *t;
	size_t dirty = 0;
	int r;

	if (to < addr)
		return -ENOMEM;
	r = cow__overcommit_ask(bytes - old); /* it may lock */
	cow__engine_lock();
	if (r == 0)
		r = last_tile(addr, end, &t);
	if (r == 0)
		r = extend(t, end, to, &dirty);
	if (r < 0) {
		cow__engine_unlock();
		/* The program may move it. That a file or a descriptor is lacking is not its matter. */
		return r == -EAGAIN || r == -EFAULT ? r : -ENOMEM;
	}
	memset((void *)end, 0, dirty);
	r = like(cow__tile_find(end - cow__page), end - cow__page, end, to - end);
	if (r < 0)
		(void)cow__unmap(end, to - end);
	return r == -EAGAIN || r == 0 ? r : -ENOMEM;
}

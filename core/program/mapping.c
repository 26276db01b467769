/* SPDX-License-Identifier: MIT */
/*
 * Mappings: see the header.
 */
#include "core/program/mapping.h"
#include "core/base/base.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/overcommit.h"
#include "core/memory/state.h"
#include "core/program/advise.h"

#include <string.h>

/* Of <sys/mman.h>, which belongs to memfd/. */
enum { PROTECTION_ALL = 3, ADVICE_DONTNEED = 4 };

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
	uintptr_t addr = 0;
	int r = prot == PROTECTION_ALL ? cow__overcommit_ask(bytes) : 0;

	if (r == 0)
		r = cow__engine_enter();
	if (r < 0)
		return r;
	r = cow__extent_new(bytes, 0, flags, &t, &dirty);
	if (r == 0) {
		t->block = t->mapping = true;
		addr = cow__tile_start(t);
	}
	cow__engine_tick();
	cow__commit_unlock(r == 0 ? t : NULL);
	if (r < 0)
		return r;
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

bool
cow__mapping_cut(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	if (t->allocation) /* a storage holds on to it */
		return false;
	if (start > cow__tile_start(t) || end < cow__tile_end(t))
		return cow__extent_cut(t, start, end);
	cow__extent_free(t);
	return true;
}

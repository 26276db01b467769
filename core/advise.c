/* SPDX-License-Identifier: MIT */
/*
 * A block behaves as anonymous memory. See the header.
 *
 * Most of it is done by the kernel on our mapping and written down, for the
 * next remapping (core/attribute.h). What differs:
 *
 * MADV_DONTNEED (and MADV_FREE, which may do as much) makes anonymous memory
 * read as zero. Of a shared mapping it only drops the page tables: so the file
 * pages are punched instead. Of a frozen one it brings the frozen bytes back:
 * so anonymous memory is laid over the range. Such a tile is *overlaid*: its
 * pages are no longer all in the file, and it is neither thawed nor cloned by
 * page again.
 *
 * munmap lays address space without access over the range.
 */
#include "core/advise.h"
#include "core/attribute.h"
#include "core/base.h"
#include "core/commit.h"
#include "core/engine.h"
#include "core/extent.h"
#include "core/mapping.h"
#include "core/stats.h"
#include "core/thaw.h"
#include "core/view.h"
#include "memfd/map.h"

/* Of <sys/mman.h>, which belongs to memfd/. */
enum {
	ADVICE_DONTNEED = 4,
	ADVICE_FREE = 8,
	ADVICE_REMOVE = 9,
	ADVICE_DONTFORK = 10,
	ADVICE_DOFORK = 11,
	ADVICE_HUGEPAGE = 14,
	ADVICE_NOHUGEPAGE = 15,
	ADVICE_DONTDUMP = 16,
	ADVICE_DODUMP = 17,
	ADVICE_WIPEONFORK = 18,
	ADVICE_KEEPONFORK = 19,
};

typedef int range_fn(struct cow__tile *t, uintptr_t start, uintptr_t end,
                     int value);

/* Calls `fn` for the part of each live tile in the range. What is not live is
 * an error, or skipped. */
static int
each_live(uintptr_t addr, size_t bytes, range_fn *fn, int value, bool skip)
{
	uintptr_t end = cow__round_up(addr + bytes, cow__page);
	int r = 0;

	if (addr % cow__page || end < addr)
		return -EINVAL;
	cow__engine_lock();
	while (r == 0 && addr < end) {
		struct cow__tile *t = cow__tile_find(addr);
		uintptr_t to;

		if (!t || (t->kind != COW__LIVE && !skip)) {
			r = -ENOMEM;
			break;
		}
		to = cow__min(cow__tile_end(t), end);
		if (t->kind == COW__LIVE)
			r = fn(t, addr, to, value);
		addr = to;
	}
	cow__engine_unlock();
	return r;
}

static int
each(uintptr_t addr, size_t bytes, range_fn *fn, int value)
{
	return each_live(addr, bytes, fn, value, false);
}

/* Makes a range of the tile the program's own anonymous memory. */
static int
overlay(struct cow__tile *t, uintptr_t start, uintptr_t end, bool none)
{
	int r = 0;

	cow__commit_forget_young(t);
	if (t->backing != COW__ANON && !cow__is_frozen(t)) {
		/* Give the pages back before they are out of reach. */
		if (t->backing == COW__SHARED && t->refs <= 1)
			(void)cow__map_punch(start, end - start);
		r = cow__freeze(t);
	}
	if (r == 0)
		r = none ? cow__map_none(start, end - start)
		         : cow__map_anon(start, end - start, false);
	if (r < 0)
		return r;
	cow__tile_change_begin(t);
	t->overlaid = t->slow = true;
	cow__tile_change_end(t);
	cow__fallback(COW_FALLBACK_REMAPPED);
	if (t->attributes && !none)
		cow__attributes_apply(t, start, end);
	return 0;
}

static int
discard(struct cow__tile *t, uintptr_t start, uintptr_t end, int value)
{
	struct cow__census c = { 0, 0 };

	(void)value;
	cow__commit_forget_young(t);
	if (t->backing == COW__ANON)
		return cow__map_advise(start, end - start, ADVICE_DONTNEED);
	if (t->backing == COW__SHARED && !t->pieces && cow__exclusive(t, &c))
		return cow__map_punch(start, end - start);
	return overlay(t, start, end, false);
}

/* The kernel does it; it is done again after each remapping. */
static int
advise_noted(struct cow__tile *t, uintptr_t start, uintptr_t end, int advice)
{
	int r = 0;

	/* Our shared mappings are never inherited; what they become is. */
	if (t->backing != COW__SHARED || advice == ADVICE_DONTDUMP ||
	    advice == ADVICE_DODUMP)
		r = cow__map_advise(start, end - start, advice);
	if (r == 0)
		r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_ADVICE,
		                       advice);
	return r;
}

static int
advise_wipe(struct cow__tile *t, uintptr_t start, uintptr_t end, int advice)
{
	return cow__attribute_add(t, start, end, COW__ATTRIBUTE_WIPE,
	                          advice == ADVICE_WIPEONFORK);
}

static int
advise_once(struct cow__tile *t, uintptr_t start, uintptr_t end, int advice)
{
	/* Huge pages are the engine's business where the memfd is. */
	if ((advice == ADVICE_HUGEPAGE || advice == ADVICE_NOHUGEPAGE) &&
	    t->backing != COW__ANON)
		return 0;
	if (advice == ADVICE_REMOVE) /* not for anonymous memory */
		return -EINVAL;
	return cow__map_advise(start, end - start, advice);
}

COW_EXPORT int
cow__advise(uintptr_t addr, size_t bytes, int advice)
{
	switch (advice) {
	case ADVICE_DONTNEED:
	case ADVICE_FREE:
		return each(addr, bytes, discard, 0);
	case ADVICE_DONTFORK:
	case ADVICE_DOFORK:
	case ADVICE_DONTDUMP:
	case ADVICE_DODUMP:
		return each(addr, bytes, advise_noted, advice);
	case ADVICE_WIPEONFORK:
	case ADVICE_KEEPONFORK:
		return each(addr, bytes, advise_wipe, advice);
	default:
		return each(addr, bytes, advise_once, advice);
	}
}

static int
protect(struct cow__tile *t, uintptr_t start, uintptr_t end, int prot)
{
	int r;

	if (!cow__mappings_left(2))
		return -ENOMEM;
	cow__commit_forget_young(t);
	r = cow__map_protect(start, end - start, prot);
	if (r == 0)
		r = cow__attribute_add(t, start, end,
		                       COW__ATTRIBUTE_PROTECTION, prot);
	return r;
}

COW_EXPORT int
cow__protect(uintptr_t addr, size_t bytes, int prot)
{
	return each(addr, bytes, protect, prot);
}

static int
lock_range(struct cow__tile *t, uintptr_t start, uintptr_t end, int flags)
{
	int r = cow__map_lock(start, end - start, flags);

	if (r == 0)
		r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_LOCK,
		                       flags);
	return r;
}

COW_EXPORT int
cow__lock_pages(uintptr_t addr, size_t bytes, int flags)
{
	uintptr_t start = cow__round_down(addr, cow__page);

	return each(start, bytes + (addr - start), lock_range, flags);
}

/* `value`: 1 for good, 0 to be mapped over. */
static int
unmap(struct cow__tile *t, uintptr_t start, uintptr_t end, int value)
{
	int r;

	if (value && t->mapping && cow__mapping_cut(t, start, end))
		return 0;
	r = overlay(t, start, end, true);
	if (r == 0 && t->mapping)
		r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_UNMAPPED,
		                       value);
	if (r == 0 && t->mapping && cow__attributes_unmapped(t))
		(void)cow__mapping_cut(t, cow__tile_start(t), cow__tile_end(t));
	return r;
}

COW_EXPORT int
cow__unmap(uintptr_t addr, size_t bytes)
{
	return each_live(addr, bytes, unmap, 1, true);
}

COW_EXPORT int
cow__overmap(uintptr_t addr, size_t bytes)
{
	return each(addr, bytes, unmap, 0);
}

static void
wipe(void *tile, uintptr_t start, uintptr_t end)
{
	(void)overlay(tile, start, end, false);
}

void
cow__advise_child(void)
{
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		if (t->kind == COW__LIVE && t->attributes)
			cow__attributes_wiped(t, wipe);
}

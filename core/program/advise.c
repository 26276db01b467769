/* SPDX-License-Identifier: MIT */
/*
 * A block behaves as anonymous memory: see the header.
 *
 * For most calls the kernel does the work on the engine's mapping, and the engine
 * notes it for the next remapping (core/memory/attribute.h). Two kinds differ.
 *
 * MADV_DONTNEED, and MADV_FREE, which may do as much, make anonymous memory read
 * as zero. On a shared mapping they only drop the page tables, so the engine
 * punches the file pages instead. On a frozen mapping they bring the frozen bytes
 * back, so the engine lays anonymous memory over the range. Such a tile is
 * *overlaid*: its pages are no longer all in the file. It is not cloned by page
 * until it thaws, which takes these parts home, too.
 *
 * munmap lays address space without access over the range: a *hole*. What the
 * program maps there again is its *own*. Anonymous memory that lies over a frozen
 * block counts as its own, too. There the kernel's answer to a call is the right
 * one (core/program/overmap.c). A tile with a hole or an own part never thaws.
 */
#include "core/program/advise.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/cow/thaw.h"
#include "core/memory/attribute.h"
#include "core/memory/commit.h"
#include "core/memory/state.h"
#include "core/program/range.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/process.h"

/* Of <sys/mman.h>, which belongs to memfd/. */
enum {
	ADVICE_RANDOM = 1,
	ADVICE_SEQUENTIAL = 2,
	ADVICE_DONTNEED = 4,
	ADVICE_FREE = 8,
	ADVICE_REMOVE = 9,
	ADVICE_DONTFORK = 10,
	ADVICE_DOFORK = 11,
	ADVICE_MERGEABLE = 12,
	ADVICE_HUGEPAGE = 14,
	ADVICE_NOHUGEPAGE = 15,
	ADVICE_DONTDUMP = 16,
	ADVICE_DODUMP = 17,
	ADVICE_WIPEONFORK = 18,
	ADVICE_KEEPONFORK = 19,
	ADVICE_DONTNEED_LOCKED = 24,
	ADVICE_GUARD_INSTALL = 102,
	PROTECTION_EXEC = 4,
};

/* Gives back file pages that lie under a hole, and that nobody else reads. */
static void
punch_hole(const struct cow__tile *t, uintptr_t start, size_t bytes)
{
	if (cow__map_shared(start, bytes, &t->own.segment->file,
	                    cow__segment_offset(start), false) < 0)
		return;
	(void)cow__map_punch(start, bytes);
	(void)cow__map_none(start, bytes);
}

/* Makes a range of the tile empty memory of the program's own, or a hole. Its
 * bytes go only when nothing can fail any more, unless the program wants them to
 * go anyway. If a note can't be made no byte is lost: the tile is left alone from
 * now on. */
static int
overlay(struct cow__tile *t, uintptr_t start, uintptr_t end,
        enum cow__place place)
{
	bool alone = t->map.backing == COW__SHARED && !t->map.pieces && t->own.refs <= 1 &&
	             !cow__tile_is_common(t);
	size_t bytes = end - start;
	int r;

	if (alone && place != COW__PLACE_HOLE)
		(void)cow__map_punch(start, bytes);
	r = place == COW__PLACE_ANON ? cow__range_prepare(t)
	                             : cow__range_leave_alone(t);
	if (r == 0)
		r = place == COW__PLACE_HOLE
		            ? cow__map_none(start, bytes)
		            : cow__map_anon(start, bytes, false);
	if (r < 0)
		return r;
	if (place == COW__PLACE_HOLE) {
		if (alone)
			punch_hole(t, start, bytes);
		(void)cow__attributes_cut(t, start, end);
	} else {
		cow__attributes_apply(t, start, end);
	}
	/* The tile must not thaw if that can't be noted. */
	if (cow__attribute_add(t, start, end, COW__ATTRIBUTE_PLACE, place) < 0)
		cow__range_lasts(t);
	return 0;
}

static int
discard(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
        int advice)
{
	struct cow__census c = { .asked = 0 };
	uintptr_t to = end;

	cow__commit_forget_young(t);
	if (own)
		return cow__map_advise(start, end - start, advice);
	if (advice != ADVICE_DONTNEED_LOCKED && t->map.attributes) {
		if (cow__attribute_at(t, COW__ATTRIBUTE_LOCK, -1, start,
		                      &to) >= 0)
			return -EINVAL;
		if (to < end) {
			int r = discard(t, start, to, own, advice);

			return r ? r : discard(t, to, end, own, advice);
		}
	}
	/* This has the effect of writing zeros. Nothing else keeps one memory for
	 * all. */
	if (cow__tile_is_common(t))
		return cow__map_punch(start, end - start);
	if (t->map.backing == COW__SHARED && !t->map.pieces && cow__exclusive(t, &c) &&
	    cow__map_punch(start, end - start) == 0)
		return 0;
	return overlay(t, start, end, COW__PLACE_ANON);
}

/* Guards take the place of pages, also of pages that are in no page table. */
static int
guard(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int advice)
{
	int r = 0;

	/* The engine may not read there any more, either. */
	if (own)
		r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_PLACE,
		                       COW__PLACE_OWN);
	if (r == 0)
		r = cow__map_advise(start, end - start, advice);
	cow__range_traces(t);
	if (own && t->map.backing != COW__ANON)
		t->map.overlay = COW__OVERLAY_LASTS;
	if (r < 0 || own)
		return r;
	r = overlay(t, start, end, COW__PLACE_OWN);
	return r ? r : cow__map_advise(start, end - start, advice);
}

/* The kernel does it. The engine does it again after each remapping. */
static int
advise_dump(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
            int advice)
{
	int r = cow__map_advise(start, end - start, advice);

	(void)own;
	if (r == 0)
		r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_DUMP,
		                       advice);
	return r;
}

/* Only children of prepared forks inherit the engine's mappings. The fork looks
 * at the notes then. What is not for children may not be in a file that they map: they
 * could grow their mapping over it. A device may have these pages from now on, so they may
 * not move at the first write after a fork, either. */
static int
advise_fork(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
            int advice)
{
	int r = 0;

	if (own || cow__tile_is_common(t))
		r = cow__map_advise(start, end - start, advice);
	else if (advice == ADVICE_DONTFORK)
		r = cow__withhold(t, start, end);
	/* For children of forks that the engine does not see. */
	if (r == 0 && !own && !cow__tile_is_common(t) && advice == ADVICE_DONTFORK)
		r = cow__map_advise(start, end - start, advice);
	if (r == 0)
		r = cow__attribute_add(t, start, end, COW__ATTRIBUTE_FORK,
		                       advice == ADVICE_DONTFORK);
	return r;
}

static int
advise_wipe(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
            int advice)
{
	int r = own ? cow__map_advise(start, end - start, advice) : 0;

	if (r == 0 && !own && !cow__tile_is_common(t) && advice == ADVICE_WIPEONFORK) {
		r = cow__withhold(t, start, end);
		/* For children of forks that the engine does not see. What is still a file's
		 * (-EINVAL) they do not inherit. */
		if (r == 0)
			(void)cow__map_advise(start, end - start, advice);
	}
	if (r < 0)
		return r;
	return cow__attribute_add(t, start, end, COW__ATTRIBUTE_WIPE,
	                          advice == ADVICE_WIPEONFORK);
}

static int
advise_once(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
            int advice)
{
	/* In a memfd the engine decides on huge pages. */
	if (!own && (advice == ADVICE_HUGEPAGE || advice == ADVICE_NOHUGEPAGE))
		return 0;
	if (!own && advice == ADVICE_REMOVE) /* not for anonymous memory */
		return -EINVAL;
	if (advice == ADVICE_RANDOM || advice == ADVICE_SEQUENTIAL ||
	    advice == ADVICE_MERGEABLE || advice == ADVICE_NOHUGEPAGE)
		cow__range_traces(t);
	return cow__map_advise(start, end - start, advice);
}

COW_EXPORT bool
cow__huge_apart(bool yes)
{
	if (cow__mutex_is_mine(&cow__engine.lock)) /* in a signal handler */
		return false;
	cow__engine_lock();
	yes &= cow__engine.use_collapse;
	for (struct cow__tile *t = cow__tile_first(); yes && !cow__map_advised && t; t = t->next)
		if (t->kind == COW__LIVE && !t->map.overlay &&
		    (t->map.backing == COW__SHARED || t->map.backing == COW__PRIVATE))
			(void)cow__map_advise(cow__tile_start(t), t->bytes, ADVICE_HUGEPAGE);
	cow__map_advised = yes;
	cow__engine_unlock();
	return yes;
}

COW_EXPORT int
cow__advise(uintptr_t addr, size_t bytes, int advice)
{
	cow__range_fn *fn;

	switch (advice) {
	case ADVICE_DONTNEED:
	case ADVICE_FREE:
	case ADVICE_DONTNEED_LOCKED:
		fn = discard;
		break;
	case ADVICE_GUARD_INSTALL:
		fn = guard;
		break;
	case ADVICE_DONTFORK:
	case ADVICE_DOFORK:
		fn = advise_fork;
		break;
	case ADVICE_DONTDUMP:
	case ADVICE_DODUMP:
		fn = advise_dump;
		break;
	case ADVICE_WIPEONFORK:
	case ADVICE_KEEPONFORK:
		fn = advise_wipe;
		break;
	default:
		fn = advise_once;
	}
	return cow__range_each(addr, bytes, fn, advice, COW__HOLES_SKIP);
}

/* Without a key in the call, pages keep the key that they have. Pages that are
 * execute-only get a key of the kernel's. */
static int
note_protection(struct cow__tile *t, uintptr_t start, uintptr_t end, int prot)
{
	int r = 0, key;
	uintptr_t to;

	if (prot & COW__MAP_KEYS || prot == PROTECTION_EXEC ||
	    !cow__attributes_have_key(t, start, end))
		return cow__attribute_add(t, start, end,
		                          COW__ATTRIBUTE_PROTECTION, prot);
	for (; r == 0 && start < end; start = to) {
		to = end;
		key = COW__MAP_KEYS &
		      cow__attribute_at(t, COW__ATTRIBUTE_PROTECTION, 0, start,
		                        &to);
		r = cow__attribute_add(t, start, to, COW__ATTRIBUTE_PROTECTION,
		                       prot | key);
	}
	return r;
}

static int
protect(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int prot)
{
	int r;

	(void)own;
	if (!cow__mappings_left(2))
		return -ENOMEM;
	cow__commit_forget_young(t);
	r = cow__map_protect(start, end - start, prot);
	return r == 0 ? note_protection(t, start, end, prot) : r;
}

COW_EXPORT int
cow__protect(uintptr_t addr, size_t bytes, int prot, int key)
{
	if (key >= 0)
		prot = (prot & 0xffff) | COW__MAP_KEY(key);
	return cow__range_each(addr, bytes, protect, prot, COW__HOLES_STOP);
}

static int
lock_range(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own,
           int flags)
{
	int r = cow__map_lock(start, end - start, flags);
	int noted;

	(void)own;
	/* -ENOMEM: locked, but not all of it can be touched. */
	if (r < 0 && r != -ENOMEM)
		return r;
	noted = cow__attribute_add(t, start, end, COW__ATTRIBUTE_LOCK, flags);
	return r ? r : noted;
}

COW_EXPORT int
cow__lock_pages(uintptr_t addr, size_t bytes, int flags)
{
	uintptr_t start = cow__round_down(addr, cow__page);

	return cow__range_each(start, bytes + (addr - start), lock_range, flags,
	                       COW__HOLES_STOP);
}

COW_EXPORT int
cow__unlock_all(void)
{
	int r;

	cow__engine_lock();
	r = cow__map_unlock_all();
	for (struct cow__tile *t = cow__tile_first(); r == 0 && t; t = t->next) {
		if (!t->map.attributes)
			continue;
		cow__tile_change_begin(t);
		cow__attributes_unlock(t);
		cow__tile_change_end(t);
	}
	cow__engine_unlock();
	return r;
}

static int
unmap(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int value)
{
	int r;

	(void)own, (void)value;
	if (cow__tile_is_mapping(t) && cow__range_cut(t, start, end))
		return 0;
	r = overlay(t, start, end, COW__PLACE_HOLE);
	if (r == 0 && cow__tile_is_mapping(t) && cow__attributes_unmapped(t))
		(void)cow__range_cut(t, cow__tile_start(t), cow__tile_end(t));
	return r;
}

/* A mapping on which the helper works can't be cut, and what stays as a hole can't grow. */
static void
wait_to_cut(uintptr_t at, uintptr_t start, uintptr_t end)
{
	struct cow__tile *t = cow__tile_find(at);

	if (t && cow__tile_is_mapping(t) && (cow__tile_start(t) < start || cow__tile_end(t) > end))
		(void)cow__commit_wait(&t, at);
}

COW_EXPORT int
cow__unmap(uintptr_t addr, size_t bytes)
{
	uintptr_t end = cow__round_up(addr + bytes, cow__page);
	int r;

	if (addr % cow__page || end < addr)
		return -EINVAL;
	cow__engine_lock();
	if (bytes) {
		wait_to_cut(addr, addr, end);
		wait_to_cut(end - cow__page, addr, end);
	}
	r = cow__range_each_locked(addr, end, unmap, 0, COW__HOLES_ANYWHERE);
	cow__engine_unlock();
	return r;
}

static int
bind(struct cow__tile *t, uintptr_t start, uintptr_t end, bool own, int value)
{
	(void)start, (void)end, (void)own, (void)value;
	cow__range_traces(t);
	t->own.bound = true;
	return 0;
}

COW_EXPORT void
cow__bound(uintptr_t addr, size_t bytes)
{
	(void)cow__range_each(addr, bytes, bind, 0, COW__HOLES_SKIP);
}

COW_EXPORT void
cow__placed(void)
{
	cow__engine_lock();
	cow__engine.placed = true;
	cow__engine_unlock();
}

/* The range may hold keys, or the state of a random number generator. A child
 * that still has them must not go on. */
static void
wipe(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	if (overlay(t, start, end, COW__PLACE_ANON) == 0)
		return;
	if (cow__tile_is_common(t) || cow__map_protect(start, end - start,
	                                  COW__MAP_READ_WRITE) < 0)
		cow__process_exit(127);
	memset((void *)start, 0, end - start);
	cow__attributes_apply(t, start, end);
}

static void
reserve(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	(void)t;
	(void)cow__map_none(start, end - start);
}

static void
leave_out(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	(void)overlay(t, start, end, COW__PLACE_HOLE);
}

COW_FORK_CODE void
cow__advise_child_early(void)
{
	if (!cow__attributes_any())
		return;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		if (t->kind == COW__LIVE)
			cow__attributes_each(t, COW__ATTRIBUTE_FORK, 1, reserve);
		cow__tile_change_begin(t);
		cow__attributes_unlock(t);
		cow__tile_change_end(t);
	}
}

COW_FORK_CODE void
cow__advise_child(void)
{
	if (!cow__attributes_any())
		return;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		if (t->kind != COW__LIVE || !t->map.attributes)
			continue;
		cow__attributes_each(t, COW__ATTRIBUTE_FORK, 1, leave_out);
		cow__attributes_each(t, COW__ATTRIBUTE_WIPE, 1, wipe);
	}
}

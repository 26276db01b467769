/* SPDX-License-Identifier: MIT */
/*
 * What may happen to a range of memory: states, obstacles, and the table of both
 *
 * Each tile (core/memory/tile.h) is in one state. An event is something that the engine wants to
 * do with it, as to freeze it. The table in can.c says from which states an event is possible, and
 * which obstacles refuse it. For the events that it names, cow__can() decides that.
 *
 *            allocate                 freeze               rewrite, forward: other pages
 *   bare  \  ---------->            ---------->            --------.
 *   cold   |              shared                  frozen           |
 *   warm  /  <----------            <----------            <-------'
 *                free      ^   thaw      |  thaw of a part
 *                          |             v
 *                          '--------- partly        (parts are shared, parts are frozen)
 *                             thaw
 *
 *   anonymous  the kernel forks it by itself; a zeroed block joins a file from there: frozen
 *   limbo      freed, or a layer, and others still read its pages; free when none does
 *   inner      the engine's own, from bare and back; warm memory while it cools
 *   lost       from bare, for good
 *
 * Whether others read the pages is no state, because it changes without an event: a child ends.
 * So each event that needs exclusive pages asks for them as well (core/cow/exclusive.h), under
 * the same lock.
 *
 * An obstacle is a line here and bits in can.c. A new state of live memory also needs its line in
 * cow__state(); one of free memory is a heat (tile.h), whose order is that of the first states
 * here, and place.c, decay.c and inherit.c say how memory enters and leaves it. The table in
 * README.md is compared with the code by tests/core/memory/test_can.c.
 *
 * Engine locked throughout. Costs a few ns.
 */
#ifndef COW_CORE_MEMORY_CAN_H
#define COW_CORE_MEMORY_CAN_H

#include "core/memory/tile.h"

enum cow__state {
	COW__IS_BARE,   /* free: address space alone */
	COW__IS_COLD,   /* free: mapped, without pages */
	COW__IS_WARM,   /* free: with pages */
	COW__IS_SHARED, /* live: written in place in its file */
	COW__IS_FROZEN, /* live: mapped private; the file pages don't change */
	COW__IS_PARTLY, /* live: parts are private since a thaw, the rest is shared */
	COW__IS_ANON,   /* live: in no file */
	COW__IS_LIMBO,  /* freed, but its pages are read by views or other processes */
	COW__IS_INNER,  /* the engine's own */
	COW__IS_LOST,   /* addresses that were given back to the program */
	COW__STATES
};

enum cow__event {
	COW__TO_FREEZE,    /* its file pages shall change no more (core/cow/freeze.c) */
	COW__TO_VIEW,      /* a second mapping of its pages (core/cow/view.c) */
	COW__TO_THAW,      /* written in place again (core/cow/heal.c) */
	COW__TO_THAW_MANY, /* ... with its neighbours, in one call (core/cow/thaw.c) */
	COW__TO_AHEAD,     /* its copied pages go to the file before a thaw (core/cow/ahead.c) */
	COW__TO_REWRITE,   /* gets fresh pages for a rewrite (core/cow/rewrite.c) */
	COW__TO_FORWARD,   /* moves to a file that no relative has (core/cow/forward.c) */
	COW__TO_COPY_OVER, /* becomes a lazy copy of another block (core/cow/copy.c) */
	COW__TO_COPY_PART, /* the same for a part of a storage */
	COW__TO_SEAL,      /* its file is sealed for receivers (core/cow/seal.c) */
	COW__TO_ALIAS,     /* other processes write it, too (core/cow/alias.c) */
	COW__TO_JOIN,      /* anonymous zeroed memory joins a file (core/cow/zeroed.c) */
	COW__TO_CUT,       /* parts of it are freed, or come (core/memory/extent.c) */
	COW__TO_CLOSE_GAP, /* grows to the end of its last 2 MiB (core/cow/freeze.c) */
	COW__TO_EMPTY,     /* its pages go without the lock, before it is free (apart.c) */
	COW__TO_FILL,      /* its page table entries come back (resident.c) */
	COW__EVENTS
};

enum cow__obstacle {
	COW__IF_NOTED = 1 << 0,      /* the program changed protection, locks or advice */
	COW__IF_OVERLAID = 1 << 1,   /* parts are the program's own mappings, or anonymous */
	COW__IF_SLOW = 1 << 2,       /* the program did something else to the mapping */
	COW__IF_BOUND = 1 << 3,      /* the program gave it a NUMA policy */
	COW__IF_PINNED = 1 << 4,     /* a device works on its pages */
	COW__IF_COMMON = 1 << 5,     /* other processes write it */
	COW__IF_LAZY = 1 << 6,       /* a lazy copy whose own pages are freed */
	COW__IF_BUSY = 1 << 7,       /* a thread works on its pages without the lock */
	COW__IF_PUNCHING = 1 << 8,   /* ... and frees file pages under copied ones, or has to end it */
	COW__IF_PIECED = 1 << 9,     /* it shows pages of other tiles */
	COW__IF_SCATTERED = 1 << 10, /* ... in more than 48 pieces */
	COW__IF_READ = 1 << 11,      /* views in this process read its pages */
	COW__IF_FOREIGN = 1 << 12,   /* its file is sealed, or another process made it */
	COW__IF_BLOCK = 1 << 13,     /* it is a block of the program's */
	COW__IF_MAPPING = 1 << 14,   /* ... by its own mmap */
	COW__IF_NO_BLOCK = 1 << 15,  /* it is none */
	COW__IF_STORAGE = 1 << 16,   /* a storage uses it */
	COW__OBSTACLES = 17          /* so many */
};

enum cow__state cow__state(const struct cow__tile *t);

/* The obstacles that the tile has. */
uint32_t cow__obstacles(const struct cow__tile *t);

bool cow__can(const struct cow__tile *t, enum cow__event event);

#endif

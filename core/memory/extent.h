/* SPDX-License-Identifier: MIT */
/*
 * Extents: live tiles, from allocation to recycling
 *
 * All functions want the engine locked and keep it so.
 */
#ifndef COW_CORE_MEMORY_EXTENT_H
#define COW_CORE_MEMORY_EXTENT_H

#include "core/memory/holders.h"
#include "core/memory/tile.h"

enum cow__extent_flags {
	COW__EXTENT_MEMFD = 1 << 0,  /* not anonymous, whatever the policy */
	COW__EXTENT_STRICT = 1 << 1, /* commit now */
	COW__EXTENT_ROOM = 1 << 2,   /* leave address space to grow behind it */
	COW__EXTENT_WHOLE = 1 << 3,  /* all of it will be written at once */
	COW__EXTENT_MAPPING = 1 << 4, /* where core/program/mapping.h has its memory */
};

/*
 * A live tile of at least `bytes` bytes. So many bytes from its start on as
 * *ret_dirty says may be anything, the rest reads as zero. -ENOMEM and what the
 * kernel says.
 */
int cow__extent_new(size_t bytes, size_t align, unsigned flags,
                    struct cow__tile **ret, size_t *ret_dirty);

/* A tile off the free lists, mapped as its backing says, becomes a live one. */
void cow__extent_live(struct cow__tile *t, size_t used);

/* The program's mapping ends. What views or other processes still read stays
 * in limbo until they are done; the rest becomes warm. Can't fail. */
void cow__extent_free(struct cow__tile *t);

/* A live tile becomes one that only views read: in limbo, its own mapping (and
 * the reference that goes with it, which the caller drops) ends. */
void cow__extent_detach(struct cow__tile *t);

/* Nobody maps the pages of `t` here. Back to the free lists, warm if they are
 * ours to use again; `alone`: no other process has them. */
void cow__recycle(struct cow__tile *t, bool alone);

/* One mapping less reads the pages of `t`. */
void cow__extent_unref_pages(struct cow__tile *t);

/* In place: false if that is not possible; nothing changed then. */
bool cow__extent_resize(struct cow__tile *t, size_t bytes);

/* Ends a part of a live tile; what is before and behind it lives on, each as a
 * tile of its own. False if that is not possible. */
bool cow__extent_cut(struct cow__tile *t, uintptr_t start, uintptr_t end);

/* Looks after tiles in limbo whose other holders may be gone. Returns how many
 * still wait. */
unsigned cow__extent_poll_limbo(void);

/* In a forked child, where a live tile was not inherited: gives it this copy
 * of its bytes (made by cow__map_meta()) at its address. */
int cow__extent_replace(struct cow__tile *t, void *copy);

/* In a forked child: makes addresses that were not inherited free again. */
void cow__extents_child(void);

/* Makes a free tile of this segment, or a free anonymous one (NULL), address space
 * alone, without pages. Nothing, if it is none. Best effort. Engine locked. */
void cow__extent_leave_file(struct cow__tile *rest, struct cow__segment *s);

/* cow__tile_put() of a tile whose mapping is gone. What an anonymous block left of its last
 * 2 MiB goes, too: its last huge page may lie under that, and would stay for ever, since
 * what has no pages is not looked after. Engine locked. */
void cow__extent_put_bare(struct cow__tile *t);

/* Its mapping was replaced by another one, of all of it: forgets the pieces and parts
 * that were mapped there. The caller says what is now. Engine locked. */
void cow__extent_remapped(struct cow__tile *t);

/* The helper's job: what is in limbo, and segments that have ended. */
uint64_t cow__limbo_job(uint64_t now);

#endif

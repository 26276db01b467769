/* SPDX-License-Identifier: MIT */
/*
 * Packs: memfds that hold many storages of one group
 *
 * A hundred thousand storages need one descriptor and one mapping. A pack's owner is the
 * member that made it; it alone hands out *extents* of pages. Each member that got an
 * extent maps the pack.
 *
 *   [ head | generations | rows: who holds what | data: extents of pages ]
 *            one word      one row a slot, one
 *            a page        bit a page
 *
 * Alias packs are mapped shared for ever. The others become private mappings at a fork:
 * parent and child each go on with the bytes of that moment, as in all memory. Such a
 * pack is *retired*: no new extent of it is handed out, and writes to it no longer reach
 * the file. Where the kernel refuses the private mapping (the program closed the
 * descriptor), the child gets copies.
 */
#ifndef COW_SHARE_PACK_H
#define COW_SHARE_PACK_H

#include "share/hold.h"

/* The caller of each of these holds cow__share_lock. */

/* An extent of a pack of ours, held by this process. From 2 MiB on it is aligned to 2 MiB.
 * -ENOSPC: it is too large for a pack, or this process owns too many packs. */
int cow__pack_alloc(struct cow_group *g, bool alias, size_t bytes,
                    struct cow__pack **ret, struct cow__extent_at *ret_at);

/* The pack with this id, if this process maps it. */
struct cow__pack *cow__pack_find(struct cow_group *g, const struct cow__id *id);

/* Maps a pack of another member. Takes `file` over on success. -EBADMSG: it is not a
 * pack of this group, or is mapped already. */
int cow__pack_attach(struct cow_group *g, struct cow__descriptor *file,
                     struct cow__pack **ret);

/* Does `at` lie within the pack's pages? */
bool cow__pack_has(const struct cow__pack *p, const struct cow__extent_at *at);

/* Gives the extent a new generation and returns it: messages with the old one no longer
 * mean the extent. */
uint32_t cow__pack_renew(struct cow__pack *p, uint32_t page);

/* Frees the extents in limbo that nobody holds any more. Unmaps packs in which this
 * process has no home, unless it still hands out their extents or waits for some. */
void cow__packs_sweep(struct cow_group *g);
void cow__packs_free(struct cow_group *g);

/* In a forked child, which owns no pack: frees their spaces. */
void cow__packs_child(struct cow_group *g);

/* Before a fork: maps the data private, unless it is an alias pack. 0 or -errno. */
int cow__pack_retire(struct cow__pack *p);

#endif

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
 * A member that holds an extent has set the bit of its first page in its own row. A row
 * counts only while its slot's lock is held and the epoch noted for it is the slot's. So
 * when a member is killed, all that it held is free at that moment, and no process has to
 * clean up. The next owner of its slot does not inherit the old bits.
 *
 * The only holder of an extent may write it in place. The pack's owner uses it again
 * when it has no holder. Only a holder can make another holder, so a holder that found
 * itself alone stays alone until it sends the extent.
 *
 * The last holder that leaves gives the pages back. When two leave at once, each must not
 * take the other for the last. So each sets its bit in a second row, *leaving*, before it
 * looks, and the one with the higher slot waits for the other.
 *
 * Alias packs are mapped shared for ever. The others become private mappings at a fork:
 * parent and child each go on with the bytes of that moment, as in all memory. Such a
 * pack is *retired*: no new extent of it is handed out, and writes to it no longer reach
 * the file. Where the kernel refuses the private mapping (the program closed the
 * descriptor), the child gets copies.
 */
#ifndef COW_SHARE_PACK_H
#define COW_SHARE_PACK_H

#include "core/base/base.h"
#include "share/group.h"

#include <stddef.h>

struct cow__pack {
	struct cow__pack *next; /* in the group's list */
	struct cow_group *group;
	struct cow__descriptor file;
	struct cow__pack_head *head;
	struct cow__id id;
	uint32_t *generations;
	char *rows, *data;
	size_t bytes; /* of the whole mapping */
	uint32_t pages;   /* of the data part */
	uint32_t highest; /* page that this process ever held */
	bool owner, alias, retired;
	/* The child could not map the file, and has copies of what was held. Stays set in
	 * the child, where the pack is retired; in the parent until the fork is over. */
	bool severed;
	void *copy;
	size_t copied;
	uint32_t homes; /* of this process, in this pack */
	/* What is free in it: share/pack_space.h. NULL: another member is the owner. */
	struct cow__pack_space *space;
};

struct cow__extent_at {
	uint32_t page, pages, generation;
};

/* Slots that were found alive, so that the kernel is asked once for each. If the owner of
 * a slot has died since, a page is kept too long. */
struct cow__roll {
	uint64_t alive[COW__SLOTS / 64];
};

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

/* Sets, tests and clears the bit of an extent in a slot's row. */
void cow__hold_set(struct cow__pack *p, const struct cow__slot *s,
                   uint32_t page);
bool cow__hold_has(const struct cow__pack *p, const struct cow__slot *s,
                   uint32_t page);
void cow__hold_clear(struct cow__pack *p, const struct cow__slot *s,
                     uint32_t page);

/* True if no other living member and no message holds it. */
bool cow__hold_alone(struct cow__pack *p, uint32_t page, struct cow__roll *r);

/* Before a fork: lets the child hold what this process holds. */
void cow__hold_inherit(struct cow__pack *p, const struct cow__slot *child);

/* Ends this process's hold on an extent. The last holder gives its pages back. */
void cow__pack_free(struct cow__pack *p, const struct cow__extent_at *at);

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

static inline char *
cow__pack_data(const struct cow__pack *p, uint32_t page)
{
	return p->data + (size_t)page * cow__page;
}

#endif

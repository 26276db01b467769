/* SPDX-License-Identifier: MIT */
/*
 * Packs: memfds that hold many storages of one group
 *
 * One descriptor and one mapping for a hundred thousand storages. A pack belongs
 * to the member that made it: that one alone hands out *extents* of pages. All
 * members that got one of them map the pack.
 *
 *   [ head | generations | rows: who holds what | data: extents of pages ]
 *            one word      one row a slot, one
 *            a page        bit a page
 *
 * A member that holds an extent has set the bit of its first page in its own row.
 * Rows, rather than lists of holders, because then death costs nothing: a row
 * counts only while the slot's lock is held and the epoch written at its head is
 * the slot's. What a killed member held is free at that moment, without anybody's
 * help, however much it was; and who gets its slot finds none of the old bits
 * valid.
 *
 * An extent may be written in place by its only holder, and be reused by the
 * owner when it has none. Nobody but a holder can make another one, so "I am the
 * only one" stays true until one does something about it.
 *
 * The last one out gives the pages back. Two that leave at once must not both
 * believe the other is the last: each first sets its bit in a second row, *leaving*,
 * then looks, and who has the higher slot waits for the other.
 *
 * Alias packs are mapped shared for ever. The others become private mappings at a
 * fork: parent and child each go on with the bytes of that moment, as with all
 * memory. Such a pack is *retired*: nothing new is written through it. Where the
 * kernel refuses that (the program closed the descriptor), the child gets copies.
 */
#ifndef COW_SHARE_PACK_H
#define COW_SHARE_PACK_H

#include "core/base/base.h"
#include "share/group.h"

#include <stddef.h>

struct cow__pack {
	struct cow__pack *next; /* of the group */
	struct cow_group *group;
	struct cow__descriptor file;
	struct cow__pack_head *head;
	struct cow__id id;
	uint32_t *generations;
	char *rows, *data;
	size_t bytes; /* of the whole mapping */
	uint32_t pages, highest; /* page that this process ever held */
	bool owner, alias, retired;
	/* Its file could not be mapped for a child, who has copies of what was held:
	 * retired there; here only until the fork is over. */
	bool severed;
	void *copy;
	size_t copied;
	uint32_t homes; /* in this process, that lie in it */
	/* The owner's: extents given out, by size; what is free. */
	struct cow__pack_space *space;
};

struct cow__extent_at {
	uint32_t page, pages, generation;
};

/* Slots that were found alive, to ask once. An answer that is out of date keeps a
 * page too long, no more. */
struct cow__roll {
	uint64_t alive[COW__SLOTS / 64];
};

/* All of these want cow__share_lock. */

/* An extent of a pack of ours, held by this process; 2 MiB aligned from there on.
 * -ENOSPC: larger than a pack may hold. */
int cow__pack_alloc(struct cow_group *g, bool alias, size_t bytes,
                    struct cow__pack **ret, struct cow__extent_at *ret_at);

/* The pack with this id, if this process maps it. */
struct cow__pack *cow__pack_find(struct cow_group *g, const struct cow__id *id);

/* Maps a pack of another member. Takes over `file` on success. -EBADMSG: it is
 * none of this group. */
int cow__pack_attach(struct cow_group *g, struct cow__descriptor *file,
                     struct cow__pack **ret);

/* May `at` be an extent of it? */
bool cow__pack_has(const struct cow__pack *p, const struct cow__extent_at *at);

/* Sets, tests and clears the bit of an extent in a slot's row. */
void cow__hold_set(struct cow__pack *p, const struct cow__slot *s,
                   uint32_t page);
bool cow__hold_has(const struct cow__pack *p, const struct cow__slot *s,
                   uint32_t page);
void cow__hold_clear(struct cow__pack *p, const struct cow__slot *s,
                     uint32_t page);

/* Does no other living member, and no message, hold it? */
bool cow__hold_alone(struct cow__pack *p, uint32_t page, struct cow__roll *r);

/* The child of the coming fork holds what this process holds. */
void cow__hold_inherit(struct cow__pack *p, const struct cow__slot *child);

/* Ends this process's hold on an extent; the last one gives its pages back. */
void cow__pack_free(struct cow__pack *p, const struct cow__extent_at *at);

/* Another generation: who knew the extent by the old one knows it no more. */
uint32_t cow__pack_renew(struct cow__pack *p, uint32_t page);

/* Unmaps packs that nothing of this process lies in and that are of no more
 * use. */
void cow__packs_sweep(struct cow_group *g);
void cow__packs_free(struct cow_group *g);

/* In a forked child: none is its own. */
void cow__packs_child(struct cow_group *g);

/* Before a fork: private from here on. 0 or -errno. */
int cow__pack_retire(struct cow__pack *p);

static inline char *
cow__pack_data(const struct cow__pack *p, uint32_t page)
{
	return p->data + (size_t)page * cow__page;
}

#endif

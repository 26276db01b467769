/* SPDX-License-Identifier: MIT */
/*
 * The layout of a pack's file (share/pack.h), and where this process maps it
 *
 * All members of a group read and write the file, so its layout has a version.
 */
#ifndef COW_SHARE_LAYOUT_H
#define COW_SHARE_LAYOUT_H

#include "core/base/base.h"
#include "share/slot.h"

#include <stddef.h>

#define COW__PACK_MAGIC 0x6b636170776f63u /* "cowpack" */
#define COW__PACK_VERSION 1u
#define COW__ROWS (COW__SLOTS + 1) /* the last one is the crowd's */
#define COW__PACK_HUGE ((size_t)2 << 20)

struct cow__pack_head {
	uint64_t magic;
	uint32_t version, page_bytes;
	uint32_t pages; /* of the data part */
	uint32_t alias;
	struct cow__id group, id;
	uint64_t moves; /* how many bits were ever set: see others() in hold.c */
	/* For each row the epoch of the slot that wrote it; 0: it has no bits. */
	uint32_t row_epoch[COW__ROWS];
};

static inline size_t
cow__head_bytes(void)
{
	return cow__round_up(sizeof(struct cow__pack_head), cow__page);
}

static inline size_t
cow__generations_bytes(uint32_t pages)
{
	return cow__round_up((size_t)pages * sizeof(uint32_t), cow__page);
}

static inline size_t
cow__row_bytes(uint32_t pages)
{
	return cow__round_up((size_t)pages / 8, cow__page);
}

/* Where a row begins, within the rows. */
static inline size_t
cow__row_offset(uint32_t pages, uint32_t slot, bool leaving)
{
	return ((size_t)leaving * COW__ROWS + slot) * cow__row_bytes(pages);
}

static inline size_t
cow__data_offset(uint32_t pages)
{
	return cow__round_up(cow__head_bytes() + cow__generations_bytes(pages) +
	                             2 * COW__ROWS * cow__row_bytes(pages),
	                     COW__PACK_HUGE);
}

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

static inline char *
cow__pack_data(const struct cow__pack *p, uint32_t page)
{
	return p->data + (size_t)page * cow__page;
}

#endif

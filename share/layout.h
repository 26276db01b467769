/* SPDX-License-Identifier: MIT */
/*
 * The layout of a pack's file
 *
 * All members of a group read and write it, so it has a version.
 */
#ifndef COW_SHARE_LAYOUT_H
#define COW_SHARE_LAYOUT_H

#include "core/base/base.h"
#include "share/pack.h"

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

/* Marks a message's row as clean, when the receiver has taken over all that it held. */
void cow__hold_landed(struct cow__pack *p, const struct cow__slot *s);

/* Is this process, which is leaving, the last holder? The bits stay until
 * cow__hold_left(), and protect what the caller does meanwhile. *ret_only false: another
 * slot is leaving, too, and may give the pages back a second time, later. */
bool cow__hold_last(struct cow__pack *p, uint32_t page, struct cow__roll *r,
                    bool *ret_only);
void cow__hold_left(struct cow__pack *p, uint32_t page);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Messages between processes
 *
 *   [ head | packs | items | inline bytes | note ]     and descriptors:
 *   [ the group's door | the message's slot | packs' files | storages' files ]
 *
 * A message brings all that is needed to understand it, descriptors too. So a receiver
 * keeps no state, and none is lost when it dies. Numbers are in the machine's byte order:
 * a message never leaves the machine.
 *
 * cow__wire_check() checks that a message agrees with itself. Before that share/inbox.c
 * uses its length and its number of descriptors, and nothing else. The code that uses any
 * other number checks that it means something in this process.
 */
#ifndef COW_SHARE_WIRE_H
#define COW_SHARE_WIRE_H

#include "share/slot.h"

#include <stddef.h>

#define COW__WIRE_MAGIC 0x6d776f63u /* "cowm" */
#define COW__WIRE_VERSION 1u
#define COW__WIRE_BYTES 65536u /* of one message, at most */
#define COW__WIRE_ITEMS 1024u
#define COW__WIRE_FDS 64u
#define COW__WIRE_TOKEN_BYTES 16u
#define COW__WIRE_INLINE 512u /* smaller clones travel as bytes */

enum cow__wire_flags {
	COW__WIRE_DOOR = 1, /* the first descriptor is the group's door */
	COW__WIRE_SLOT = 2, /* the next one is the slot that holds packed items */
};

struct cow__wire_head {
	uint32_t magic;
	uint16_t version, flags;
	uint32_t bytes; /* of the whole message */
	uint16_t items, packs, fds, reserved;
	uint32_t inline_bytes, note_bytes;
	uint32_t slot, epoch;
	struct cow__id group;
};

enum cow__wire_kind {
	COW__WIRE_NOTHING, /* zero bytes */
	COW__WIRE_BYTES_HERE,
	COW__WIRE_PACKED,  /* an extent of packs[index] */
	COW__WIRE_OWN,     /* a memfd of its own: descriptor `index` */
	COW__WIRE_TOKEN,   /* the broker has it; its token is among the bytes */
	COW__WIRE_DEVICE,  /* a device's memory: a struct cow__wire_device among
	                      the bytes, and descriptor `index` unless it has
	                      zero bytes */
	COW__WIRE_KINDS,
};

struct cow__wire_item {
	uint8_t mode, kind;
	uint16_t index;
	uint32_t page, pages, generation; /* packed */
	uint64_t bytes;                   /* of the storage */
	uint64_t file_offset;             /* own: where it begins in the memfd */
	uint64_t offset, length;          /* the view */
};

/* Device memory: `pieces` pieces of `piece_bytes`, with a descriptor each. One descriptor
 * is sent as it is. For several the message has a packet socket; its queue has them, in
 * order, up to COW__WIRE_BUNDLE in a packet of one byte. */
#define COW__WIRE_BUNDLE 250u
enum cow__wire_device_flags {
	COW__WIRE_EVENT = 1, /* `event` must be over before the memory is used */
};
struct cow__wire_device {
	uint8_t uuid[16];
	uint64_t piece_bytes;
	uint32_t pieces, flags;
	struct cow__id id; /* of an alias, which the receiver knows again; 0: none */
	uint8_t event[64];
};

struct cow__wire {
	struct cow__wire_head head;
	const struct cow__wire_item *items;
	const unsigned char *inline_bytes, *note;
	unsigned door, slot, packs, own; /* the first descriptor of each kind */
};

/* The message's length by its head. -EBADMSG: it is not a head of this version. */
long cow__wire_length(const struct cow__wire_head *head);

/* Takes a whole message apart. -EBADMSG: it contradicts itself. Reads only
 * buf[0..bytes), which must be aligned to 8 bytes. */
int cow__wire_check(const void *buf, size_t bytes, unsigned nfds,
                    struct cow__wire *ret);

#endif

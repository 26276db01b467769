/* SPDX-License-Identifier: MIT */
/*
 * Slots: which members of a group live
 *
 * A member has a *slot*: a lock on one byte of the group's memfd, taken through an
 * open file description of its own. The kernel drops the lock when the member leaves the
 * group, dies or execs. The *anchor*, a mapping, keeps the description open if the
 * program closes every descriptor. A message on its way has a slot, too, and its
 * descriptor travels with it. So the message itself holds what it carries, also when the
 * sender is gone.
 *
 * Slots are used again. Each new owner adds one to the slot's *epoch*, so what an earlier
 * owner wrote under the same number does not count for the new one.
 *
 *     memfd "cowshed-group":  [ id | epochs ]   locks: byte n = slot n
 */
#ifndef COW_SHARE_SLOT_H
#define COW_SHARE_SLOT_H

#include "core/base/mutex.h"
#include "memfd/descriptor.h"

#include <stdbool.h>
#include <stdint.h>

#define COW__SLOTS 256
/* Messages take slots below a limit, so that a reader that is slow to take them stops neither
 * new members nor aliases. A clone that finds no slot goes in a memfd of its own. */
#define COW__SLOTS_CLONES 192
#define COW__SLOTS_ALIASES 240
/* The number of all children that found no free slot. They share one row in each pack, and
 * what is held in that row is held for ever. */
#define COW__CROWD COW__SLOTS
#define COW__CROWD_EPOCH 1u
#define COW__NO_SLOT 0xffffu

struct cow__pack;

struct cow__id {
	uint64_t a, b;
};

struct cow__slot {
	struct cow__descriptor file; /* its own description, which has the lock */
	uintptr_t anchor;            /* the mapping that keeps it open; 0: none */
	uint32_t number;             /* COW__NO_SLOT: none */
	uint32_t epoch;
};

/* What all members map. */
struct cow__group_page {
	uint64_t magic;
	uint32_t version, bytes;
	struct cow__id id;
	uint32_t hint; /* where to look for a free slot next */
	uint32_t epoch[COW__SLOTS];
};

struct cow_group {
	uint64_t refs;
	struct cow_group *next; /* in the list of this process's groups */
	struct cow__group_page *page;
	struct cow__id id;
	struct cow__descriptor door; /* others join by it; it locks nothing */
	struct cow__slot mine, childs; /* childs: of the coming child, during a fork */
	struct cow__pack *packs;      /* those that this process maps */
	/* Of each slot an epoch whose owner was found dead. It stays dead. */
	uint32_t dead[COW__SLOTS];
};

#define COW__SLOT_NONE                                                         \
	((struct cow__slot){ .file = COW__NO_DESCRIPTOR,                       \
	                     .number = COW__NO_SLOT })

/* One lock for everything in share/. It is taken before the engine's lock. */
extern struct cow__mutex cow__share_lock;

/* Takes it. Registers the fork hooks before that, so that a fork takes it, too. */
void cow__share_enter(void);

static inline void
cow__share_leave(void)
{
	cow__mutex_unlock(&cow__share_lock);
}

/* The caller of each of these holds the lock. */

/* Takes a free slot below `limit`. It stays taken while any process has its `file` open.
 * -EAGAIN: all are taken. */
int cow__slot_take(struct cow_group *g, uint32_t limit, struct cow__slot *ret);

/* Maps the slot's file, so that the slot stays if the program closes all descriptors. */
int cow__slot_anchor(struct cow__slot *s);

/* Closes it: nothing that is held under it counts from then on. */
void cow__slot_close(struct cow__slot *s);

/* The slot's epoch; and whether another process or a message has the slot. */
uint32_t cow__slot_epoch(const struct cow_group *g, uint32_t number);
bool cow__slot_alive(struct cow_group *g, uint32_t number);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Trust groups: processes that count each other
 *
 * Members of a group map each other's memory, as forked workers do. What they
 * must know of each other is who is alive: a page may be written in place or
 * given back only when nobody else holds it, and holders are killed without a
 * word.
 *
 * A member has a *slot*: a lock on one byte of the group's memfd, made through an
 * open file description of its own. The kernel drops it when the member dies or
 * execs, and nothing else does; a mapping keeps the description open if the
 * program closes every descriptor. A message on its way has a slot, too, whose
 * descriptor travels with it: so what it carries is held by the message, and the
 * sender may be gone.
 *
 * Slots are used again. Each time the slot's *epoch* goes up, so that whatever an
 * earlier owner left written somewhere under this number says nothing about the
 * new one.
 *
 *     memfd "cowshed-group":  [ id | epochs ]   locks: byte n = slot n
 */
#ifndef COW_SHARE_GROUP_H
#define COW_SHARE_GROUP_H

#include "core/base/mutex.h"
#include "memfd/descriptor.h"

#include <stdbool.h>
#include <stdint.h>

#define COW__SLOTS 256
/* Of children that could get no slot: what is held under it is held for ever. */
#define COW__CROWD COW__SLOTS
#define COW__CROWD_EPOCH 1u
#define COW__NO_SLOT 0xffffu

struct cow__pack;

struct cow__id {
	uint64_t a, b;
};

struct cow__slot {
	struct cow__descriptor file; /* its own description: the lock */
	uintptr_t anchor;            /* the mapping that keeps it; 0: none */
	uint32_t number;             /* COW__NO_SLOT: none */
	uint32_t epoch;
};

struct cow_group {
	uint64_t refs;
	struct cow_group *next; /* of this process's groups */
	struct cow__group_page *page; /* shared by all members */
	struct cow__id id;
	struct cow__descriptor door; /* that others join by: locks nothing */
	struct cow__slot mine, childs;
	struct cow__pack *packs;      /* those that this process maps */
	/* Of each slot an epoch whose owner is dead: that stays true. */
	uint32_t dead[COW__SLOTS];
};

#define COW__SLOT_NONE                                                         \
	((struct cow__slot){ .file = COW__NO_DESCRIPTOR,                       \
	                     .number = COW__NO_SLOT })

/* One lock for everything in share/: taken before the engine's. */
extern struct cow__mutex cow__share_lock;

/* Locks it; the first time, forks are told before that they have to. */
void cow__share_enter(void);

static inline void
cow__share_leave(void)
{
	cow__mutex_unlock(&cow__share_lock);
}

/* All of these want the lock. */

extern struct cow_group *cow__groups;

/* A slot on the group's memfd, whose owner is who holds `file`. -EAGAIN: all
 * are taken. */
int cow__slot_take(struct cow_group *g, struct cow__slot *ret);

/* A mapping keeps it, too, if the program closes all descriptors. */
int cow__slot_anchor(struct cow__slot *s);

/* Lets go: nothing that is held under it counts from now on. */
void cow__slot_close(struct cow__slot *s);

/* Its epoch now, and whether somebody has it who is not this process. */
uint32_t cow__slot_epoch(const struct cow_group *g, uint32_t number);
bool cow__slot_alive(struct cow_group *g, uint32_t number);

/* The group with this id if this process is a member, or NULL. */
struct cow_group *cow__group_find(const struct cow__id *id);

/* Makes this process a member through a descriptor from elsewhere, which stays
 * the caller's; a reference. -EBADMSG: it is not a group. */
int cow__group_join(int fd, struct cow_group **ret);

/* Drops a reference, with the lock held. */
void cow__group_unref(struct cow_group *g);

#endif

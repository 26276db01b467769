/* SPDX-License-Identifier: MIT */
/*
 * Trust groups: processes that count each other
 *
 * Members of a group map each other's memory, as forked workers do. Each must know
 * which of the others are alive: a page may be written in place or given back only when
 * no other member holds it, and a killed member tells nobody. Its slot does (share/slot.h).
 *
 * The caller of each function holds the lock of share/.
 */
#ifndef COW_SHARE_GROUP_H
#define COW_SHARE_GROUP_H

#include "share/slot.h"

extern struct cow_group *cow__groups;

/* The group with this id if this process is a member, or NULL. */
struct cow_group *cow__group_find(const struct cow__id *id);

/* Makes this process a member by a group's descriptor, which stays the caller's; *ret is
 * a reference. -EBADMSG: it is not a group's; -EAGAIN: all slots are taken. */
int cow__group_join(int fd, struct cow_group **ret);

/* Drops a reference. The last one leaves the group. */
void cow__group_unref(struct cow_group *g);

#endif

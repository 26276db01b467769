/* SPDX-License-Identifier: MIT */
/*
 * Rows of bits that say who holds what
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
 * The caller of each function holds cow__share_lock.
 */
#ifndef COW_SHARE_HOLD_H
#define COW_SHARE_HOLD_H

#include "share/layout.h"

/* Slots that were found alive, so that the kernel is asked once for each. If the owner of
 * a slot has died since, a page is kept too long. */
struct cow__roll {
	uint64_t alive[COW__SLOTS / 64];
};

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

/* Marks a message's row as clean, when the receiver has taken over all that it held. */
void cow__hold_landed(struct cow__pack *p, const struct cow__slot *s);

/* Is this process, which is leaving, the last holder? The bits stay until
 * cow__hold_left(), and protect what the caller does meanwhile. *ret_only false: another
 * slot is leaving, too, and may give the pages back a second time, later. */
bool cow__hold_last(struct cow__pack *p, uint32_t page, struct cow__roll *r,
                    bool *ret_only);
void cow__hold_left(struct cow__pack *p, uint32_t page);

#endif

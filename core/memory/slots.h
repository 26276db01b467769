/* SPDX-License-Identifier: MIT */
/*
 * Slots: which processes of a family live
 *
 * Each process of a family holds a *slot*: a lock on one byte of a small memfd. The
 * lock belongs to an open file description. A mapping, the *anchor*, keeps that open
 * even if the program closes every descriptor. The kernel drops the lock when the
 * last process that has the description dies or execs, and nothing else does.
 *
 *   slots 0..60  have one holder each, with a description of its own
 *   slot 61      is no lock: the mark of strangers (core/memory/holders.h)
 *   slot 62      is no lock: processes that got no slot. It counts as alive for ever
 *   slot 63      all holders beyond 61 share it
 *
 * A family may have ten thousand processes. The kernel keeps the locks of a file in
 * a list and walks it at each call. So the children in the last slot also share one
 * description, and its one lock: their parent *lends* it to each of them. The fork
 * makes no call for that lock, and the list stays short.
 *
 * A process can't ask about a lock that it has itself. So the parent closes the
 * description that it lends before it asks about the last slot, and opens another
 * one for later children. A child with a *borrowed* description gets its own before
 * it believes that a relative is dead.
 */
#ifndef COW_CORE_MEMORY_SLOTS_H
#define COW_CORE_MEMORY_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#define COW__SHARED_BIT (1ull << 63) /* of all holders beyond the first 61 */
#define COW__UNCOUNTED (1ull << 62)  /* of processes that got no slot */
#define COW__MARKED (1ull << 61) /* of a file: a stranger may see its pages, for ever */

/* What one operation found out about slots, so that each is asked once. It holds
 * until the engine is unlocked. */
struct cow__census {
	uint64_t asked, alive;
};

/* This process's bit; 0: it has no family. Engine locked, as in all of these. */
uint64_t cow__slot_mine(void);

/* The bit of the coming fork's child. It has no lock if no slot was opened. */
uint64_t cow__slot_childs(void);

/* before_fork opens the child's slot. 0 or -errno. */
int cow__slots_before_fork(void);
void cow__slots_parent(void);
void cow__slots_child(void);

/* Which of these bits belong to living processes other than this one? It stops at
 * the first that lives. Slots of dead holders are kept locked until
 * cow__slots_settle(). Otherwise a relative's new child could get one meanwhile, and
 * would be taken for dead. */
uint64_t cow__slots_living(uint64_t bits, struct cow__census *c);

/* Lets go of the slots of dead holders. */
void cow__slots_settle(void);

/* Leaves the family: closes all slots of this process, and keeps no lock. The next fork
 * founds a new family. */
void cow__slots_leave(void);

/*
 * What slots need of the words (core/memory/holders.c). forget: clears a dead
 * holder's bit before its slot gets a new owner. add: sets the bit that this process
 * gets in the words of all that it holds.
 */
void cow__words_forget(uint64_t bit);
void cow__words_add(uint64_t bit);

#endif

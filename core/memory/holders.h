/* SPDX-License-Identifier: MIT */
/*
 * Holders: which processes still map a tile's pages
 *
 * Forked relatives map the same frozen pages. Whether a page may be written in
 * place, recycled or given back depends on whether anybody else still does; and
 * "anybody" may have been killed without a word.
 *
 * Each process of a family holds one *slot*: a lock on one byte of a small
 * memfd, made through an open file description of its own, which a mapping
 * keeps open even if the program closes every descriptor. The kernel drops the
 * lock when the process dies or execs, and nothing else does. Each tile that
 * was inherited has a *word* in its segment's control part with one bit for
 * each slot that maps its pages.
 *
 *   inherit:  the parent takes the child's slot and sets its bit in every word
 *             before it forks, so there is no moment without it
 *   drop:     the holder clears its bit; whoever finds itself the last one
 *             gives the pages back first
 *   alone?    my bit is the only one, or every other bit belongs to a slot
 *             whose lock nobody has, so that it can be had: stale bits are
 *             cleared while we hold it
 *
 * The last slot is shared by all holders beyond 62: its bit stays in a word for
 * good, and counts as long as one of them lives. Slot 62 is no lock: its bit says that somebody holds the pages
 * who could not get a slot, and stays.
 *
 * Relatives trust each other: they also share a heap's worth of secrets.
 */
#ifndef COW_CORE_MEMORY_HOLDERS_H
#define COW_CORE_MEMORY_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>

struct cow__segment;
struct cow__tile;

/* What was found out about slots, to ask once. No longer true when the engine
 * has been unlocked. */
struct cow__census {
	uint64_t asked, alive;
};

/* Takes a slot for the child of the coming fork. On failure the child will be
 * a holder that nobody can count: what it inherits is never thawed, recycled or
 * given back while this process lives. Engine locked, as in all of these. */
int cow__holders_before_fork(void);
void cow__holders_parent(void);
void cow__holders_child(void);

/* Marks the pages of a tile as held by this process and the coming child. */
void cow__holders_inherit(struct cow__tile *t);

/* Does no other process map these pages? */
bool cow__holders_alone(const struct cow__tile *t, struct cow__census *c);

/* Gives up this process's hold on a tile's pages. True if nobody else has
 * one; then the word is gone and the pages are the caller's to reuse or give
 * back, if it owns the segment. A process that does not own it must give the
 * pages back *before* (`punch`), while its bit still protects them. */
bool cow__holders_drop(struct cow__tile *t, struct cow__census *c,
                       int (*punch)(struct cow__tile *t));

/* Lets go of dead holders' slots: before the engine is unlocked. */
void cow__holders_settle(void);

/* Takes the mark `forked` off those of our segments that nobody else holds any
 * more: word 0 of a segment stands for the whole of it. */
void cow__holders_refresh(void);

#endif

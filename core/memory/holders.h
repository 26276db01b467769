/* SPDX-License-Identifier: MIT */
/*
 * Holders: which processes still map a tile's pages
 *
 * Forked relatives map the same frozen pages. While another process maps a page,
 * it may not be written in place, recycled or given back. A process may be killed
 * at any moment, without a word.
 *
 * Each process of a family holds one *slot* (core/memory/slots.h), which the kernel
 * takes away when the process dies or execs. Each tile that was inherited has a
 * *word* in its segment's control part. The word has one bit for each slot that
 * maps the tile's pages.
 *
 *   inherit:  the parent takes the child's slot and sets its bit in every word
 *             before it forks, so the child is counted from its first moment
 *   drop:     the holder clears its bit; the last holder gives the pages back
 *             first
 *   alone?    my bit is the only one, or every other bit belongs to a slot
 *             whose lock is free: we take that lock, and clear stale bits while
 *             we hold it
 *
 * All holders beyond 61 share the last slot. Its bit stays in a word for good, and
 * counts as long as one of them lives.
 *
 * There are two questions, because a private mapping can be grown over the rest of its
 * file (mremap), and a process that gives up privileges is not believed afterwards
 * (core/fork/border.h):
 *
 *   apart?    no other process has the *file*, and no stranger ever had it. Only then are
 *             pages written in place, or used again. Word 0 of the file tells, and the
 *             mark in it, which a stranger sets before it leaves, and nobody clears.
 *   unread?   no other process reads the *pages*. That is enough to give them back. The
 *             word of the tile tells; of strangers, a lock on the file (cow__segment_left).
 */
#ifndef COW_CORE_MEMORY_HOLDERS_H
#define COW_CORE_MEMORY_HOLDERS_H

#include "core/memory/slots.h"

#include <stdbool.h>

struct cow__segment;
struct cow__tile;

/* Takes a slot for the child of the coming fork. On failure nobody can count the
 * child as a holder. What it inherits is then never thawed, recycled or given
 * back while this process lives. Engine locked, as in all of these. */
int cow__holders_before_fork(void);
void cow__holders_parent(void);
void cow__holders_child(void);

/* Marks the pages of a tile as held by this process and the coming child. */
void cow__holders_inherit(struct cow__tile *t);

/* May this process write these pages in place, or use them again? */
bool cow__holders_alone(const struct cow__tile *t, struct cow__census *c);

/* The same for all of a file. */
bool cow__holders_apart(struct cow__segment *s, struct cow__census *c);

/* May the pages be given back? */
bool cow__holders_unread(const struct cow__tile *t, struct cow__census *c);

/* Forgets the words of a file that nobody else has, because the family ends. */
void cow__holders_reset(struct cow__segment *s);

/* Gives up this process's hold on a tile's pages. True if no other process reads them: the
 * word is gone then, if this process owns the segment. The pages must be given back *before*
 * (`punch`), while this process's bit still protects them. Without `punch`, the file is
 * this process's alone. */
bool cow__holders_drop(struct cow__tile *t, struct cow__census *c,
                       int (*punch)(struct cow__tile *t));

/* Takes the mark `forked` off those of our segments that no other process holds
 * any more. Word 0 of a segment stands for all of it. */
void cow__holders_refresh(void);

/* The same, where a child was reaped since or the last look is a millisecond ago: it asks
 * the kernel. */
void cow__holders_refresh_due(void);

/* A child has ended, and was waited for. Needs no lock. Async-signal-safe. */
void cow__holders_child_ended(void);

#endif

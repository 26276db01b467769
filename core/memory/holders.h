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
 * All holders beyond 62 share the last slot. Its bit stays in a word for good, and
 * counts as long as one of them lives.
 *
 * Relatives trust each other: they share all that the heap held at the fork,
 * secrets included.
 */
#ifndef COW_CORE_MEMORY_HOLDERS_H
#define COW_CORE_MEMORY_HOLDERS_H

#include "core/memory/slots.h"

#include <stdbool.h>

struct cow__tile;

/* Takes a slot for the child of the coming fork. On failure nobody can count the
 * child as a holder. What it inherits is then never thawed, recycled or given
 * back while this process lives. Engine locked, as in all of these. */
int cow__holders_before_fork(void);
void cow__holders_parent(void);
void cow__holders_child(void);

/* Marks the pages of all tiles as held by this process and the coming child. */
void cow__holders_inherit(void);

/* Does no other process map these pages? */
bool cow__holders_alone(const struct cow__tile *t, struct cow__census *c);

/* Gives up this process's hold on a tile's pages. True if no other process has
 * one: the word is gone then. If this process owns the segment, the caller may
 * reuse the pages or give them back. Otherwise the pages must be given back
 * *before* (`punch`), while this process's bit still protects them. */
bool cow__holders_drop(struct cow__tile *t, struct cow__census *c,
                       int (*punch)(struct cow__tile *t));

/* Takes the mark `forked` off those of our segments that no other process holds
 * any more. Word 0 of a segment stands for all of it. */
void cow__holders_refresh(void);

#endif

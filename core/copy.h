/* SPDX-License-Identifier: MIT */
/*
 * The program's own copies, done lazily
 *
 * memcpy from one large block to all of another one needs no bytes moved: the
 * source is frozen, as for a clone, and the destination becomes a view of its
 * pages, in place:
 *
 *   before   [ S, shared: pages of S ]        [ D, shared: pages of D     ]
 *
 *   after    [ S, private of S's     ]        [ D, private of S's | rest  ]
 *
 * D's own pages go back at once. What the copy does not cover, less than a
 * page, stays D's own. Freed, it is a view like others; written, either side
 * gets copies page by page, which costs several times what the copy would have
 * cost. So in mode `auto` only copies are lazy of which experience says that
 * both sides will hardly be written (core/evidence.h).
 *
 * The lock is tried, not waited for: memcpy may be called anywhere, also in a
 * signal handler that interrupted the engine, and by the engine.
 *
 * Copies between storages that are asked to be lazy come here as well. They may be
 * to a part of the destination, whose other parts stay what they are: mapped shared,
 * written in place. Both sides are tracked or transparent, so nothing is guessed
 * or learned.
 */
#ifndef COW_CORE_COPY_H
#define COW_CORE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow_storage;

/* Smaller ones are cheaper copied. */
#define COW__COPY_LEAST ((size_t)2 << 20)

/* For a copy about to be made by the code at `site`. True: it is made.
 * False: the destination may hold anything, the caller has to copy. Then
 * *ret_watch says whether to call cow__copy_done() afterwards. */
bool cow__copy_lazily(void *to, const void *from, size_t bytes, uintptr_t site,
                      bool *ret_watch);
void cow__copy_done(void *to, const void *from, size_t bytes, uintptr_t site);

/*
 * A copy of `bytes` bytes from one storage to another. 1: of these, [*ret_first,
 * *ret_last), whole pages, are shared until either side is written, and the caller
 * copies the rest. 0: the destination's range may hold anything, the caller copies
 * all. Never an error: to copy is always right.
 */
int cow__storage_copy_lazily(struct cow_storage *to, size_t to_offset,
                             struct cow_storage *from, size_t from_offset,
                             size_t bytes, size_t *ret_first,
                             size_t *ret_last);

#endif

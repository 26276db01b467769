/* SPDX-License-Identifier: MIT */
/*
 * The program's own copies, done lazily
 *
 * A memcpy() from one large block to all of another one moves no bytes. The
 * source is frozen, as for a clone. The destination becomes a view of its pages,
 * in place:
 *
 *   before   [ S, shared: pages of S ]        [ D, shared: pages of D     ]
 *
 *   after    [ S, private of S's     ]        [ D, private of S's | rest  ]
 *
 * D's own pages are freed at once. What the copy does not cover, less than a
 * page, stays D's own. D is freed as any view is. When a side is written it gets
 * copies page by page, which costs several times what the copy would have cost.
 * So in mode `auto` a copy is lazy only if its history says that both sides will
 * hardly be written (core/memory/copy_history.h).
 *
 * The lock is tried, not waited for. memcpy() may be called anywhere: by the
 * engine, and in a signal handler that interrupted the engine.
 *
 * Lazy copies between storages, which the caller asks for, come here as well.
 * They may go to a part of the destination. Its other parts stay as they are:
 * mapped shared, written in place. Both sides are tracked or transparent, so
 * nothing is guessed or learned.
 */
#ifndef COW_CORE_COW_COPY_H
#define COW_CORE_COW_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__tile;

/* For a copy that the code at `site` is about to make. True: it is done. False:
 * the destination may hold anything, and the caller copies. Then *ret_watch says
 * whether to call cow__copy_done() afterwards. */
bool cow__copy_lazily(void *to, const void *from, size_t bytes, uintptr_t site,
                      bool *ret_watch);
void cow__copy_done(void *to, const void *from, size_t bytes, uintptr_t site);

/* Makes [at, at + bytes) of `to`, whole pages, a view of `from` from `offset` on.
 * 0. -errno: the range of `to` may hold anything, and the caller copies. Both
 * tiles belong to storages. Engine not locked. */
int cow__copy_part(struct cow__tile *to, size_t at, struct cow__tile *from,
                   size_t offset, size_t bytes);

#endif

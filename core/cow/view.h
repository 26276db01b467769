/* SPDX-License-Identifier: MIT */
/*
 * Private views of frozen pages
 *
 *   frozen in place            view elsewhere           after both wrote
 *
 *   [ T, private of T's ]      [ V, private of T's ]    pages copied one by one
 *            \                        /                 into anonymous memory
 *             T's file pages, written by nobody
 *
 * To clone a mapping that has copied pages of its own, those pages must become
 * file pages that two mappings can read: a *layer*, an extent in limbo with
 * just them. The new view is then patched together of pieces:
 *
 *   [ T's 0..40 | layer 0..8 | T's 48..512 ]
 *
 * so its cost is the pages written, not the size. If nobody can be writing the
 * source, it is re-based on the same pieces, and the next clone pays only for
 * what was written after this one. Otherwise it stays as it is.
 *
 * A piece costs two mappings. So a few pages by themselves become no layer: the
 * view gets copies of its own of them, as if its user had written them.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_VIEW_H
#define COW_CORE_COW_VIEW_H

#include "core/memory/tile.h"

/* May the source be put on the new layer, too? */
enum cow__rebase {
	COW__REBASE_ALWAYS,   /* nobody is writing it at this moment */
	COW__REBASE_IF_QUIET, /* if the process is quiet (memfd/quiet.h) */
	COW__REBASE_NOTHING,  /* just frozen: a page written since is not meant */
};

/*
 * A live tile that reads as `source` does now, and copies the pages that are
 * written. The source must be frozen, or nobody writes it (a lazy tracked
 * storage).
 * *ret_copied, unless NULL: the bytes that were copied for it.
 * -E2BIG: too many pages or pieces, a copy is cheaper. -ENOTSUP: anonymous.
 */
int cow__view_new(struct cow__tile *source, enum cow__rebase rebase,
                  size_t *ret_copied, struct cow__tile **ret);

/*
 * The same for a view that is made elsewhere: `make` gets what the source reads
 * as now, in pieces. It copies the list and takes its references, with
 * cow__view_change(), before it returns.
 */
typedef int cow__view_fn(struct cow__tile *source,
                         const struct cow__piece *pieces, uint32_t n,
                         void *arg);
int cow__view_make(struct cow__tile *source, enum cow__rebase rebase,
                   cow__view_fn *make, void *arg);

/* Gives a live tile these pieces, which it takes over, instead of its own pages
 * or the pieces that it had. Mapping them is the caller's business. */
void cow__view_change(struct cow__tile *t, struct cow__piece *pieces,
                      uint32_t n, uint32_t cap);

/* What maps `addr` in a live tile: the pages' tile and the offset in them. */
struct cow__tile *cow__view_source(const struct cow__tile *t, uintptr_t addr,
                                   size_t *ret_offset, size_t *ret_bytes);

/* Maps [start, end) of a live tile anew from its pieces, shared or private.
 * *ret_done, if not NULL, is how far it came, also on failure. */
int cow__view_map(struct cow__tile *t, uintptr_t start, uintptr_t end,
                  bool shared, uintptr_t *ret_done);

/* Can `n` more kernel mappings be had? */
bool cow__mappings_left(size_t n);

#endif

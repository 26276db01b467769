/* SPDX-License-Identifier: MIT */
/*
 * Views: private mappings of frozen pages
 *
 *   frozen in place            view elsewhere           after both wrote
 *
 *   [ T, private of T's ]      [ V, private of T's ]    pages copied one by one
 *            \                        /                 into anonymous memory
 *             T's file pages, written by nobody
 *
 * A mapping may have copied pages of its own. To clone it, these pages must
 * become file pages that two mappings can read: a *layer*, an extent in limbo
 * with just them. The new view is then patched together of pieces:
 *
 *   [ T's 0..40 | layer 0..8 | T's 48..512 ]
 *
 * So a clone costs the pages written, not the size. If nobody can write the
 * source meanwhile, it is re-based on the same pieces. The next clone then pays
 * only for what was written after this one. Otherwise the source stays as it is.
 *
 * A piece costs two mappings. So runs of less than 64 KiB become no layer. The
 * view gets copies of them, as if its user had written them. Where such runs are
 * more than an eighth of the tile, all written runs become a layer, if that is
 * possible.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_VIEW_H
#define COW_CORE_COW_VIEW_H

#include "core/memory/tile.h"

/* May the source be re-based on the new layer? */
enum cow__rebase {
	COW__REBASE_ALWAYS,   /* nobody writes it at this moment */
	COW__REBASE_IF_QUIET, /* if the process is quiet (quiet/quiet.h) */
	COW__REBASE_NOTHING,  /* just frozen: pages written since are not wanted */
};

/*
 * Makes a live tile that reads as `source` does at this moment, and copies the
 * pages that are written. The source is frozen, or nobody writes it (a lazy
 * tracked storage). *ret_copied, unless NULL: the bytes that were copied for it.
 * -E2BIG: too many pages or pieces, a copy is cheaper. -ENOTSUP: anonymous.
 */
int cow__view_new(struct cow__tile *source, enum cow__rebase rebase,
                  size_t *ret_copied, struct cow__tile **ret);

/* The same beside threads that write the source, which is frozen: the view reads as the source did
 * at that moment. -EAGAIN: see cow__moment_read(). */
struct cow__moment;
int cow__view_of_moment(struct cow__tile *source, struct cow__moment *moment, size_t *ret_copied,
                        struct cow__tile **ret);

/*
 * The same for a view that is made elsewhere. `make` gets the present content of
 * the source, in pieces. It copies the list and takes its references, with
 * cow__view_change(), before it returns.
 */
typedef int cow__view_fn(struct cow__tile *source,
                         const struct cow__piece *pieces, uint32_t n,
                         void *arg);
int cow__view_make(struct cow__tile *source, enum cow__rebase rebase,
                   cow__view_fn *make, void *arg);

/* Gives a live tile these pieces instead of its own pages, or of the pieces that
 * it had. n == 0: its own pages. Takes the list over. The caller maps them. */
void cow__view_change(struct cow__tile *t, struct cow__piece *pieces,
                      uint32_t n, uint32_t cap);

#endif

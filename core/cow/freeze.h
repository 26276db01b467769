/* SPDX-License-Identifier: MIT */
/*
 * Freezing: from now on nobody writes the file's pages
 *
 *   shared    [ T: writes go to the file's pages ]
 *   frozen    [ T: private mapping of the same pages ]   a write copies a page
 *
 * The program's address stays, and running readers and writers go on. Views
 * (core/cow/view.h), forks and sending need frozen pages. Thawing
 * (core/cow/thaw.h) undoes it.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_FREEZE_H
#define COW_CORE_COW_FREEZE_H

#include "core/memory/tile.h"

/* Makes a shared live tile private in place. Running readers and writers go on. 0
 * or -errno. After a failure the bytes are as before, and a second try goes on
 * where this one stopped. */
int cow__freeze(struct cow__tile *t);

/* Is all of the tile frozen? */
static inline bool
cow__is_frozen(const struct cow__tile *t)
{
	return t->backing == COW__PRIVATE && t->nkept == 0;
}

/* Freezes all of the shared tiles in [from, to] with one mapping call. They are
 * neighbours in address and of one segment. `inherit`: a fork is being prepared. */
int cow__freeze_run(struct cow__tile *from, struct cow__tile *to, bool inherit);

/* Can this tile be frozen together with its neighbour to the left? */
bool cow__freeze_joins(const struct cow__tile *left,
                       const struct cow__tile *right);

#endif

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
	return t->map.backing == COW__PRIVATE && t->map.nkept == 0;
}

/* Is any of it mapped shared, and must not be in a forked child? */
static inline bool
cow__needs_freeze(const struct cow__tile *t)
{
	return t->kind == COW__LIVE && !cow__tile_is_common(t) &&
	       (t->map.backing == COW__SHARED || (t->map.backing == COW__PRIVATE && t->map.nkept));
}

/*
 * Gives a shared live tile the rest of its last 2 MiB, if that is cold. Otherwise tiles whose
 * sizes are no multiples of 2 MiB have gaps between them. Without gaps, tiles that were
 * rewritten (core/cow/rewrite.h) lie side by side in the file as well, and are one kernel
 * mapping with whole page tables. The gap has no bytes of the program's, and after a rewrite
 * it may show any: see cow__extent_usable().
 */
void cow__freeze_close_gap(struct cow__tile *t);

/* Freezes a tile that is chosen (`mark`), and those of its neighbours that are chosen and join,
 * with one mapping call. None of these is chosen afterwards. A lone tile stays as it is, and
 * so does what can't be frozen. */
void cow__freeze_chosen(struct cow__tile *t);

/* For a fork, or a process that retires: freezes `*t`, which needs it, and those of the tiles behind
 * it that join, after the gaps behind them were closed. On success `*t` is the last of them, and
 * children inherit them; 1: they don't yet. `*moved`, 0 at first: up to there old page tables were
 * moved away. As cow__freeze() otherwise. */
int cow__freeze_onward(struct cow__tile **t, uintptr_t *moved);

#endif

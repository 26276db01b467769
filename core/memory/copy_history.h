/* SPDX-License-Identifier: MIT */
/*
 * Copy history: was it right to copy?
 *
 * A lazy copy pays if neither side is written afterwards. Nobody can tell that
 * beforehand. But a program does the same thing again: earlier copies by the same
 * code, of about the same size, predict the next one.
 *
 * The engine learns from eager copies, without risk. It hashes some pages when
 * both sides are equal. It hashes them again when a side is freed or overwritten
 * by another copy. After two copies in a row that were not written, the code
 * copies lazily:
 *
 *                   two were not written
 *        eager  --------------------------->  lazy: no more of them at a time
 *          ^                                   |    than were found right so far
 *          +-----------------------------------+
 *            one was written; it takes twice as many next time
 *
 * For a lazy copy the engine counts the pages that were copied in the end. Code
 * whose copies are written is looked at ever more seldom.
 *
 * The tables have a fixed size. The engine's lock guards them. They hold code
 * addresses, counts and hashes, and nothing else of the program's history.
 */
#ifndef COW_CORE_MEMORY_COPY_HISTORY_H
#define COW_CORE_MEMORY_COPY_HISTORY_H

#include "core/memory/tile.h"

enum cow__verdict {
	COW__EAGER, /* copy, and that is all */
	COW__WATCH, /* copy, then cow__copy_history_add() */
	COW__LAZY,
};

enum cow__verdict cow__copy_history_ask(uintptr_t site, size_t bytes);

/* `to` has just been copied from [offset, offset + bytes) of `from`. */
void cow__copy_history_add(struct cow__tile *to, struct cow__tile *from,
                       size_t offset, size_t bytes, uintptr_t site, bool lazy);

/* The content of a watched tile is about to go, or the tile is about to be
 * cut. */
void cow__copy_history_end(struct cow__tile *t);

/* In a forked child: it keeps what was learned and forgets the copies, which are
 * the parent's. */
void cow__copy_history_child(void);

#endif

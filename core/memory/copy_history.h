/* SPDX-License-Identifier: MIT */
/*
 * Evidence: was it right to copy?
 *
 * A lazy copy pays if neither side is written afterwards. Nobody can tell that
 * beforehand; but a program does the same thing again, so what came of earlier
 * copies by the same code, of about the same size, says what will come of the
 * next one. It is gathered without risk, from eager copies: some pages are
 * hashed when both sides are equal, and again when a side is freed or
 * overwritten by another copy. Two in a row that were not written make the code
 * copy lazily:
 *
 *                 two were not written
 *      eager  --------------------------->  lazy: no more of them at a time
 *        ^                                   |    than were found right so far
 *        +-----------------------------------+
 *          one was written; it takes twice as many next time
 *
 * Of a lazy copy the pages that were copied in the end are counted. Code whose
 * copies are written is looked at ever more seldom.
 *
 * Fixed tables, under the engine's lock. No history of the program is kept but
 * for code addresses, counts and hashes.
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

/* `to` was copied from [offset, offset + bytes) of `from`, right now. */
void cow__copy_history_add(struct cow__tile *to, struct cow__tile *from,
                       size_t offset, size_t bytes, uintptr_t site, bool lazy);

/* What a watched tile holds is about to go, or it is about to be cut. */
void cow__copy_history_end(struct cow__tile *t);

/* In a forked child: what was learned stays, the copies are the parent's. */
void cow__copy_history_child(void);

#endif

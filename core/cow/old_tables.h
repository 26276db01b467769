/* SPDX-License-Identifier: MIT */
/*
 * Spares: page tables that were moved out of the way
 *
 * Mapping memory anew costs what the page tables of the old mapping cost to
 * take down: 0.3 ms for 1 GiB of huge pages, 65 ms for small ones, and whoever
 * freezes is waiting. Moving the page tables to another address is a matter of
 * a few pointers:
 *
 *   before   [ T, page tables ]              [ reserved                    ]
 *   moved    [ T, none: faults fill them ]   [ spare, T's page tables      ]
 *   frozen   [ T, private                ]   [ taken down later, in slices ]
 *
 * Running readers and writers notice nothing: in between they fault, and find
 * the same file pages. The helper thread takes spares down; where there is
 * none, nothing is moved.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_OLD_TABLES_H
#define COW_CORE_COW_OLD_TABLES_H

#include "core/memory/tile.h"

/* Moves the page tables of [t's start, + bytes) away: shared memory of `t` and
 * neighbours, of one segment and mapped as one. Best effort. */
void cow__old_tables_move(const struct cow__tile *t, size_t bytes);

/* Are there any? */
bool cow__old_tables_pending(void);

/* The helper's job: takes the next slice down, unlocked meanwhile, if it is time. */
uint64_t cow__old_tables_job(uint64_t now);

/* Takes all down at once. */
void cow__old_tables_release(void);

/* In a forked child: it has the addresses, nothing is mapped there. */
void cow__old_tables_child(void);

#endif

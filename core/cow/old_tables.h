/* SPDX-License-Identifier: MIT */
/*
 * Old page tables: moved out of the way of a freeze
 *
 * To map memory anew, the kernel takes down the page tables of the old mapping.
 * That takes 0.3 ms for 1 GiB of huge pages and 65 ms for small ones, and the
 * thread that freezes waits for it. To move the page tables to another address
 * takes a few pointers:
 *
 *   before   [ T, page tables ]              [ reserved                    ]
 *   moved    [ T, none: faults fill them ]   [ old tables of T             ]
 *   frozen   [ T, private                ]   [ taken down later, in slices ]
 *   thawed   [ T, shared, page tables    ]   [ none                        ]
 *
 * If T thaws within 20 ms, as after a child that executed a program or exited, they are moved
 * back.
 *
 * Running readers and writers notice nothing. Between the steps they fault, and
 * find the same file pages. The helper thread takes old tables down. Without a
 * helper nothing is moved.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_OLD_TABLES_H
#define COW_CORE_COW_OLD_TABLES_H

#include "core/memory/tile.h"

/* Moves the page tables of [at, at + bytes) away: shared memory, free memory included,
 * mapped as one, which shows the file of `segment` from `offset` on. If that fails they stay
 * where they are. */
void cow__old_tables_move(uintptr_t at, size_t bytes, struct cow__segment *segment,
                          uint64_t offset);

/* Maps [start, end) shared again: it shows the pages at its own place in the file of
 * `segment`, and none of them was copied. If its page tables were moved away and are still
 * there, they come back, and the program meets no faults. Returns 0 or -errno. */
int cow__old_tables_share(uintptr_t start, uintptr_t end, struct cow__segment *segment);

/* Are there old tables to take down? */
bool cow__old_tables_pending(void);

/* Were some moved since the last call of this? The helper has to be told of those. */
bool cow__old_tables_moved(void);

/* The helper's job: takes the next slice down when it is time. Unlocks the engine
 * meanwhile. */
uint64_t cow__old_tables_job(uint64_t now);

/* Takes all old tables down at once. */
void cow__old_tables_release(void);

/* In a forked child: it has the addresses, and nothing is mapped there. */
void cow__old_tables_child(void);

#endif

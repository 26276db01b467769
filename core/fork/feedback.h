/* SPDX-License-Identifier: MIT */
/*
 * Feedback: what forks teach about the memory of new blocks
 *
 * Freezing pays if frozen memory is thawed soon, or not rewritten. Where other
 * threads write all the time it can't be thawed. Each page that they write costs
 * a copy, long after the child is gone. If more than a sixteenth of the frozen
 * bytes is copied that way, new blocks get anonymous memory, until a heal
 * succeeds. The kernel forks anonymous memory by itself.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_FORK_FEEDBACK_H
#define COW_CORE_FORK_FEEDBACK_H

#include "core/memory/tile.h"

/* After a fork: counts the tile's bytes if it is frozen. NULL: begins anew. */
void cow__feedback_forked(const struct cow__tile *t);

/* Before the next fork, when everything is thawed that can be: how much was
 * copied of what stayed frozen? */
void cow__feedback_learn(void);

/* A live tile ends. The block that takes its place may get anonymous memory at
 * once. */
void cow__feedback_freed(const struct cow__tile *t);

/* In a forked child: begins with no history. */
void cow__feedback_child(void);

#endif

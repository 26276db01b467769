/* SPDX-License-Identifier: MIT */
/*
 * Regret: what forks teach about the memory of new blocks
 *
 * Freezing pays if frozen memory is thawed soon, or not rewritten. Where other
 * threads write all the time it can't be thawed, and each page that they write
 * costs a copy, long after the child is gone. If much is copied that way, new
 * blocks get anonymous memory, for good: forks of it are the kernel's own.
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_FORK_FEEDBACK_H
#define COW_CORE_FORK_FEEDBACK_H

#include "core/memory/tile.h"

/* After a fork: what is frozen now is what can be regretted. */
void cow__feedback_forked(void);

/* Before the next one, with everything thawed that can be: what was copied of
 * the rest? */
void cow__feedback_learn(void);

/* A live tile ends. Blocks made in its stead may differ at once. */
void cow__feedback_freed(const struct cow__tile *t);

/* In a forked child: starts anew. */
void cow__feedback_child(void);

#endif

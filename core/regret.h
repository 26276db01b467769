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
#ifndef COW_CORE_REGRET_H
#define COW_CORE_REGRET_H

#include "core/tile.h"

/* After a fork: what is frozen now is what can be regretted. */
void cow__regret_forked(void);

/* Before the next one, with everything thawed that can be: what was copied of
 * the rest? */
void cow__regret_learn(void);

/* A live tile ends. Blocks made in its stead may differ at once. */
void cow__regret_freed(const struct cow__tile *t);

/* In a forked child: starts anew. */
void cow__regret_child(void);

#endif

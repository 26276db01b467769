/* SPDX-License-Identifier: MIT */
/*
 * Copies for the child of a fork: of memory that can't be frozen
 *
 * The parent makes the copy before the fork. The child moves it to the block's address. Engine
 * locked throughout.
 */
#ifndef COW_CORE_FORK_COPIES_H
#define COW_CORE_FORK_COPIES_H

#include "core/memory/tile.h"
#include "cowshed.h"

/* Copies a tile; counts `reason`. 0 or -ENOMEM. */
int cow__copies_make(struct cow__tile *t, enum cow_fallback reason);

/* Pages of a file that stay shared are written in place after the fork. So the child may map
 * nothing of that file: this copies what is frozen in it, too. `all`: it may map no file. */
int cow__copies_beside_shared(bool all);

/* In the parent, and where the fork is given up. */
void cow__copies_free(void);

/* In the child. Ends it if a copy can't be put in place. */
void cow__copies_child(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Eager copies: blocks that are not shared with a file of relatives
 *
 * The copy is anonymous memory. cow__extent_replace() moves it to the address of the block.
 * Engine locked throughout.
 */
#ifndef COW_CORE_FORK_EAGER_H
#define COW_CORE_FORK_EAGER_H

#include "core/memory/tile.h"

/* Copies what a live tile shows into memory of its own (cow__map_release()); of an idle one,
 * makes the room alone. `for_child`: what children are denied is left empty. 0 or -ENOMEM. */
int cow__eager_copy(struct cow__tile *t, bool for_child, void **ret);

/* Does a live tile show pages of the segment, or has it its own pages there? */
bool cow__eager_shows(const struct cow__tile *t, const struct cow__segment *s);

/* Replaces all that shows pages of the segment, in place. Nobody writes it meanwhile. Stops
 * at the first failure: what was replaced stays so. 0 or -ENOMEM. */
int cow__eager_leave(const struct cow__segment *s);

#endif

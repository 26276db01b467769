/* SPDX-License-Identifier: MIT */
/*
 * Exclusive pages: may they be written in place, or given back?
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_EXCLUSIVE_H
#define COW_CORE_COW_EXCLUSIVE_H

#include "core/memory/holders.h"
#include "core/memory/tile.h"

/* Does this mapping alone read the pages under it, and has no other process their file? */
bool cow__exclusive(const struct cow__tile *t, struct cow__census *c);

/* Does this mapping alone read the pages? Then those under its copies may be given back. */
bool cow__unread(const struct cow__tile *t, struct cow__census *c);

/* The same question for the pages that a tile maps shared, beside its private
 * parts. */
bool cow__exclusive_where_shared(const struct cow__tile *t,
                                 struct cow__census *c);

#endif

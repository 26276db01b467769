/* SPDX-License-Identifier: MIT */
/*
 * Shadows: frozen file pages under copied ones, which nobody reads any more
 *
 * A page that is written while it is frozen becomes a copy, and the file keeps the old page below
 * it. When nobody else reads the tile, that old page is a shadow, and is given back. If the tile
 * thaws soon, that would be in vain: the thaw writes the copy there (core/cow/heal.h).
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_COW_SHADOW_H
#define COW_CORE_COW_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

/* For a process whose threads run on, so that nothing thaws. Gives the
 * frozen pages under copied ones back, at most twice a second. `unlocked`, for
 * the helper: it unlocks the engine meanwhile. */
void cow__shadows_release(uint64_t now, bool unlocked);

/* Something is frozen, and the last look for such pages was long ago. */
bool cow__shadows_due(uint64_t now);

/* The helper's job. */
uint64_t cow__shadows_job(uint64_t now);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Warm memory: freed, still populated, and how it cools
 *
 * Freed pages are kept a while, since the next allocation of their size then
 * costs a list operation instead of page faults. They are given back by age,
 * and at once beyond a limit, since nobody is told in time when memory gets
 * short:
 *
 *   warm + live  <=  the most that was live lately: so keeping memory warm
 *                    raises no peak (but for a few MiB)
 *   warm         <=  what is live, or 64 MiB
 *   warm         <=  a quarter of what the cgroup and the machine have left
 */
#ifndef COW_CORE_MEMORY_DECAY_H
#define COW_CORE_MEMORY_DECAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__tile;

#define COW__SLICE ((size_t)32 << 20) /* given back in one go, at most */

/* Gives back what is older than the decay time or above the limit, about `bytes`
 * of it. Bytes given back; 0: nothing is due. Engine locked; `unlocked`: but not
 * while the kernel works, for the helper. */
size_t cow__decay(uint64_t now, size_t bytes, bool unlocked);

/* Is there anything to give back? */
bool cow__decay_due(uint64_t now);

/* Gives everything back. */
size_t cow__decay_all(void);

/* In a forked child: what the helper had in hand is free memory again. */
void cow__decay_child(void);

/* When the oldest warm tile comes of age; 0: there is none. */
uint64_t cow__decay_next(void);

/* The list of warm tiles. Called by core/memory/tile.c alone. */
void cow__warm_add(struct cow__tile *t);
void cow__warm_remove(struct cow__tile *t);

/* The helper's job. */
uint64_t cow__decay_job(uint64_t now);

#endif

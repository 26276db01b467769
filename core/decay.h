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
#ifndef COW_CORE_DECAY_H
#define COW_CORE_DECAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gives back what is older than the decay time, and what is above the limit;
 * everything if `all`. Slices of at most `slice` bytes a call, 0: no bound.
 * Bytes given back. Engine locked. */
size_t cow__decay(uint64_t now, bool all, size_t slice);

/* When the oldest warm tile comes of age; 0: there is none. */
uint64_t cow__decay_next(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Warm memory: freed memory with pages, and how it cools
 *
 * Freed pages are kept a while. The next allocation of their size then costs a
 * list operation instead of page faults. Pages that reach the decay time are
 * given back. Pages beyond a limit are given back at once, since the kernel does
 * not tell in time when memory gets short:
 *
 *   warm + live  <=  the most that was live in the last seconds: so warm memory
 *                    raises no peak (but for a few MiB, or a sixteenth where
 *                    what cooled is allocated anew)
 *   warm         <=  what is live, or 64 MiB
 *   warm         <=  a quarter of what the cgroup and the machine have left
 */
#ifndef COW_CORE_MEMORY_DECAY_H
#define COW_CORE_MEMORY_DECAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__tile;

/* Gives back about `bytes` bytes of what is older than the decay time or above
 * the limit. Returns the bytes given back; 0: nothing is due. Engine locked.
 * `unlocked`, for the helper: it unlocks the engine while the kernel works. */
size_t cow__decay(uint64_t now, size_t bytes, bool unlocked);

/* Is there anything to give back? */
bool cow__decay_due(uint64_t now);

/* Gives everything back. */
size_t cow__decay_all(void);

/* In a forked child: the tile that the helper was cooling is free memory
 * again. */
void cow__decay_child(void);

/* When the oldest warm tile reaches the decay time; 0: there is none. */
uint64_t cow__decay_next(void);

/* The helper's job. */
uint64_t cow__decay_job(uint64_t now);

/* Gives back what the last huge page of a tile has under the cold memory behind it. */
void cow__decay_rest(const struct cow__tile *t);

#endif

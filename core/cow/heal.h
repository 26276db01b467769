/* SPDX-License-Identifier: MIT */
/*
 * Healing: when frozen memory of a whole process is thawed (core/cow/thaw.h)
 *
 * Each cow__heal_*() is about all tiles of the process, and asks for a quiet moment itself. It
 * calls cow__thaw_*() for one tile after the other.
 *
 * The helper heals while every thread of the program is parked (quiet/park.h), in
 * slices. Between two slices it gives the floor back. So a thread that wakes waits
 * for one slice at most, and for less: a slice ends early when a thread waits.
 *
 * A program without a moment of rest heals itself, where it parks a thread, and in
 * calls that allocate or free. It spends a share of its time on that, by the option
 * `heal`.
 *
 * Children that still hold the pages keep them frozen.
 */
#ifndef COW_CORE_COW_HEAL_H
#define COW_CORE_COW_HEAL_H

#include <stdbool.h>
#include <stdint.h>

/* Is memory frozen? Needs no lock. Async-signal-safe. */
bool cow__heal_needed(void);

/* Heals for `ns`, or until all is done (UINT64_MAX), in slices. Engine locked. Costs little
 * when nothing is frozen, or when the children that hold it live on. */
void cow__heal(uint64_t ns);

/* The same before a fork, whose caller waits. It does nothing if a slice of the last 200 ms found
 * nothing that it could thaw, and nothing was frozen since. What a thread gave free meanwhile, by
 * the end of a call, is left to the helper. Engine locked. */
void cow__heal_before_fork(uint64_t ns);

/* One slice. True: there may be more to do at once. Engine locked. */
bool cow__heal_slice(void);

/* One slice if one is due by the share. Engine locked. */
void cow__heal_due(void);

/* The same, for a thread that is about to park. Engine not locked; it tries the lock
 * once. Async-signal-safe. */
void cow__heal_before_park(void);

/* Will frozen memory be healed soon, or is it being healed? Then its shadows are
 * needed. */
bool cow__heal_soon(uint64_t now);

/* In a forked child: it gets a helper when it parks, unless it execs soon. */
void cow__heal_child(void);

/* A child was reaped: there may be something to heal. Engine locked. */
void cow__heal_child_reaped(void);

/* The helper's job. */
uint64_t cow__heal_job(uint64_t now);

#endif

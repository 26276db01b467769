/* SPDX-License-Identifier: MIT */
/*
 * Quiet moments: proof that no other thread can write
 *
 * Some remappings lose a page that another thread writes at that moment. They are
 * done only between begin and end of a quiet moment, in which only the caller
 * runs.
 */
#ifndef COW_QUIET_QUIET_H
#define COW_QUIET_QUIET_H

#include "quiet/floor.h"

/*
 * Tries to begin a quiet moment for the memory [from, to). COW__QUIET if the
 * calling thread is alone in this address space, or if every other thread is
 * parked at a safe point (quiet/park.h) or provably sleeps. `helper` is a thread
 * that need not sleep, perhaps the caller; 0: there is none.
 * A thread that waits for `lock`, the caller's, is in the middle of something, and
 * does not count as asleep. Otherwise the reason.
 *
 * No stack may lie in that memory: the caller would write what it moves, and the
 * kernel would write to a sleeper's stack for a signal. Until the end signals are
 * blocked in the caller, and wait in the other threads. The caller serializes the
 * calls (the engine's lock). It takes few microseconds alone, ten with parked
 * threads, and about 20 us for each thread that sleeps elsewhere.
 *
 * `stop_ns`, if not 0: threads that run may be stopped, within so long
 * (quiet/stop.h). They may be anywhere then, also inside a call of the caller's
 * library, with a lock other than `lock`.
 *
 * `sleepers`: where the shim knows threads, it also looks whether those that are not
 * parked sleep past it, as in a lock. That takes about 20 us for the first one.
 */
enum cow__busy cow__quiet_begin(uint32_t helper, const void *lock, uintptr_t from,
                                uintptr_t to, uint64_t stop_ns, bool sleepers);
void cow__quiet_end(void);

/* In a quiet moment: the first range in [at, to) that the kernel may write for a
 * parked thread. These pages must stay as they are. False: there is none. */
bool cow__quiet_written(uintptr_t at, uintptr_t to, struct cow__park_range *ret);

/* In a quiet moment: does a thread wait for its end? */
bool cow__quiet_awaited(void);

/* In a quiet moment: were threads stopped for it? */
bool cow__quiet_stopped(void);

#endif

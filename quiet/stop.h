/* SPDX-License-Identifier: MIT */
/*
 * Stops: a signal for threads that run (option quiet=signal)
 *
 * A thread that never calls anything that blocks is never parked (quiet/park.h). A
 * prover may stop it by a signal. The handler publishes that the thread is parked,
 * answers, and waits for the end of the floor.
 *
 *   prover                              thread
 *   word |= FLOOR, membarrier           runs: `now` is 0
 *   now is 0: a signal
 *                                       handler: now = stopped, an answer
 *   all have answered: they are parked
 *   ... moves pages ...                 sleeps
 *   word &= ~FLOOR                      now = 0, looks at FLOOR again, goes on
 *
 * No call of the program may fail with EINTR for it. Two rules do that:
 *
 *   1. FLOOR stays set as long as a stop may be on its way. If a thread does not
 *      answer in time, the prover ignores the signal for a moment: so the kernel
 *      drops it from all queues. Only then FLOOR goes.
 *   2. A thread that parks looks at FLOOR once more after it stored its call. It
 *      waits there, before the system call. The prover either sees the call, and
 *      sends nothing, or the thread sees FLOOR.
 *
 * So a signal never meets a call that parks. A thread that already blocks in an
 * unknown call gets none: the kernel says who runs (/proc/self/task/TID/syscall).
 *
 * The handler answers in a thread that has parked meanwhile, too, and returns.
 *
 * tests/model/stop.pml has the proof, by all orders of the steps.
 */
#ifndef COW_QUIET_STOP_H
#define COW_QUIET_STOP_H

#include "quiet/park.h"

#include <signal.h>

/* The signal, and its handler in the kernel's table. 0: no more stops. When this
 * returns, no stop is on its way. */
void cow__stop_set(int sig, void (*handler)(int, void *, void *));

/* Did a prover send it, and not the program? */
bool cow__stop_is_ours(const siginfo_t *info);

/* The handler's work for such a signal. `t` is the calling thread's record. `on_block`:
 * this stack may be moved, so the thread can't be stopped here. Async-signal-safe. */
void cow__stop_here(struct cow__park_thread *t, const siginfo_t *info,
                    bool on_block);

/* ---- For quiet/floor.c. ---- */

/* Is there a signal? */
bool cow__stop_used(void);

bool cow__stop_is_handler(void (*handler)(int, void *, void *));

/* With the floor: stops the threads of the list whose `now` is 0, but `self`, for
 * which it waits at most `ns`. Threads that block elsewhere are not stopped.
 * *ret_stopped counts those that are parked now. */
enum cow__busy cow__stop_all(struct cow__park_thread *first, uint32_t self,
                             uint64_t ns, uint32_t *ret_stopped);

#endif

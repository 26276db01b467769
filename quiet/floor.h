/* SPDX-License-Identifier: MIT */
/*
 * The floor: a prover holds all threads where they are parked
 *
 * quiet/park.h has the threads' side, and the order of steps that both sides keep.
 */
#ifndef COW_QUIET_FLOOR_H
#define COW_QUIET_FLOOR_H

#include "quiet/park.h"

/* A process that is no thread of ours shares this memory: no more proofs. */
void cow__park_shared(void);

/* The functions through which handlers are called. Any other handler, but
 * `exempt` signals of libc (a set of bits from signal 1 on), makes proofs by safe
 * points impossible. Called once, by the shim. */
void cow__park_gates(void (*a)(int, void *, void *),
                     void (*b)(int, void *, void *), uint64_t exempt);

/* Are there records and gates? Else only the older proof can be had. */
bool cow__park_used(void);

/* A look without any claim: is there a thread that runs? It costs some
 * nanoseconds for each thread. */
bool cow__park_running(void);

/* ---- For the prover (quiet/quiet.c), who serializes the calls. ---- */

/* Asks for the floor. COW__QUIET: all registered threads but the caller are
 * parked and stay so until cow__park_end(); *ret_parked is their number. Threads that
 * run are stopped, and may take `stop_ns` for that, if there are no more than
 * `others` threads; 0: they are not. Threads that block in an unknown call are not
 * counted then. `sleepers`: nor are those that seem to run, and the caller looks whether
 * they sleep past libc. Otherwise there is no floor. */
enum cow__busy cow__park_begin(uint64_t stop_ns, uint64_t others, bool sleepers,
                               uint32_t *ret_parked);
void cow__park_end(void);

/* With the floor: do threads wait for it that the program keeps busy? They were stopped
 * for it, or are in a call of cow__park_here(). */
bool cow__park_stopped(void);

/* With the floor, and after all threads were counted: do all that count as parked live?
 * The kernel may have ended one alone (seccomp). Then the count has room for a thread
 * of which nothing is known. */
bool cow__park_all_live(void);

/* With the floor, and after all threads were counted: one that ran until then could
 * have set a handler. Are all handlers of the process gates? The kernel says. */
bool cow__park_gated(void);

/* With the floor, and after all threads were counted. False: a thread without a record
 * was cancelled, and it may live. If all have records, it has ended, or its record
 * says that it was cancelled. */
bool cow__park_uncancelled(bool all_have_records);

/* With the floor. Is this thread among the parked? Does it wait for a word that a
 * parked thread's call may write, and so wake? */
bool cow__park_knows(uint32_t id);
bool cow__park_may_wake(uintptr_t word);
/* Does the word lie in libc's data of the caller or of a parked thread, as that of its
 * joiner? */
bool cow__park_joins(uintptr_t word);

/* With the floor: the bytes that the kernel may write in [from, to), lowest first
 * from `at` on. False: none. */
bool cow__park_written(uintptr_t at, uintptr_t to, struct cow__park_range *ret);

/* The same for what the kernel writes at any time, also for a caller that is alone. It
 * needs no floor, if no other thread runs. */
bool cow__park_always_written(uintptr_t at, uintptr_t to, struct cow__park_range *ret);

/* Does a thread wait for the end of the floor? */
static inline bool
cow__park_awaited(void)
{
	return __atomic_load_n(&cow__park_word, __ATOMIC_RELAXED) &
	       COW__PARK_AWAITED;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Safe points: threads inside blocking calls are parked
 *
 * The shim stands around libc's blocking calls. A thread that enters one is
 * *parked*: until the call is over it runs no code of the program. On its return
 * it looks at one word. While a prover has the floor, it waits there. So a prover
 * that finds all threads parked may move pages, as if it were alone.
 *
 *   thread                             prover (one at a time)
 *   now = call (release)               word |= FLOOR
 *     ... the call blocks ...          membarrier: all processors pass a fence
 *   now = 0                            is `now` of any thread 0? then it runs
 *   is FLOOR in the word? then wait
 *
 * Either the thread sees FLOOR, or the prover sees 0. The thread needs no
 * fence of its own for that: the prover's system call makes one on each
 * processor. Where the kernel has no membarrier, threads make a fence, and the
 * prover believes only calls that began with one.
 *
 * The kernel may write for a parked thread: into a buffer of read(), a status
 * word, a semaphore. The description of the call lists these bytes. The prover
 * leaves them out.
 *
 * A signal handler runs in a parked thread. The shim calls each handler through
 * a gate, which stores 0 and looks at the word first, and puts the
 * description back when the handler returns. A handler that leaves by longjmp()
 * leaves 0 behind, and the thread does run then.
 *
 * tests/model/park.pml has the proof, by all orders of the steps.
 */
#ifndef COW_QUIET_PARK_H
#define COW_QUIET_PARK_H

#include "memfd/signals.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COW__PARK_RANGES 4

struct cow__park_range {
	uintptr_t from, to;
};

/* One blocking call. It lies on the caller's stack. */
struct cow__park_call {
	uint32_t n;  /* ranges; more than COW__PARK_RANGES: the call does not park */
	bool fenced; /* the leave makes a fence */
	struct cow__park_range written[COW__PARK_RANGES];
};

struct cow__park_thread {
	/* The address of the call; 0: the thread runs the program's code. The last
	 * bit says "fenced". It is not read from the call itself: that may be over,
	 * and its stack in use again. */
	uintptr_t now;
	/* It called vfork(): the child uses this record, too, and may be killed in
	 * a call. No call parks until the parent itself has cleared this. */
	bool in_vfork;
	bool cancelled; /* pthread_cancel(): it may leave a call without a look */
	bool in_use;
	bool never_stop; /* it may be about to park without a second look */
	uint32_t asked, answered; /* the last request to stop (quiet/stop.c) */
	uint32_t id;    /* the kernel's */
	uintptr_t self; /* pthread_self() */
	struct cow__park_range alternate; /* signal stack; empty: none */
	/* The area of its restartable sequences (rseq); empty: none that matters. The kernel
	 * writes it whenever the thread begins to run: also before it can look at the word. */
	struct cow__park_range sequences;
	struct cow__park_thread *next;
} __attribute__((aligned(64)));

#define COW__PARK_FLOOR 1u  /* a prover has the floor, or asks for it */
#define COW__PARK_FENCES 2u /* the kernel has no membarrier */
#define COW__PARK_CARE 4u   /* whoever parks may work for the engine first */
#define COW__PARK_AWAITED 8u /* a thread waits for the end of FLOOR */
#define COW__PARK_STOPS 16u  /* running threads may be stopped (quiet/stop.h) */
extern uint32_t cow__park_word;

/* Parks the calling thread. Between enter and leave it writes nothing but its own
 * stack, its thread-local data and what `call` lists. Async-signal-safe. */
static inline void
cow__park_enter(struct cow__park_thread *t, const struct cow__park_call *call)
{
	__atomic_store_n(&t->now, (uintptr_t)call | call->fenced,
	                 __ATOMIC_RELEASE);
}

/* Parks, or parks again, and looks at FLOOR once more: no stop meets what comes next.
 * `now` is that of cow__park_enter(). Async-signal-safe. */
void cow__park_carefully(struct cow__park_thread *t, uintptr_t now);

/* What stands for a call of which nothing is known. It does not park, but is not
 * stopped either. */
extern struct cow__park_call cow__park_unknown;

void cow__park_wait(struct cow__park_thread *t);

static inline void
cow__park_leave(struct cow__park_thread *t, bool fenced)
{
	__atomic_store_n(&t->now, 0, __ATOMIC_RELAXED);
	if (fenced)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	else
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE) &
	                             COW__PARK_FLOOR,
	                     0))
		cow__park_wait(t);
}

/* A record for the calling thread, whose pthread_self() is `self`. It is never
 * freed, but used again when its thread has ended. NULL: no memory. Call it once
 * for each thread; it blocks signals meanwhile. */
struct cow__park_thread *cow__park_register(uintptr_t self);

/* In a forked child: the caller, with this record or NULL, is the only thread. */
void cow__park_child(struct cow__park_thread *self);

/* pthread_cancel() is about to be called for this thread. */
void cow__park_cancel(uintptr_t self);

/* Call it with 1 before a call that may forbid system calls to the calling thread, and with
 * -1 if that call failed. While the sum (memfd/gate.h) is not 0 there are no proofs, so the floor is
 * never taken, and a thread that parks or leaves need not make a call. It returns when no
 * prover has the floor any more. */
void cow__park_sandbox(int add);

/* Where the calling thread's record is: set once, by the shim. The function returns NULL if
 * the thread has none, is parked already, or has its stack in memory that may be moved. */
void cow__park_records(struct cow__park_thread *(*record)(void));

/* Parks the calling thread for a long call of the library into the kernel, in which it
 * writes no memory of the program's and has no lock of ours. NULL: it is not parked.
 * Else cow__park_leave(.., true) ends it. */
struct cow__park_thread *cow__park_here(void);

/* Why there is no quiet moment. */
enum cow__busy {
	COW__QUIET,         /* there is one */
	COW__BUSY_RUNNING,  /* a thread runs */
	COW__BUSY_BLOCKED,  /* ... or blocks in a call that is not known */
	COW__BUSY_HANDLER,  /* a handler that can't be gated */
	COW__BUSY_STACK,    /* a stack lies in the memory in question */
	COW__BUSY_CANCEL,   /* a thread is being cancelled */
	COW__BUSY_PROCESS,  /* another process shares the memory */
	COW__BUSY_UNKNOWN,  /* without /proc the threads can't be counted */
	COW__BUSY_REASONS
};

/* The longest wait for the floor so far, in ns. */
uint64_t cow__park_longest(void);

/* ---- For the rest of this folder. ---- */

/* All records ever made, in a list. */
struct cow__park_thread *cow__park_threads(void);

/* Is there no thread of this number in this process? */
bool cow__park_has_ended(uint32_t id);

/* The lock that a prover has while it has the floor. It blocks signals. */
void cow__park_lock(struct cow__signals *old);
void cow__park_unlock(const struct cow__signals *old);

/* From now on threads that park look twice. Locked. */
void cow__park_stops_begin(void);

/* The thread has stored its call, and stays until the floor is given back. */
void cow__park_stay(struct cow__park_thread *t);

/* Is the thread in a call that parks? */
bool cow__park_counts(const struct cow__park_thread *t);

/* A forked child forgets all but `owner`, which is compared with its number. */
struct cow__park_state {
	int32_t owner; /* the process that has the floor */
	bool shared;   /* a process that is no thread of ours shares this memory */
	bool cancelled_unknown; /* a thread without a record was cancelled */
};
extern struct cow__park_state cow__park_state;

/* Calls of cow__park_here(). */
extern struct cow__park_call cow__park_library;

#endif

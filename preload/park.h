/* SPDX-License-Identifier: MIT */
/*
 * How a wrapper parks its thread (quiet/park.h)
 *
 *   struct cow__park_call call;
 *
 *   preload_call(&call);
 *   preload_may_write(&call, buf, n);       what the kernel may write meanwhile
 *   t = preload_park(&call);
 *   r = next.read(fd, buf, n);
 *   preload_unpark(t, &call);
 *
 * Between the last two lines, libc and the kernel write nothing of the program's
 * but what was listed.
 */
#ifndef COW_PRELOAD_PARK_H
#define COW_PRELOAD_PARK_H

#include "core/program/park.h"
#include "preload/preload.h"

#include <signal.h>

/* May a thread be under a filter of system calls? Then wrappers only pass calls on. */
static inline bool
preload_sandboxed(void)
{
	return __builtin_expect(__atomic_load_n(&cow__sandboxed,
	                                        __ATOMIC_RELAXED),
	                        0);
}

/* The calling thread's record; NULL: it has none yet. */
extern _Thread_local struct cow__park_thread *preload_thread
        __attribute__((tls_model("initial-exec")));

/* No ranges yet. Those behind `n` need no value. */
static inline void
preload_call(struct cow__park_call *call)
{
	call->n = 0;
	call->fenced = false;
}

/* The kernel may accept a length that would wrap around. Such a range ends where
 * addresses of programs end, so that the prover can round the end up. */
static inline struct cow__park_range
preload_range(uintptr_t from, size_t bytes)
{
	const uintptr_t most = INTPTR_MAX;

	return (struct cow__park_range){
		from, bytes > most - from ? most : from + bytes
	};
}

/* Of memory outside the window nothing is ever moved, so it need not be listed. */
static inline void
preload_may_write(struct cow__park_call *call, const void *p, size_t bytes)
{
	uintptr_t from = (uintptr_t)p;

	if (from - preload_window_start >= preload_window_bytes || !bytes)
		return;
	if (call->n < COW__PARK_RANGES)
		call->written[call->n] = preload_range(from, bytes);
	call->n++;
}

/* For words that libc itself writes, and on which other threads may wait: they are
 * listed wherever they lie. */
static inline void
preload_does_write(struct cow__park_call *call, const void *p, size_t bytes)
{
	call->written[call->n++] = preload_range((uintptr_t)p, bytes);
}

/* The first call of a thread, a call of vfork's child, and calls while the engine
 * asks for care. */
struct cow__park_thread *preload_park_slowly(struct cow__park_call *call);

/* Returns what preload_unpark() wants. NULL: preload_park_slowly() has to be called. The
 * call lies on the thread's stack, which must not be in the window. */
static inline struct cow__park_thread *
preload_park_at_once(struct cow__park_call *call)
{
	struct cow__park_thread *t = preload_thread;

	if (__builtin_expect(!t || t->in_vfork ||
	                             __atomic_load_n(&cow__park_word,
	                                             __ATOMIC_RELAXED) ||
	                             call->n > COW__PARK_RANGES ||
	                             (uintptr_t)call - preload_window_start <
	                                     preload_window_bytes,
	                     0))
		return NULL;
	cow__park_enter(t, call);
	return t;
}

/* The same; NULL: the thread is not parked. */
static inline struct cow__park_thread *
preload_park(struct cow__park_call *call)
{
	struct cow__park_thread *t = preload_park_at_once(call);

	return __builtin_expect(t != NULL, 1) ? t : preload_park_slowly(call);
}

/*
 * The wrapper of a blocking call. The slow way stands apart: so the fast one saves few
 * registers. It needs no guard of its stack: `n` bounds what is written there.
 */
#if __has_attribute(no_stack_protector)
#define PRELOAD_BARE __attribute__((no_stack_protector))
#else
#define PRELOAD_BARE
#endif

#define PRELOAD_WRAPPER(type, name, next, parameters, arguments, missing, written) \
	static __attribute__((noinline, cold)) type slowly_##name parameters   \
	{                                                                      \
		struct cow__park_call call;                                    \
		struct cow__park_thread *parked;                               \
		type result;                                                   \
                                                                               \
		if (!next && !looked_up(&next))                                \
			return missing;                                        \
		preload_call(&call);                                           \
		written;                                                       \
		parked = preload_park(&call);                                  \
		result = next arguments;                                       \
		preload_unpark(parked, &call);                                 \
		return result;                                                 \
	}                                                                      \
	EXPORT type name parameters;                                           \
	EXPORT PRELOAD_BARE type name parameters                               \
	{                                                                      \
		struct cow__park_call call;                                    \
		struct cow__park_thread *parked = NULL;                        \
		type result;                                                   \
                                                                               \
		preload_call(&call);                                           \
		written;                                                       \
		if (__builtin_expect(next != NULL, 1))                         \
			parked = preload_park_at_once(&call);                  \
		if (__builtin_expect(!parked, 0))                              \
			return slowly_##name arguments;                        \
		result = next arguments;                                       \
		cow__park_leave(parked, false);                                \
		return result;                                                 \
	}

/* For calls that a stop must not meet, and in which the thread does not park. */
#define PRELOAD_UNKNOWN { .n = COW__PARK_RANGES + 1, .fenced = false }

static inline struct cow__park_thread *
preload_unstoppable(struct cow__park_call *call)
{
	uint32_t word = __atomic_load_n(&cow__park_word, __ATOMIC_RELAXED);

	return word & COW__PARK_STOPS ? preload_park_slowly(call) : NULL;
}

static inline void
preload_unpark(struct cow__park_thread *t, const struct cow__park_call *call)
{
	if (t)
		cow__park_leave(t, call->fenced);
}

/* The wrapped functions of libc, looked up when the shim starts, or at the first
 * call before that. */
void preload_park_init(void);
void preload_blocking_init(void);
void preload_raw_init(void);
void preload_unknown_init(void);
void preload_threads_init(void);
void preload_signals_init(void);

/* A record for the calling thread, if it has none. Keeps errno. */
void preload_park_note(void);

/* Option quiet=signal (preload/stop.c): running threads may be stopped from now on. */
void preload_signals_stop_begin(void);
void preload_stop_begin(uint64_t blocked); /* the same, with the table's lock */
bool preload_stop_used(void);
bool preload_stop_is(int sig);
bool preload_stop_has(const void *handler);
/* The program is about to give this signal a handler: from now on stops block it. */
void preload_stop_blocks(int sig);

/* Sleeps for 50 us: between tries of a lock for which signals are blocked. They are open
 * while a thread waits, since a blocked SIGCHLD ends calls of other threads. */
void preload_rest(void);

/* libc's. */
extern int (*preload_next_sigaction)(int, const struct sigaction *,
                                     struct sigaction *);

/* What sigaction() answers for the signal that the shim uses. False: it does not use
 * this one (any more), and the kernel is to be asked. Locked, so not in a child of
 * vfork(). */
bool preload_stop_action(int sig, const struct sigaction *act, struct sigaction *old,
                         uint64_t blocked);

/* In a forked child. */
void preload_park_child(void);
void preload_heal_child(void);

/* Heals for a thread that is about to park, and for one that waited for a child, perhaps
 * until the child ended. They need little of the caller's stack (preload/heal.c). */
void preload_heal_here(void);
void preload_heal_after_wait(bool blocked);

/* Around a fork: the calling thread locks the table of handlers. A forked child unlocks
 * it, also if nothing ran before the fork. */
void preload_signals_prepare(void);
void preload_signals_parent(void);
void preload_signals_child(void);

/* The calling thread is about to share this memory, and its record, with a child. */
void preload_vfork_mark(void);

/* Just before a call that may give up privileges: makes the border to relatives where it is one
 * (preload/border.c). `whole`: libc makes the call in all threads. -1: it could not be made,
 * and the call must fail with errno as it is. preload_border_over() has to follow the call in either
 * case: it makes the border to a child that was forked meanwhile, by a handler or beside a long
 * call. `filtered`: a filter was set, so the engine has left all files. Async-signal-safe. */
struct preload_crossing {
	uint64_t call; /* cow__border_call_begins() */
	bool is_border, hard;
};
int preload_border(bool whole, long number, long a, long b, long c, struct preload_crossing *ret);
void preload_border_over(const struct preload_crossing *crossing, bool filtered);

/* Is there nobody to whom such a call could make a border, and no other thread that could fork
 * meanwhile? Plain loads, unless there are threads. */
bool preload_border_none(void);

/* Does a change of the user of files, or of their group, make one? Nanoseconds from the second call
 * on. */
bool preload_border_by_file_user(void);

/* In a forked child, before anything else. Where it shares the table of descriptors with its
 * parent it gets its own: what the engine closes in it would be closed in its parent, too. */
void preload_border_early(long flags);

/* In a forked child, after the engine's step: `flags` of the clone that made it, or 0. */
void preload_border_born(long flags);

/* A child that shares its parent's memory, made by vfork() or clone(). */
bool preload_is_vfork_child(void);

#endif

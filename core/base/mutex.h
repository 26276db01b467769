/* SPDX-License-Identifier: MIT */
/*
 * A mutex of one word, which knows its owner
 *
 *   low half    0 free, 1 locked, 2 locked and a thread may sleep: the futex
 *   high half   the thread that holds it
 *
 * Both halves change at once. So a signal handler can tell whether the thread
 * that it interrupted holds the lock, wherever the interruption came.
 *
 * Static zero is a valid mutex, so locks work before any constructor has run. A
 * forked child resets a mutex by storing zero. The bare helper thread can take
 * it.
 *
 * Lock order, outermost first: channel, share, engine, pool.
 */
#ifndef COW_CORE_BASE_MUTEX_H
#define COW_CORE_BASE_MUTEX_H

#include <stdbool.h>
#include <stdint.h>

struct cow__mutex {
	uint64_t state;
};

void cow__mutex_lock_slow(struct cow__mutex *m, uint64_t self);
void cow__mutex_unlock_slow(struct cow__mutex *m);

/* The calling thread, for the high half. It uses no thread-local data, which the
 * helper lacks. It is 0 where the compiler can't tell the thread: no thread is
 * found to be the owner then. */
static inline uint64_t
cow__mutex_self(void)
{
#if __has_builtin(__builtin_thread_pointer)
	/* Hashed, since stacks lie at regular distances. The last bit keeps it
	 * from being 0. */
	uint64_t h = (uint64_t)(uintptr_t)__builtin_thread_pointer() *
	             0x9e3779b97f4a7c15u;

	return (h >> 32 | 1) << 32;
#else
	return 0;
#endif
}

/* Held by the caller: does another thread wait for it? */
static inline bool
cow__mutex_wanted(const struct cow__mutex *m)
{
	return (uint32_t)__atomic_load_n(&m->state, __ATOMIC_RELAXED) == 2;
}

/* For a thread that tries again and again: tells the owner that it waits. */
static inline void
cow__mutex_want(struct cow__mutex *m)
{
	uint64_t state = __atomic_load_n(&m->state, __ATOMIC_RELAXED);

	if ((uint32_t)state == 1)
		(void)__atomic_compare_exchange_n(&m->state, &state, state + 1, 0,
		                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static inline bool
cow__mutex_try_lock(struct cow__mutex *m)
{
	uint64_t expected = 0;

	return __atomic_compare_exchange_n(&m->state, &expected,
	                                   cow__mutex_self() | 1, 0,
	                                   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void
cow__mutex_lock(struct cow__mutex *m)
{
	/* Pairs with the release in unlock. */
	if (!cow__mutex_try_lock(m))
		cow__mutex_lock_slow(m, cow__mutex_self());
}

static inline void
cow__mutex_unlock(struct cow__mutex *m)
{
	if ((uint32_t)__atomic_exchange_n(&m->state, 0, __ATOMIC_RELEASE) != 1)
		cow__mutex_unlock_slow(m);
}

/* Wakes all who sleep for it, as an unlock does. For a caller that is about to wait for
 * another thread and may run in a signal handler: that may have come after this thread
 * released the mutex, and before it woke the thread that sleeps for it. */
static inline void
cow__mutex_wake(struct cow__mutex *m)
{
	cow__mutex_unlock_slow(m);
}

/* Does the calling thread hold it? Then the caller runs in a signal handler, and
 * would wait for the lock for ever. */
static inline bool
cow__mutex_is_mine(const struct cow__mutex *m)
{
	uint64_t self = cow__mutex_self();
	uint64_t state = __atomic_load_n(&m->state, __ATOMIC_RELAXED);

	return self && state && state >> 32 << 32 == self;
}

#endif

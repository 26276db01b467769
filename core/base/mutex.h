/* SPDX-License-Identifier: MIT */
/*
 * A mutex of one word, which knows its owner
 *
 *   low half    0 free, 1 locked, 2 locked and somebody sleeps: the futex
 *   high half   the thread that has it
 *
 * Both change at once: a signal handler that interrupted its thread anywhere can
 * tell whether that thread has the lock. Static zero is a valid mutex, so locks work
 * before any constructor ran; the bare helper thread can take it; a forked child
 * resets it by storing zero.
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

/* The calling thread, for the high half: no thread-local data, which the helper
 * lacks. 0 where the compiler can't tell; then nobody is found to be the owner. */
static inline uint64_t
cow__mutex_self(void)
{
#if __has_builtin(__builtin_thread_pointer)
	/* Hashed: stacks lie at regular distances. The last bit: never 0. */
	uint64_t h = (uint64_t)(uintptr_t)__builtin_thread_pointer() *
	             0x9e3779b97f4a7c15u;

	return (h >> 32 | 1) << 32;
#else
	return 0;
#endif
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

/* Does the calling thread have it? Then it is in a signal handler, and waiting for
 * the lock would take for ever. */
static inline bool
cow__mutex_is_mine(const struct cow__mutex *m)
{
	uint64_t self = cow__mutex_self();
	uint64_t state = __atomic_load_n(&m->state, __ATOMIC_RELAXED);

	return self && state && state >> 32 << 32 == self;
}

#endif

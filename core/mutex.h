/* SPDX-License-Identifier: MIT */
/*
 * A mutex of one word
 *
 * 0 free, 1 locked, 2 locked and somebody sleeps. Static zero is a valid
 * mutex, so locks work before any constructor ran; the bare helper thread can
 * take it; a forked child resets it by storing zero.
 *
 * Lock order, outermost first: engine, pool.
 */
#ifndef COW_CORE_MUTEX_H
#define COW_CORE_MUTEX_H

#include <stdbool.h>
#include <stdint.h>

struct cow__mutex {
	uint32_t word;
};

void cow__mutex_lock_slow(struct cow__mutex *m);
void cow__mutex_unlock_slow(struct cow__mutex *m);

static inline bool
cow__mutex_try_lock(struct cow__mutex *m)
{
	uint32_t expected = 0;

	return __atomic_compare_exchange_n(&m->word, &expected, 1, 0,
	                                   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void
cow__mutex_lock(struct cow__mutex *m)
{
	/* Pairs with the release in unlock. */
	if (!cow__mutex_try_lock(m))
		cow__mutex_lock_slow(m);
}

static inline void
cow__mutex_unlock(struct cow__mutex *m)
{
	if (__atomic_exchange_n(&m->word, 0, __ATOMIC_RELEASE) != 1)
		cow__mutex_unlock_slow(m);
}

#endif

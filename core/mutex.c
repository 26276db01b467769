/* SPDX-License-Identifier: MIT */
/*
 * A mutex of one word: see the header.
 */
#include "core/mutex.h"
#include "memfd/wait.h"

#define SPINS 100

void
cow__mutex_lock_slow(struct cow__mutex *m)
{
	for (int i = 0; i < SPINS; i++) {
		uint32_t expected = 0;

		if (__atomic_compare_exchange_n(&m->word, &expected, 1, 0,
		                                __ATOMIC_ACQUIRE,
		                                __ATOMIC_RELAXED))
			return;
	}
	while (__atomic_exchange_n(&m->word, 2, __ATOMIC_ACQUIRE) != 0)
		cow__wait(&m->word, 2, 0);
}

void
cow__mutex_unlock_slow(struct cow__mutex *m)
{
	cow__wake(&m->word);
}

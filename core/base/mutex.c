/* SPDX-License-Identifier: MIT */
/*
 * A mutex of one word: see the header.
 */
#include "core/base/mutex.h"
#include "memfd/export.h"
#include "memfd/wait.h"

#define SPINS 100

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the futex is the low half");

static uint32_t *
futex(struct cow__mutex *m)
{
	return (uint32_t *)(void *)&m->state;
}

COW_EXPORT void
cow__mutex_lock_slow(struct cow__mutex *m, uint64_t self)
{
	uint64_t state;

	for (int i = 0; i < SPINS; i++)
		if (cow__mutex_try_lock(m))
			return;
	for (;;) {
		state = __atomic_load_n(&m->state, __ATOMIC_RELAXED);
		if (state == 0) {
			/* Other threads may sleep: the unlock has to wake
			 * them. */
			if (__atomic_compare_exchange_n(
			            &m->state, &state, self | 2, 0,
			            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return;
			continue;
		}
		if ((uint32_t)state == 1 &&
		    !__atomic_compare_exchange_n(&m->state, &state, state + 1,
		                                 0, __ATOMIC_RELAXED,
		                                 __ATOMIC_RELAXED))
			continue;
		cow__wait(futex(m), 2, 0);
	}
}

COW_EXPORT void
cow__mutex_unlock_slow(struct cow__mutex *m)
{
	cow__wake(futex(m));
}

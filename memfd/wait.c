/* SPDX-License-Identifier: MIT */
/*
 * Time, sleeping, waking, and a lock: see the header.
 */
#include "memfd/wait.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/sys.h"
#include "memfd/vdso.h"

#include <stdbool.h>

#define LOCKED 1u
#define AWAITED 2u /* locked, and a thread may sleep */

COW_FORK_CODE COW_EXPORT uint64_t
cow__now(void)
{
	int (*ask)(clockid_t, struct timespec *) = cow__vdso_clock();
	struct timespec t = { 0, 0 };

	if (!ask || ask(CLOCK_MONOTONIC, &t) < 0)
		(void)SYS3(SYS_clock_gettime, CLOCK_MONOTONIC, &t, 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void
cow__wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};

	(void)sys_futex(word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value,
	                ns ? &t : NULL);
}

void
cow__wake(uint32_t *word)
{
	(void)sys_futex(word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, NULL);
}

void
cow__wake_some(uint32_t *word, uint32_t count)
{
	(void)sys_futex(word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL);
}

void
cow__yield(void)
{
	(void)sys_sched_yield();
}

/* A thread that has slept can't tell whether others still do. So it leaves the word at
 * AWAITED, and its unlock wakes the next one. */
void
cow__lock(uint32_t *word)
{
	uint32_t was = 0;

	if (__atomic_compare_exchange_n(word, &was, LOCKED, false,
	                                __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(word, AWAITED, __ATOMIC_ACQUIRE))
		cow__wait(word, AWAITED, 0);
}

void
cow__unlock(uint32_t *word)
{
	if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) == AWAITED)
		cow__wake_some(word, 1);
}

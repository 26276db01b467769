/* SPDX-License-Identifier: MIT */
/*
 * Time, sleeping, waking
 */
#ifndef COW_MEMFD_WAIT_H
#define COW_MEMFD_WAIT_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. Some 20 ns; no system call. */
uint64_t cow__now(void);

/* How long ago `then` was. The helper asks the clock, waits for the lock, and
 * finds times that are later than its own: 0. */
static inline uint64_t
cow__elapsed(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}

/* Sleeps while *word == value, until woken or (0: without limit) `ns` passed.
 * May return early. wake: all sleepers of this process. */
void cow__wait(uint32_t *word, uint32_t value, uint64_t ns);
void cow__wake(uint32_t *word);
/* At most so many of them. */
void cow__wake_some(uint32_t *word, uint32_t count);

void cow__yield(void);

#endif

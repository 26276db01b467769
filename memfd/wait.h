/* SPDX-License-Identifier: MIT */
/*
 * Time, sleeping, waking, and a lock
 */
#ifndef COW_MEMFD_WAIT_H
#define COW_MEMFD_WAIT_H

#include <stdint.h>

/* Nanoseconds of the kernel's monotonic clock, whatever libraries make of libc's. About 20 ns,
 * without a system call where the kernel offers that. */
uint64_t cow__now(void);

/* How long ago `then` was; 0 if it is later than `now`. The helper asks the
 * clock, waits for the lock, and finds times that are later than its own. */
static inline uint64_t
cow__elapsed(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}

/* wait: sleeps while *word == value, until it is woken, or `ns` has passed (0:
 * without limit). It may return early. wake: wakes all sleepers of this
 * process. */
void cow__wait(uint32_t *word, uint32_t value, uint64_t ns);
void cow__wake(uint32_t *word);
/* Wakes at most `count` sleepers. */
void cow__wake_some(uint32_t *word, uint32_t count);

void cow__yield(void);

/* A lock of one word: 0 is free. A forked child may store 0. Threads sleep for it, so
 * that its holder runs whatever their priorities are. It knows no owner: block signals
 * where a handler may take it. Async-signal-safe. */
void cow__lock(uint32_t *word);
void cow__unlock(uint32_t *word);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Time, sleeping, waking
 */
#ifndef COW_MEMFD_WAIT_H
#define COW_MEMFD_WAIT_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. Some 20 ns; no system call. */
uint64_t cow__now(void);

/* Sleeps while *word == value, until woken or (0: without limit) `ns` passed.
 * May return early. wake: all sleepers of this process. */
void cow__wait(uint32_t *word, uint32_t value, uint64_t ns);
void cow__wake(uint32_t *word);

void cow__yield(void);

#endif

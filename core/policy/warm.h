/* SPDX-License-Identifier: MIT */
/*
 * How much freed memory stays warm: docs/design/warm-memory.md
 *
 * A program that freed memory gets it back without page faults as long as it has no more than at
 * its peak of the last seconds.
 *
 * Pure: the caller owns and locks the struct. One of zeros has learned nothing.
 */
#ifndef COW_CORE_POLICY_WARM_H
#define COW_CORE_POLICY_WARM_H

#include <stddef.h>
#include <stdint.h>

struct cow__warm {
	size_t peak;    /* the most that was live in the last seconds */
	uint64_t since; /* when it was taken */
};

/* How many bytes may be warm while `live` bytes are live. *live_peak: the most that was live since
 * this was set last; it is set to `live` when a new time begins. */
size_t cow__warm_limit(struct cow__warm *w, size_t live, size_t *live_peak, uint64_t now);

#endif

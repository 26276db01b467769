/* SPDX-License-Identifier: MIT */
/*
 * Counters
 *
 * They live in a page of a memfd of their own once there is one, so that other
 * processes can read them without ours taking part, and in static memory
 * before. Updates are relaxed atomics: each is exact, a set of them is not a
 * snapshot.
 */
#ifndef COW_CORE_BASE_STATS_H
#define COW_CORE_BASE_STATS_H

#include "cowshed.h"

#include <stdbool.h>

extern struct cow_stats *cow__stats;

#define cow__stat_add(member, n)                                               \
	__atomic_fetch_add(&cow__stats->member, (uint64_t)(n), __ATOMIC_RELAXED)
#define cow__stat_sub(member, n)                                               \
	__atomic_fetch_sub(&cow__stats->member, (uint64_t)(n), __ATOMIC_RELAXED)
#define cow__stat_set(member, n)                                               \
	__atomic_store_n(&cow__stats->member, (uint64_t)(n), __ATOMIC_RELAXED)
#define cow__stat_get(member)                                                  \
	__atomic_load_n(&cow__stats->member, __ATOMIC_RELAXED)

static inline void
cow__fallback(enum cow_fallback reason)
{
	cow__stat_add(fallbacks[reason], 1);
}

bool cow__stats_published(void);

/* Makes the page that others can read. Failure is no harm. Engine locked. */
void cow__stats_publish(void);

/* Around fork. The child, before it counts anything: counters of its own, from
 * zero but for what lives. */
void cow__stats_prepare(void);
void cow__stats_child(void);

#endif

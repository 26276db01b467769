/* SPDX-License-Identifier: MIT */
/*
 * Counters
 *
 * They live in static memory until the engine publishes them in a page of a
 * memfd. From then on other processes read them there, and this process takes no
 * part in it. Updates are relaxed atomics: each counter is exact. Counters that
 * are read together are no snapshot of one moment.
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

/* The same, where `bytes` are copied for that reason. */
static inline void
cow__fallback_copied(enum cow_fallback reason, size_t bytes)
{
	cow__fallback(reason);
	cow__stat_add(fallback_bytes[reason], bytes);
}

bool cow__stats_published(void);

/* The page's part for settings; NULL: there is no page. Engine locked. */
struct cow_settings *cow__stats_settings(void);
/* Reads that of another process. -errno as cow_stats_read(), with its sentence. */
int cow__stats_read_settings(pid_t pid, struct cow_settings *ret);

/* Makes the page that other processes can read. If that fails the counters stay
 * in static memory. `fill` is for its part for settings. Engine locked. */
void cow__stats_publish(void (*fill)(struct cow_settings *));

/* This process's page is no other's any more, and other processes can't read it: the counters
 * go back to static memory. Engine locked. */
void cow__stats_hide(void);

/* Around fork. The child calls cow__stats_child() before it counts anything. Its
 * counters begin at zero, but for those of what lives: live bytes, blocks and
 * storages, and segments. */
void cow__stats_prepare(void);
void cow__stats_child(void);

#endif

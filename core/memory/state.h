/* SPDX-License-Identifier: MIT */
/*
 * The engine's lock, and the hooks of the folders above
 *
 * One mutex guards tiles, segments, views and everything else that changes
 * rarely. References and clones of tracked storages are frequent: they need no
 * lock, or only a pool's own.
 */
#ifndef COW_CORE_MEMORY_STATE_H
#define COW_CORE_MEMORY_STATE_H

#include "core/memory/engine.h"
#include "core/memory/segment.h"
#include "core/memory/tile.h"
#include "cowshed.h"

/* What the library's constructor does, once: before a call that comes earlier. */
void cow__engine_load(void);

/* Locks the engine and makes sure that it is ready. 0 or -errno; not locked after
 * a failure. */
int cow__engine_enter(void);

/* No lock: true for good, but for a filter that could not be set. */
static inline bool
cow__retired(void)
{
	return __atomic_load_n(&cow__engine.retired, __ATOMIC_RELAXED);
}

/* Does small work that is due: cooling, thawing, limbo. Called at the end of
 * calls that allocate or free. It asks the clock, and does most things at most
 * every 5 ms. */
void cow__engine_tick(void);

/* Lock and unlock, whether the engine is ready or not. */
void cow__engine_lock(void);
void cow__engine_unlock(void);

/* Locks the engine for a call that is allowed in signal handlers. False: the caller interrupted
 * the thread that has the lock, or it was not to be had within 5 s. Without an end the call could
 * wait for ever: a thread that forks has the lock, and waits for one of libc's that the
 * interrupted thread has. */
bool cow__engine_lock_in_handler(void);

/* The same, within `ns`. */
bool cow__engine_lock_within(uint64_t ns);

/* May memory be committed in huge pages? */
static inline bool
cow__commits(void)
{
	return cow__engine.use_collapse && !cow__engine.no_collapse;
}

/* Does the limit leave room for `n` more kernel mappings? */
bool cow__mappings_left(size_t n);

/* What cow_trim() calls in share/, which keeps memory of its own. NULL: nothing.
 * The engine is not locked. */
extern void (*cow__trim_others)(void);

/* A job of the helper. It returns after how many ns to call it again. 0: at once, before the
 * jobs behind it. UINT64_MAX: nothing is left to do. Engine locked; a job may unlock it
 * meanwhile. */
typedef uint64_t cow__job_fn(uint64_t now);

/*
 * What this folder calls in the folders above it. It does not know them, so
 * core/engine.c fills this table when the engine is linked. Nothing is registered
 * at run time: the table is right before the first malloc and in a forked child.
 */
struct cow__hooks {
	/* The first use of the engine: 0 or -errno. Engine locked, as in all
	 * others but `trim`. */
	int (*start)(void);
	/* cow__engine_tick() */
	void (*tick)(void);
	/* cow_trim(). Engine not locked. */
	int (*trim)(void);
	/* A live tile ends. */
	void (*tile_freed)(const struct cow__tile *t);
	/* The helper's jobs, in their order. NULL ends the list. */
	cow__job_fn *const *jobs;
};
extern const struct cow__hooks cow__hooks;

#endif

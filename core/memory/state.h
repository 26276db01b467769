/* SPDX-License-Identifier: MIT */
/*
 * The engine's state: one per process, its lock, and the hooks of the rooms above
 *
 * One mutex guards tiles, segments, views and everything else that changes
 * rarely. References and clones of tracked storages are frequent: they need no
 * lock, or only a pool's own.
 */
#ifndef COW_CORE_MEMORY_STATE_H
#define COW_CORE_MEMORY_STATE_H

#include "core/base/mutex.h"
#include "core/memory/segment.h"
#include "core/memory/tile.h"
#include "cowshed.h"

enum cow__policy { COW__POLICY_AUTO, COW__POLICY_MEMFD, COW__POLICY_ANON };
enum cow__border { COW__BORDER_AUTO, COW__BORDER_CALLS, COW__BORDER_FORK, COW__BORDER_COPIES };
enum cow__copies { COW__COPIES_OFF, COW__COPIES_AUTO, COW__COPIES_LAZY };

struct cow__engine {
	struct cow__mutex lock;
	bool ready;             /* the window is reserved */
	int failed;             /* -errno: there is no window */
	uintptr_t start, end;   /* of the window */
	uintptr_t parting;      /* mmap's memory from here on (core/program/mapping.h) */
	size_t mappings;        /* kernel mappings inside it, estimated */
	size_t mappings_max;    /* our share of vm.max_map_count */
	size_t frozen;          /* live tiles that are mapped private */
	struct cow__segment *segments, *current;
	uint32_t generation;    /* number of forks above this process */
	int32_t process;        /* id of the engine's process; vfork's child has another */

	/* free memory that has pages */
	struct cow__tile *warm_first, *warm_last; /* oldest first */
	size_t warm_bytes;

	/* live memory in our segments and elsewhere, page rounded */
	size_t live_bytes;
	size_t live_peak; /* in the last seconds: core/memory/decay.c resets it */

	/* options: defaults in state.c, setters in the rooms' options.c */
	enum cow__policy policy;
	enum cow__copies copies;
	enum cow__border border; /* when a relative becomes a stranger: core/fork/border.h */
	bool strict, use_helper, use_collapse;
	uint64_t decay_ns;
	size_t warm_max, window_bytes;
	unsigned heal_percent; /* of its time, for a program without rest */

	/* what the kernel refused for good */
	bool no_collapse, no_memfd, no_locks;

	/* a thread has a NUMA policy of its own: nothing is committed ahead */
	bool placed;

	/* The kernel counts what it grants and refuses what is beyond: there is a
	 * limit on private memory, or overcommit_memory is 2. */
	bool counted;

	/* A filter of system calls may end the process for calls that libc would not make: there
	 * are no blocks any more, and new storages are anonymous memory (core/fork/retire.h).
	 * Written under the lock. */
	bool retired;

	/* The kernel looks for equal pages of this process (KSM), in anonymous memory alone. */
	bool merged;

	bool zeroed; /* there may be anonymous blocks for zeros (core/cow/zeroed.h) */

	/* set by core/fork/feedback.c: new blocks get anonymous memory */
	bool prefer_anon;
	/* it forked or copied lazily: there may be something to thaw */
	bool forked_once;
	bool lends;       /* children inherit memory just now, whoever makes them; no tile changes */
	int fork_failed;  /* -errno: the child would lack memory */
};

extern struct cow__engine cow__engine;

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
 * What this room calls in the rooms above it. It does not know them, so
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

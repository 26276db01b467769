/* SPDX-License-Identifier: MIT */
/*
 * The engine's state: one per process, its lock, and the hooks of the rooms above
 *
 * One mutex guards tiles, segments, views and everything else that changes
 * rarely. What happens often (references, clones of tracked storages) needs no
 * lock or a pool's own.
 */
#ifndef COW_CORE_MEMORY_STATE_H
#define COW_CORE_MEMORY_STATE_H

#include "core/base/mutex.h"
#include "core/memory/helper.h"
#include "core/memory/segment.h"
#include "core/memory/tile.h"
#include "cowshed.h"

enum cow__policy { COW__POLICY_AUTO, COW__POLICY_MEMFD, COW__POLICY_ANON };
enum cow__copies { COW__COPIES_OFF, COW__COPIES_AUTO, COW__COPIES_LAZY };

struct cow__engine {
	struct cow__mutex lock;
	bool ready;             /* the window is there */
	int failed;             /* -errno: it can't be had */
	uintptr_t start, end;   /* of the window */
	uintptr_t parting;      /* mmap's memory from here on (core/program/mapping.h) */
	size_t mappings;        /* kernel mappings inside it, estimated */
	size_t mappings_max;    /* our share of vm.max_map_count */
	size_t frozen;          /* live tiles that are mapped private */
	struct cow__segment *segments, *current;
	uint32_t generation;    /* number of forks above this process */
	int32_t process;        /* whose engine it is, not vfork's child's */

	/* free memory that has pages */
	struct cow__tile *warm_first, *warm_last; /* oldest first */
	size_t warm_bytes;

	/* live memory in our segments and elsewhere, page rounded */
	size_t live_bytes;
	size_t live_peak; /* lately: core/memory/decay.c resets it */

	/* options (core/options.h) */
	enum cow__policy policy;
	enum cow__copies copies;
	bool strict, use_helper, use_collapse;
	uint64_t decay_ns;
	size_t warm_max, window_bytes;

	/* what the kernel refused for good */
	bool no_collapse, no_memfd, no_locks;

	/* a thread chose where its memory lies: none is committed for it */
	bool placed;

	/* It counts what it grants, and refuses what is beyond: a limit on
	 * private memory, or overcommit_memory 2. */
	bool counted;

	/* fork's lesson: new blocks get anonymous memory while set */
	bool prefer_anon;
	/* forked, or copied lazily: so there may be something to thaw */
	bool forked_once;
	int fork_failed;  /* -errno: the next child would lack memory */
};

extern struct cow__engine cow__engine;

/* Locks the engine and makes sure that it is ready. 0 or -errno; not locked
 * on failure. */
int cow__engine_enter(void);

/* Small work that is due: cooling, thawing, limbo. At the end of calls that
 * allocate or free; asks the clock, and does most things only now and then. */
void cow__engine_tick(void);

/* Locks without making it ready. */
void cow__engine_lock(void);
void cow__engine_unlock(void);

/* cow__quiet_begin() for what the engine serves. Engine locked. */
bool cow__engine_quiet(void);

/* What cow_trim() asks beside the engine: whoever shares with other processes. Called
 * without the engine's lock. */
extern void (*cow__trim_others)(void);

/*
 * What this room calls in the rooms above it. It may not know them, so core/engine.c fills
 * this table when the engine is linked. Nothing is registered at run time: the table is right
 * before the first malloc and in a forked child.
 */
struct cow__hooks {
	/* The first use of the engine: 0 or -errno. Engine locked, as in all but one. */
	int (*start)(void);
	/* cow__engine_tick() */
	void (*tick)(void);
	/* cow_trim(). Engine not locked. */
	int (*trim)(void);
	/* A live tile ends. */
	void (*tile_freed)(const struct cow__tile *t);
	/* The helper's jobs, in their order (core/memory/helper.h). NULL ends the list. */
	cow__job_fn *const *jobs;
};
extern const struct cow__hooks cow__hooks;

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The engine's data: one struct per process
 *
 * Its lock (core/memory/state.h) guards it. Other threads read some members without it, atomically.
 */
#ifndef COW_CORE_MEMORY_ENGINE_H
#define COW_CORE_MEMORY_ENGINE_H

#include "core/base/mutex.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cow__segment;
struct cow__tile;

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
	bool single_ended;      /* a single block's segment has lost its last tile */
	uint32_t generation;    /* number of forks above this process */
	int32_t process;        /* id of the engine's process; vfork's child has another */

	/* free memory that has pages */
	struct cow__tile *warm_first, *warm_last; /* oldest first */
	size_t warm_bytes;

	/* live memory in our segments and elsewhere, page rounded */
	size_t live_bytes;
	size_t live_peak; /* in the last seconds: core/memory/decay.c resets it */

	/* options: defaults in state.c, setters in the folders' options.c */
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

#endif

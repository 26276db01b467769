/* SPDX-License-Identifier: MIT */
/*
 * Retiring: what becomes of the engine in a process that filters its own system calls
 *
 * A filter was written for a program that does not know of the engine. It may end the process
 * for a call that libc's own allocator would not make. So just before the filter is set, while
 * all calls are still allowed, the engine
 *
 *   freezes       all live memory: private mappings, which the kernel's own fork handles right
 *   lets children inherit it, which otherwise only prepared forks do
 *   gives back    free memory
 *   leaves        all its files and words, as at a border (core/fork/border.h). A child that
 *                 is forked later has none of them
 *   closes        the gate (memfd/gate.h): from then on only such calls are made as libc's
 *                 allocator makes
 *
 * From then on it gives no blocks, and has no helper. New storages are anonymous memory, and their
 * clones copies. A fork locks, and does nothing else. Freed
 * blocks are unmapped; those below 128 KiB stay, because libc would make no call for them.
 * Frozen pages stay in their file until the last block of that file is freed.
 *
 * What can't be frozen, because a device may write to it, stays shared. Forks copy it for the
 * child.
 */
#ifndef COW_CORE_FORK_RETIRE_H
#define COW_CORE_FORK_RETIRE_H

#include "core/memory/state.h"

/* Retires the engine. The border is made, and the library's threads have ended. Allowed in signal
 * handlers. Costs what a fork costs that freezes all. What could not be frozen is copied at later
 * forks. Memory that the kernel would not let children inherit is missing there, and they crash
 * when they touch it.
 *
 *   -EAGAIN   the caller interrupted the engine, or a file could neither be sealed nor left by
 *             copies, since other threads run. The engine goes on, and the filter must not be set
 *   -ENOMEM   the same, since there is no memory for copies */
int cow__retire(void);

/* Has the process a filter since its start that allows too little for the engine? Then it is
 * retired from the start. */
bool cow__retired_at_start(void);

/* The filter could not be set: the engine works again. */
void cow__retire_undo(void);

/* At a fork, locked: copies for the child what is still shared. 0 or -ENOMEM. */
int cow__retired_copies(void);

#endif

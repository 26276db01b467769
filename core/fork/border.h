/* SPDX-License-Identifier: MIT */
/*
 * The border: a process becomes a stranger to its relatives
 *
 * Relatives of a fork share files, words and locks, and believe each other, as long as their
 * credentials and sandboxes are the same: then each could trace the others anyhow. A process
 * that changes its users, groups or capabilities, or enters a sandbox, is a *stranger* from
 * then on to all whom it left, and they to it. It is honest until that call. So just before
 * it, the process
 *
 *   keeps      its private mappings: what it inherited, and its copies
 *   gives back what was free at the fork, which plain Linux would not have let it see
 *   marks      each file that another process may have, for ever: its pages are never
 *              written in place again (core/memory/stranger.c)
 *   gives up   the descriptors and the control parts of these files, and its slot
 *
 * Its own descendants are a new family. Files that nobody else has stay as they are, so a
 * daemon that drops its privileges once goes on as before.
 *
 * If a step is refused, the process replaces what it has of the file by copies. If that can't
 * be done either, the call fails.
 *
 * docs/design/border.md has the reasons, docs/security.md the promise.
 */
#ifndef COW_CORE_FORK_BORDER_H
#define COW_CORE_FORK_BORDER_H

#include "memfd/process.h" /* for preload/, too: which capabilities the process has */

#include <stdbool.h>
#include <stdint.h>

/* How many forks there were since the last border; not 0 while another process may have memory of
 * this one, or the other way round. No lock. Async-signal-safe. */
uint32_t cow__border_relatives(void);

/* May another process have memory of this one, or the other way round? False in a child that
 * shares its parent's address space. Needs no lock, takes nanoseconds. Async-signal-safe. */
bool cow__border_due(void);

/* Did the last border leave files without a seal, since the call was to take the capabilities away?
 * The call may have failed, or have been for one thread alone. Then the next border of a process
 * that still has them seals these files. No lock. */
bool cow__border_soft(void);

/*
 * Makes the border. `hard`: after the call the process may still be able to open a file by its
 * mapping (it keeps CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE), or those it leaves may not trace it
 * and keep descriptors. Allowed in signal handlers. The library's threads have ended. Costs about
 * 20 us for each file.
 *
 * `late`: the call is over, and the border is to children that a handler forked during it. The call
 * can't be refused any more. So where the option `border` wants copies that can't be made, the
 * files get seals and stay mapped.
 *
 *   -EAGAIN   the caller interrupted the engine, or other threads run and a copy is needed
 *   -ENOMEM
 */
int cow__border_make(bool hard, bool late);

/* Engine locked, the library's threads have ended: seals a file, also one that was left before.
 * Where that is refused, the process gets copies of what it has there. 0, -EAGAIN or -ENOMEM. */
struct cow__segment;
int cow__border_seal(struct cow__segment *s);

/* Around such a call, with the border before it: a fork by another thread between the border and
 * the call would make relatives that have no border. So forks wait while one is under way, for a
 * second at most: the call may wait for the thread that forks. A call that is left by siglongjmp(),
 * or whose thread is cancelled, counts no longer than that, either. */
uint64_t cow__border_call_begins(void); /* what to end; 0: nothing, since so many are under way */
void cow__border_call_ends(uint64_t call);
/* Waits for a fork by another thread that has begun, after which there may be relatives. */
void cow__border_fence(void);
bool cow__border_waits(void);
void cow__border_child(void);

/* In a forked child, at the end of its first step: it is a stranger from birth. Ends the
 * process if that can't be. Engine not locked. */
void cow__border_born(void);

/* In a child of a fork that the engine could not prepare. It has the descriptors and control parts of
 * its parent's files, and may have memory that was meant for the child of another thread's fork:
 * gives all of it up. No lock is needed, since the child has one thread, and the engine is of no
 * more use in it. */
void cow__border_missed(void);

/* At a fork, engine locked: from now on there are relatives. True: the child is to be a
 * stranger from birth (option border). */
void cow__border_forked(void);
bool cow__border_at_birth(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The helper thread
 *
 * Runs while there is something to do that no allocator call will do in time:
 * committing ahead of a program that is filling large memory, and giving warm
 * memory back. It is made when that is worth a thread, and ends itself when
 * there is nothing left: a program with one thread is one again. Without it
 * (denied, forbidden by an option) the same work is done inside allocator
 * calls, later.
 */
#ifndef COW_CORE_MEMORY_HELPER_H
#define COW_CORE_MEMORY_HELPER_H

#include <stdbool.h>
#include <stdint.h>

/* A job that the helper does (cow__hooks.jobs). Returns when to call it again, in ns: 0 at
 * once, before the jobs behind it; UINT64_MAX when nothing is left to do. Engine locked; it
 * may unlock it meanwhile. */
typedef uint64_t cow__job_fn(uint64_t now);

/* Starts it; `wake`: or makes it look at once. Engine locked. */
void cow__helper_want(bool wake);

/* The engine's lock, for the helper: it does not queue at first, since whoever
 * gives back a lock that somebody queues for pays a system call. */
void cow__helper_lock(void);

/* Its kernel thread id, 0 if there is none. */
uint32_t cow__helper_id(void);

/* In a forked child it does not exist. */
void cow__helper_child(void);

/* Ends it and keeps it from starting again until allowed. Engine not locked.
 * For callers that need to be the only thread. Meanwhile no threads that copy are made,
 * either (core/memory/workers.h). */
void cow__helper_suspend(void);
void cow__helper_resume(void);
bool cow__helper_suspended(void);

/* The same for calls that are allowed in signal handlers, after vfork() and after forks
 * that ran no handlers. False: it is not this process's, nothing was done. In a handler
 * that interrupted the engine it ends when that is through, and is not waited for. */
bool cow__helper_suspend_signal(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The helper thread
 *
 * It does work that no call of the allocator would do in time: it commits memory
 * ahead of a program that fills large memory, and gives warm memory back. The
 * engine starts it when the work is worth a thread. It ends itself when nothing
 * is left: a program with one thread has one thread again. Without it (refused,
 * or forbidden by an option) calls of the allocator do the same work later.
 */
#ifndef COW_CORE_MEMORY_HELPER_H
#define COW_CORE_MEMORY_HELPER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the helper if it does not run. `wake`: a running one looks for work at
 * once. Engine locked. */
void cow__helper_want(bool wake);

/* Takes the engine's lock, for the helper. At first it only tries: a thread that
 * gives back a lock with a queue pays a system call. */
void cow__helper_lock(void);

/* Its kernel thread id, 0 if there is none. */
uint32_t cow__helper_id(void);

/* In a forked child, which has no helper. */
void cow__helper_child(void);

/* For callers that need to be the only thread. Ends the helper and keeps it from
 * starting until cow__helper_resume(). Meanwhile no copying threads are made,
 * either (core/memory/workers.h). Engine not locked. */
void cow__helper_suspend(void);
void cow__helper_resume(void);
bool cow__helper_suspended(void);

/* The same for calls that are allowed in signal handlers, after vfork(), and
 * after forks that ran no handlers. False: the helper is not this process's, and
 * nothing was done. In a handler that interrupted the engine, the helper ends
 * when it gets the engine's lock. The call does not wait for that. */
bool cow__helper_suspend_signal(void);

#endif

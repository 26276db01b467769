/* SPDX-License-Identifier: MIT */
/*
 * Threads that copy
 *
 * A pool of bare threads (memfd/thread.h): libc does not know them, so a program
 * that never made a thread still has none in its eyes. They sleep between jobs and
 * end after some idle time. A forked child has none, and makes its own at its first
 * job: nothing to hang on. Where threads are denied, the caller does all the work.
 */
#ifndef COW_CORE_MEMORY_WORKERS_H
#define COW_CORE_MEMORY_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

/* How many may work, the caller included (cow_threads_get()). */
int cow__workers(void);

/* Calls part(arg, first, last) for ranges that together are [0, n), in this thread
 * and others, each of at least `grain`; returns when all are done. Several callers
 * at once: who finds the pool busy works alone. `part` runs on threads without
 * thread-local data: no libc but memcpy. */
void cow__workers_run(int64_t n, int64_t grain,
                      void (*part)(void *arg, int64_t first, int64_t last),
                      void *arg);

/* Ends all threads of ours, the helper, too, and keeps them from coming back until
 * cow__helper_resume(): around calls that ask for a process with one thread, or change
 * the calling one alone. Also in signal handlers and after any kind of fork: as
 * cow__helper_suspend_signal(), whose result it returns. */
bool cow__threads_suspend(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Threads that copy
 *
 * A pool of bare threads (memfd/thread.h). libc does not know them, so a program
 * that never made a thread still has none in its eyes. They sleep between jobs
 * and end after some idle time. A forked child has no such threads, makes its own
 * at its first job, and waits for none of its parent's. Where threads are denied,
 * the caller does all the work.
 */
#ifndef COW_CORE_MEMORY_WORKERS_H
#define COW_CORE_MEMORY_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

/* How many threads may work, the caller included (cow_threads_get()). */
int cow__workers(void);

/* Calls part(arg, first, last) for ranges that together are [0, n), each of at
 * least `grain`, in this thread and others. Returns when all are done. A caller
 * that finds the pool busy works alone. `part` runs on threads without
 * thread-local data: no libc but memcpy. */
void cow__workers_run(int64_t n, int64_t grain,
                      void (*part)(void *arg, int64_t first, int64_t last),
                      void *arg);

/* Ends all threads of the library, the helper included, and keeps them from
 * coming back until cow__helper_resume(). It is used around calls that ask for a
 * process with one thread, or change the calling thread alone. It may be called
 * in signal handlers and after any kind of fork. Returns what
 * cow__helper_suspend_signal() returned. */
bool cow__threads_suspend(void);

/* Has the library no threads now? Plain loads. Async-signal-safe. */
bool cow__threads_none(void);

#endif

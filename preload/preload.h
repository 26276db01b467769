/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the shim share
 */
#ifndef COW_PRELOAD_PRELOAD_H
#define COW_PRELOAD_PRELOAD_H

#include "core/base/base.h"
#include "core/memory/window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern size_t preload_threshold;
/* Of mmap. SIZE_MAX: the kernel serves all. 0: the options are not read yet. */
extern size_t preload_map_threshold;
/* The engine's window: its blocks, and behind them memory for mmap. */
extern uintptr_t preload_window_start;
extern size_t preload_window_bytes, preload_blocks_bytes;

/* Call it after the engine has given memory. */
void preload_window_note(void);

/* malloc() passes small requests on, from now on; in a forked child, after 100 ms. */
void preload_gate_open(void);
void preload_gate_child(void);

/* Is this pointer of malloc not the next allocator's? */
static inline int
preload_in_blocks(const void *p)
{
	size_t bytes = __atomic_load_n(&preload_blocks_bytes, __ATOMIC_ACQUIRE);

	return (uintptr_t)p - preload_window_start < bytes;
}

static inline int
preload_is_block(const void *p)
{
	return preload_in_blocks(p) &&
	       (!cow__window_holed || cow__window_owns((uintptr_t)p));
}

/* Does the engine manage these pages? */
static inline int
preload_ours(const void *p)
{
	size_t bytes = __atomic_load_n(&preload_window_bytes, __ATOMIC_ACQUIRE);

	return (uintptr_t)p - preload_window_start < bytes &&
	       (!cow__window_holed || cow__window_owns((uintptr_t)p));
}

/* The process is about to filter its system calls: the engine retires (core/fork/retire.h), and
 * all requests go to the next allocator. undo: the filter could not be set. Async-signal-safe. */
int preload_retire(void); /* 0, or an error: the filter must not be set */
void preload_retire_undo(void);

/* There has been a filter since the start, and it allows too little. */
void preload_sandbox_began(void);

/* Registers what a forked child needs, however libc forks. */
void preload_fork_init(void);

/*
 * Call these around calls that fork without handlers. Parent and child call the end with the
 * result of the fork, if it is PREPARED; it returns the result for the program. Else the child
 * calls preload_fork_alone() with the flags of the call, and the place for its number, or NULL.
 */
enum preload_fork {
	PRELOAD_FORK_PREPARED,
	PRELOAD_FORK_MISSED,  /* the child has no memory of the engine, unless another thread forks */
	PRELOAD_FORK_BY_HAND, /* the program called the handlers of prepare, and will call the rest */
};
enum preload_fork preload_fork_begin(void);
pid_t preload_fork_end(pid_t pid);
void preload_fork_alone(enum preload_fork how, long flags, void *number);

/* In the child of a fork with CLONE_CHILD_SETTID: writes its number there again. */
void preload_child_number(void *at);

/* The gate to the kernel (memfd/syscall.c). */
long cow__syscall(long nr, long a, long b, long c, long d, long e, long f);

/* The same for calls that the program did not ask for (memfd/gate.h): -EPERM where a filter may
 * end the process for it. */
long cow__ask(long nr, long a, long b, long c, long d, long e, long f);

/* The clock of memfd/wait.h. */
uint64_t cow__now(void);

/* libc's getpid() may be another library's. -EPERM, always, where that may not be asked. */
static inline pid_t
preload_pid(void)
{
	return (pid_t)cow__ask(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

/* As libc's syscall(). Our own syscall() looks at addresses first. */
long preload_kernel(long number, ...);

/* Does the call need a process with one thread, or give up privileges?
 * `option` is prctl's, else 0 (preload/privileges.c). */
bool preload_is_for_one(long number, long option);

/* preload/thp.c: prctl() calls that forbid huge pages, or ask whether they are forbidden. */
bool preload_is_thp(long number, long option);
long preload_thp(long option, long a, long b, long c, long d);


/* Makes such a call while the library has no threads. */
long preload_kernel_alone(long number, long a, long b, long c, long d, long e, long f);

/* The same for prctl(). */
long preload_prctl(long option, long a, long b, long c, long d);

/* Between these two the library has no threads (core/memory/workers.c). True: the second
 * must be called. */
bool cow__threads_suspend(void);
void cow__helper_resume(void);

/* Has the library no threads now? It takes nanoseconds, and no lock. */
bool cow__threads_none(void);

/* A second name for our own mmap and its like. The first name may belong to another
 * library that was loaded before us and called us. */
#define PRELOAD_OWN(name)                                                      \
	extern __typeof__(name) preload_##name                                 \
		__attribute__((alias(#name), visibility("hidden"), nothrow,    \
	                       leaf))
__typeof__(mmap) preload_mmap;
__typeof__(munmap) preload_munmap;
__typeof__(mremap) preload_mremap;
__typeof__(mprotect) preload_mprotect;
__typeof__(pkey_mprotect) preload_pkey_mprotect;
__typeof__(madvise) preload_madvise;
__typeof__(mlock) preload_mlock;
__typeof__(mlock2) preload_mlock2;
__typeof__(munlock) preload_munlock;
__typeof__(mlockall) preload_mlockall;
__typeof__(munlockall) preload_munlockall;

/* Asks the kernel, so that a bad address gives an error and no signal. `bytes`: 0, or at
 * least 8. */
bool preload_is_readable(const void *p, size_t bytes);

/* Reads COWSHED_OPTIONS. */
void preload_options_read(void);

/* Reads the options, and serves mmap if they say so: at the first call of mmap, or when
 * the shim starts. Further calls do nothing. */
void preload_mmap_begin(void);

/* The value that preload_map_threshold will get. */
size_t preload_option_mmap(void);

/* May threads that run be stopped by a signal (preload/stop.c)? */
bool preload_option_stops(void);

/* The file for the report at the end of the process, or "". */
const char *preload_report_path(void);

/* Writes the report, in the first call of a process only. Async-signal-safe. */
void preload_report(void);

/* A process with relatives is about to give up privileges: the report says so. Once.
 * Async-signal-safe. */
void preload_report_stranger(void);

/* This process has to report. Called when it starts, and in a forked child. */
void preload_report_begin(void);

#endif

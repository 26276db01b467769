/* SPDX-License-Identifier: MIT */
/*
 * What the shim's files share
 */
#ifndef COW_PRELOAD_PRELOAD_H
#define COW_PRELOAD_PRELOAD_H

#include "core/memory/window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

extern size_t preload_threshold;
extern size_t preload_map_threshold; /* of mmap; SIZE_MAX: all to the kernel */
/* The engine's window: its blocks, and behind them what mmap gave. */
extern uintptr_t preload_window_start;
extern size_t preload_window_bytes, preload_blocks_bytes;
extern int preload_yielded; /* not all of the window is ours any more */

/* To be called after the engine gave memory for the first time. */
void preload_window_note(void);

/* malloc() lets small requests pass; in a forked child after a while. */
void preload_gate_open(void);
void preload_gate_child(void);

static inline size_t
preload_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Of malloc's pointers, those that are not the next allocator's. */
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
	       (!preload_yielded || cow__window_owns((uintptr_t)p));
}

/* Are these pages the engine's business? */
static inline int
preload_ours(const void *p)
{
	size_t bytes = __atomic_load_n(&preload_window_bytes, __ATOMIC_ACQUIRE);

	return (uintptr_t)p - preload_window_start < bytes &&
	       (!preload_yielded || cow__window_owns((uintptr_t)p));
}

/* Registers what a forked child needs, however libc forks. */
void preload_fork_init(void);

/* Around calls that fork without handlers. False: the child does without the engine's
 * memory, and there is no end. The end is called on both sides with what the call gave,
 * and says what its caller gets. */
bool preload_fork_begin(void);
pid_t preload_fork_end(pid_t pid);

/* The gate to the kernel (memfd/syscall.c). */
long cow__syscall(long nr, long a, long b, long c, long d, long e, long f);

/* As libc's syscall(); ours looks at addresses first. */
long preload_kernel(long number, ...);

/* A call that wants, or changes, a process with one thread; prctl's `option`, else 0
 * (preload/privileges.c). In between the library has no threads (core/memory/workers.c): true
 * if they are to be allowed again. */
bool preload_is_for_one(long number, long option);
bool cow__threads_suspend(void);
void cow__helper_resume(void);

/* Our own mmap and so on under a second name. By the first one we might call
 * another library that is before us, and has come here from there. */
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

/* Who asks the kernel with a bad address gets an error, no signal. `bytes`: 0, or 8 and more. */
bool preload_is_readable(const void *p, size_t bytes);

/* COWSHED_OPTIONS, once. */
void preload_options_read(void);

/* What preload_map_threshold shall become. */
size_t preload_option_mmap(void);

/* The file that gets a report at the end of the process, or "". */
const char *preload_report_path(void);

/* The first key that nobody knows, or "". */
const char *preload_unknown_option(void);

/* Writes it; only the first call of a process does. Async-signal-safe. */
void preload_report(void);

/* This process is one that has to report: at its start, also by a fork. */
void preload_report_begin(void);

#endif

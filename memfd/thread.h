/* SPDX-License-Identifier: MIT */
/*
 * A thread that libc does not know
 *
 * The helper works for the engine inside of programs that have no threads of
 * their own. If pthread_create() made it, libc would take the program for one
 * with threads from then on. It would lock its streams and its heap for ever. So
 * the thread is cloned bare: its own stack, a blank thread-local block, every
 * signal blocked, and nothing but system calls and our memory to work with. It
 * must not call libc, nor any name that another library may define: that library's
 * code may use thread-local data. So our libraries have their own functions for memory,
 * texts and time (bytes.c, text.c, vdso.c); scripts/lint-libc.sh lists what they import.
 */
#ifndef COW_MEMFD_THREAD_H
#define COW_MEMFD_THREAD_H

#include <stdbool.h>
#include <stdint.h>

struct cow__thread {
	/* 0: none, or it has ended. Otherwise its kernel thread id, which the
	 * kernel clears when the thread is gone. */
	uint32_t tid;
	uint32_t last; /* the id of the last one */
	void *memory; /* stack and thread-local block, kept for the next one */
};

/* Starts `main` on it. `main` first calls cow__signals_thread() (memfd/signals.h): until
 * then a signal that does nothing may be open. -EAGAIN and others from clone. -ENOSYS under the
 * sanitizers, whose runtimes can't handle a thread that they did not make. */
int cow__thread_start(struct cow__thread *thread, void (*main)(void));

/* A process or a thread of any kind, which runs `main` on that stack and ends. As clone(). */
long cow__thread_clone(unsigned long flags, void *stack, void (*main)(void));

/* Does this run on it? No system call. */
bool cow__thread_is_mine(const struct cow__thread *thread);

/* A forked child lacks the thread. After this call it also lacks the thread's
 * memory, instead of keeping it for a thread that it may never make. */
void cow__thread_not_inherited(struct cow__thread *thread);

/* Waits until it has ended. */
void cow__thread_join(struct cow__thread *thread);

/* After cow__thread_join(): waits until the process no longer counts it, as
 * unshare() does. It waits at most 100 ms, since another thread may have its
 * number by then. */
void cow__thread_left(struct cow__thread *thread);

/* How many threads this process has; 0: that can't be found out. */
uint64_t cow__thread_count(void);

/* Is the caller a thread of the program, and the only one? `ours` does not count; NULL:
 * there is none. A false "no" is possible. */
bool cow__thread_alone(const struct cow__thread *ours);

#endif

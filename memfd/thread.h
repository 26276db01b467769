/* SPDX-License-Identifier: MIT */
/*
 * A thread that libc does not know
 *
 * The helper works on the engine's behalf inside programs that have no threads
 * of their own. Were it made by pthread_create(), libc would believe from then
 * on that the program has threads, and lock its streams and its heap for ever.
 * So it is cloned bare: its own stack, a blank thread-local block, every signal
 * blocked, and nothing but system calls and our memory to work with. It must
 * not call libc, except what touches no thread-local data (memcpy,
 * clock_gettime).
 */
#ifndef COW_MEMFD_THREAD_H
#define COW_MEMFD_THREAD_H

#include <stdint.h>

struct cow__thread {
	/* 0: none, or it has ended. Its kernel thread id otherwise; cleared by
	 * the kernel when it is gone. */
	uint32_t tid;
	uint32_t last; /* the id of the last one */
	void *memory; /* stack and thread-local block, kept for the next one */
};

/* Starts `main` on it. -EAGAIN and others from clone; -ENOSYS under the
 * sanitizers, whose runtimes can't have a thread they did not make. */
int cow__thread_start(struct cow__thread *thread, void (*main)(void));

/* A forked child, which lacks the thread, is to lack its memory, too, instead of
 * keeping it for one that it may never make. */
void cow__thread_not_inherited(struct cow__thread *thread);

/* Waits until it has ended. */
void cow__thread_join(struct cow__thread *thread);

/* After that: waits until the process no longer counts it, as unshare() does. At most a
 * tenth of a second, since its number may be another thread's by now. */
void cow__thread_left(struct cow__thread *thread);

#endif

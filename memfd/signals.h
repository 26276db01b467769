/* SPDX-License-Identifier: MIT */
/*
 * Blocking the signals of the calling thread for a while
 *
 * The engine does that around its locks: no handler of the program runs inside, and none
 * leaves by longjmp().
 *
 * Four signals do nothing unless the program has a handler: SIGCHLD, SIGCONT, SIGURG and
 * SIGWINCH. The kernel drops such a signal when it is sent. It does not if the thread that
 * it is meant for blocks it: a handler might be set before that thread opens it. Instead it
 * wakes another thread, whose epoll_wait() returns EINTR, or whose write() returns early.
 * So those that have no handler now are not blocked.
 *
 * That needs to know who sets a handler meanwhile. The shim does: it waits until no thread
 * is in such a section. Without the shim, and beside filters of system calls, all signals
 * are blocked.
 */
#ifndef COW_MEMFD_SIGNALS_H
#define COW_MEMFD_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

struct cow__signals {
	uint64_t old;
	bool blocked, open; /* open: but for those that do nothing */
};

/* Sections nest. Under the shim each pair takes six short system calls. False: a filter
 * denies it, and nothing is blocked. Async-signal-safe. */
bool cow__signals_block(struct cow__signals *ret);
void cow__signals_restore(const struct cow__signals *signals);

/* For a new thread of the engine, which inherits what is blocked: before it starts; if it
 * does not; and in the thread itself, which then blocks all. No handler is set between. */
void cow__signals_thread_starts(void);
void cow__signals_thread_fails(void);
void cow__signals_thread(void);

/* Is it one of the four? */
bool cow__signals_idle(int sig);

/* Around a call that may give one of the four a handler. `begin` waits for the sections of
 * other threads; at most 100 ms, since a thread may have died in one. */
void cow__signals_handler_begin(void);
void cow__signals_handler_end(void);

/* From now on each thread that sets a handler of the four tells so by the two calls above. Called
 * once, by whoever sees to that. */
void cow__signals_setters_tell(void);

/* In a forked child: the caller is the only thread. */
void cow__signals_child(void);

#endif

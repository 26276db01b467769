/* SPDX-License-Identifier: MIT */
/*
 * fork
 *
 *   prepare  (parent)  lock; take the child's holder slot; freeze what is
 *                      shared; note the child as a holder of every page
 *   fork               the kernel copies no page table of a clean view
 *   parent             unlock; go on. Pages written from now on are copied
 *   child              become its own slot; free what was not inherited
 *
 * A raw fork runs none of this. Its child finds the shared mappings absent
 * (MADV_DONTFORK), and crashes when it touches one. It does not write into its
 * parent's heap.
 *
 * docs/design/fork.md has the measurements.
 */
#ifndef COW_CORE_FORK_FORK_H
#define COW_CORE_FORK_FORK_H

#include "memfd/forked.h"

#include <stdbool.h>

/* What share/ does at a fork. prepare runs before the engine is locked, parent
 * and child after it is unlocked. prepare: `try_only` as for
 * cow__fork_try_prepare(); false: it can't be now, and this fork does without all
 * of it. parent: returns what cow__fork_result() is to return. early: in the
 * child, before anything is mapped there. */
struct cow__fork_hooks {
	bool (*prepare)(bool try_only);
	int (*parent)(void);
	void (*early)(void);
	void (*child)(void);
};
/* Registers these hooks for good. The engine is not locked. Any thread may call
 * it, several at once. */
void cow__fork_hook(const struct cow__fork_hooks *hooks);

/* Registered with pthread_atfork(). The shim calls them around _Fork(). */
void cow__fork_prepare(void);
void cow__fork_parent(void);
void cow__fork_child(void);

/* prepare for callers that may have interrupted a thread inside the engine
 * (_Fork() is allowed in signal handlers). False: a lock could not be taken, that
 * of the engine within 100 ms. None of the three must run then, and the child
 * lacks the engine's memory. */
bool cow__fork_try_prepare(void);

/* Has this thread prepared a fork that is not over? A program may call the handlers of
 * pthread_atfork() itself, around a clone(). What it forks meanwhile is left to them. */
bool cow__fork_is_mine(void);

/* 0, or -errno if freezing and copying were both refused at the calling thread's
 * last fork: the child would have lacked memory, and ended itself. Otherwise what
 * `parent` of the hooks returned. */
int cow__fork_result(void);

/* The program has waited for a child (`blocked`), or looked for one that had ended:
 * a good moment to thaw. True: call it again, there is more to do.
 * Async-signal-safe, as waiting is. If the lock can't be taken within 5 ms, a
 * later moment will do. */
bool cow__fork_after_wait(bool blocked);

/* A forked child lives on and makes no calls to the engine: the helper looks after
 * what it inherited frozen. */
void cow__fork_settled(void);

/* Registers the handlers. Called once. */
int cow__fork_init(void);

#endif

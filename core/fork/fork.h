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
 * A raw fork that runs none of this finds our shared mappings absent
 * (MADV_DONTFORK) and crashes on touching one, rather than writing into its
 * parent's heap.
 *
 * docs/design/fork.md has the measurements.
 */
#ifndef COW_CORE_FORK_FORK_H
#define COW_CORE_FORK_FORK_H

#include <stdbool.h>

/* Who else has something to do at a fork: before the engine is locked, and after
 * it is unlocked. prepare: `try_only` as below; false: it can't be now, and this
 * fork does without all of it. parent: what cow__fork_result() is to say. early: in
 * the child, before anything is mapped there. */
struct cow__fork_hooks {
	bool (*prepare)(bool try_only);
	int (*parent)(void);
	void (*early)(void);
	void (*child)(void);
};
/* Says so, for good. Not with the engine locked; threads: any, at once. */
void cow__fork_hook(const struct cow__fork_hooks *hooks);

/* Registered with pthread_atfork(), and called by the shim around _Fork(). */
void cow__fork_prepare(void);
void cow__fork_parent(void);
void cow__fork_child(void);

/* prepare for callers that may have interrupted a thread inside the engine
 * (_Fork() is allowed in signal handlers): false if the lock is not to be had;
 * then none of the three must run, and the child lacks the engine's memory. */
bool cow__fork_try_prepare(void);

/* Would the child lack memory, because freezing and copying were both refused?
 * 0 or -errno, of the calling thread's last fork; the child ended itself. */
int cow__fork_result(void);

/* A child has been waited for: a good moment to thaw. Async-signal-safe, as
 * waiting is: if the lock is not to be had, a later moment will do. */
void cow__fork_reaped(void);

/* A forked child lives on and calls nobody: the helper looks after what it
 * inherited frozen. */
void cow__fork_settled(void);

/* Registers the handlers, once. */
int cow__fork_init(void);

#endif

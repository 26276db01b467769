/* SPDX-License-Identifier: MIT */
/*
 * Pools: objects of one size
 *
 * The engine takes its metadata from pools and never from malloc(): under the
 * shim libc's malloc is the engine itself. A pool gives no memory back. So a
 * stale pointer into a pool reads an object of the same type, never a hole.
 */
#ifndef COW_CORE_BASE_POOL_H
#define COW_CORE_BASE_POOL_H

#include "core/base/mutex.h"

#include <stddef.h>

struct cow__pool {
	struct cow__mutex lock;
	size_t object_bytes; /* at least those of a pointer */
	struct cow__pool *next; /* in the list of all pools */
	bool listed;
	void *free;
	char *fresh, *fresh_end;
};

/* An object with unspecified contents, or NULL when there is no memory. */
void *cow__pool_take(struct cow__pool *pool);
void cow__pool_give(struct cow__pool *pool, void *object);

/* Lock and unlock all pools that were ever used. They are called around fork, so
 * that the child finds no pool half changed. */
void cow__pools_lock(void);
void cow__pools_unlock(void);

/* Does the calling thread hold the lock of a pool? It does in a signal handler
 * that interrupted it there. */
bool cow__pools_mine(void);

/* cow__mutex_wake() of their mutexes. */
void cow__pools_wake(void);

/* Is no pool locked? Where other threads stand still, it stays so. */
bool cow__pools_idle(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Objects of one size
 *
 * The engine's metadata comes from here and from nowhere else: under the shim
 * libc's malloc is the engine itself. Memory of a pool is never given back, so
 * a stale pointer into one reads an object of the same type, never a hole.
 */
#ifndef COW_CORE_BASE_POOL_H
#define COW_CORE_BASE_POOL_H

#include "core/base/mutex.h"

#include <stddef.h>

struct cow__pool {
	struct cow__mutex lock;
	size_t object_bytes; /* at least a pointer */
	struct cow__pool *next; /* in the list of all */
	bool listed;
	void *free;
	char *fresh, *fresh_end;
};

/* An object with unspecified contents, or NULL when there is no memory. */
void *cow__pool_take(struct cow__pool *pool);
void cow__pool_give(struct cow__pool *pool, void *object);

/* All pools that were ever used, around fork: so that the child finds none of
 * them half changed. */
void cow__pools_lock(void);
void cow__pools_unlock(void);

/* Has the calling thread one of their locks? So it has in a signal handler that
 * interrupted it there. */
bool cow__pools_mine(void);

#endif

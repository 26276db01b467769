/* SPDX-License-Identifier: MIT */
/*
 * Pools: see the header.
 */
#include "core/base/pool.h"
#include "core/base/base.h"
#include "memfd/forked.h"
#include "memfd/map.h"

#define POOL_CHUNK (256 * KIB)

static struct cow__mutex list_lock COW_FORK_DATA;
static struct cow__pool *all;

/* Done before its lock is first taken: a fork that comes afterwards finds it in
 * the list. */
static void
enlist(struct cow__pool *pool)
{
	cow__mutex_lock(&list_lock);
	if (!pool->listed) {
		pool->next = all;
		/* Both are read without the lock. */
		__atomic_store_n(&all, pool, __ATOMIC_RELEASE);
		__atomic_store_n(&pool->listed, true, __ATOMIC_RELEASE);
	}
	cow__mutex_unlock(&list_lock);
}

static void *
take_fresh(struct cow__pool *pool)
{
	size_t bytes = cow__round_up(pool->object_bytes, 16);
	void *object;

	if (pool->fresh == NULL ||
	    (size_t)(pool->fresh_end - pool->fresh) < bytes) {
		void *chunk;

		if (cow__map_meta(POOL_CHUNK, &chunk) < 0)
			return NULL;
		pool->fresh = chunk;
		pool->fresh_end = pool->fresh + POOL_CHUNK;
	}
	object = pool->fresh;
	pool->fresh += bytes;
	return object;
}

COW_EXPORT void *
cow__pool_take(struct cow__pool *pool)
{
	void *object;

	if (cow__unlikely(!__atomic_load_n(&pool->listed, __ATOMIC_ACQUIRE)))
		enlist(pool);
	cow__mutex_lock(&pool->lock);
	object = pool->free;
	if (cow__likely(object != NULL))
		pool->free = *(void **)object;
	else
		object = take_fresh(pool);
	cow__mutex_unlock(&pool->lock);
	return object;
}

COW_EXPORT void
cow__pool_give(struct cow__pool *pool, void *object)
{
	cow__mutex_lock(&pool->lock);
	*(void **)object = pool->free;
	pool->free = object;
	cow__mutex_unlock(&pool->lock);
}

void
cow__pools_lock(void)
{
	cow__mutex_lock(&list_lock);
	for (struct cow__pool *p = all; p; p = p->next)
		cow__mutex_lock(&p->lock);
}

COW_FORK_CODE void
cow__pools_unlock(void)
{
	for (struct cow__pool *p = all; p; p = p->next)
		cow__mutex_unlock(&p->lock);
	cow__mutex_unlock(&list_lock);
}

bool
cow__pools_mine(void)
{
	struct cow__pool *p = __atomic_load_n(&all, __ATOMIC_ACQUIRE);

	while (p && !cow__mutex_is_mine(&p->lock))
		p = p->next;
	return p || cow__mutex_is_mine(&list_lock);
}

void
cow__pools_wake(void)
{
	for (struct cow__pool *p = __atomic_load_n(&all, __ATOMIC_ACQUIRE); p; p = p->next)
		cow__mutex_wake(&p->lock);
	cow__mutex_wake(&list_lock);
}

bool
cow__pools_idle(void)
{
	struct cow__pool *p = __atomic_load_n(&all, __ATOMIC_ACQUIRE);

	while (p && !__atomic_load_n(&p->lock.state, __ATOMIC_ACQUIRE))
		p = p->next;
	return !p && !__atomic_load_n(&list_lock.state, __ATOMIC_ACQUIRE);
}

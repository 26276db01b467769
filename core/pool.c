/* SPDX-License-Identifier: MIT */
/*
 * Objects of one size: see the header.
 */
#include "core/pool.h"
#include "core/base.h"
#include "memfd/map.h"

#define POOL_CHUNK (256 * KIB)

static struct cow__pool *all;

/* Once for each pool, when it takes its first chunk; its lock is held. */
static void
enlist(struct cow__pool *pool)
{
	struct cow__pool *head = __atomic_load_n(&all, __ATOMIC_ACQUIRE);

	do
		pool->next = head;
	while (!__atomic_compare_exchange_n(&all, &head, pool, 0,
	                                    __ATOMIC_RELEASE,
	                                    __ATOMIC_ACQUIRE));
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
		if (pool->fresh == NULL)
			enlist(pool);
		pool->fresh = chunk;
		pool->fresh_end = pool->fresh + POOL_CHUNK;
	}
	object = pool->fresh;
	pool->fresh += bytes;
	return object;
}

void *
cow__pool_take(struct cow__pool *pool)
{
	void *object;

	cow__mutex_lock(&pool->lock);
	object = pool->free;
	if (cow__likely(object != NULL))
		pool->free = *(void **)object;
	else
		object = take_fresh(pool);
	cow__mutex_unlock(&pool->lock);
	return object;
}

void
cow__pool_give(struct cow__pool *pool, void *object)
{
	cow__mutex_lock(&pool->lock);
	*(void **)object = pool->free;
	pool->free = object;
	cow__mutex_unlock(&pool->lock);
}

static struct cow__pool *locked;

void
cow__pools_lock(void)
{
	locked = __atomic_load_n(&all, __ATOMIC_ACQUIRE);
	for (struct cow__pool *p = locked; p; p = p->next)
		cow__mutex_lock(&p->lock);
}

void
cow__pools_unlock(void)
{
	for (struct cow__pool *p = locked; p; p = p->next)
		cow__mutex_unlock(&p->lock);
	locked = NULL;
}

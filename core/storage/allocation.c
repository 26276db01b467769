/* SPDX-License-Identifier: MIT */
/*
 * Allocations: see the header.
 */
#include "core/storage/allocation.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/base/profile.h"
#include "core/base/stats.h"
#include "core/cow/sparse.h"
#include "core/memory/apart.h"
#include "core/memory/bulk.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/storage/small.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/wait.h"

static struct cow__pool allocations = {
	.object_bytes = sizeof(struct cow__allocation)
};
static struct cow__copying *copying COW_FORK_DATA; /* engine's lock */

COW_EXPORT cow__zero_fn *cow__zero[COW_DEVICE_TYPES];
COW_EXPORT cow__adopt_fn *cow__allocation_adopt[COW_DEVICE_TYPES];

static int
foreign_new(struct cow__allocation *a, size_t bytes, unsigned flags,
            struct cow_allocator *allocator)
{
	int r = cow_allocator_allocate(allocator, bytes, &a->ptr);
	cow__adopt_fn *adopt = NULL;

	if (r < 0)
		return r;
	a->kind = COW__AT_FOREIGN;
	a->allocator = allocator;
	a->data = a->ptr.data;
	if (!(flags & COW__ALLOCATION_ZERO))
		; /* as it comes */
	else if (a->ptr.device.type == COW_DEVICE_CPU)
		memset(a->data, 0, bytes);
	else if (cow__zero[a->ptr.device.type])
		r = cow__zero[a->ptr.device.type](a->ptr.device, a->data, bytes);
	/* Pairs with the store that registers it. */
	if ((unsigned)a->ptr.device.type < COW_DEVICE_TYPES)
		adopt = __atomic_load_n(
		        &cow__allocation_adopt[a->ptr.device.type],
		        __ATOMIC_ACQUIRE);
	if (r == 0 && adopt)
		r = adopt(a);
	if (r < 0) {
		cow__error_stands();
		cow__profile_device(a->data, -(int64_t)bytes, a->ptr.device);
		cow_data_ptr_clear(&a->ptr);
	}
	return r;
}

static int
tile_new(struct cow__allocation *a, size_t bytes, unsigned flags)
{
	unsigned f = 0;
	size_t dirty;
	int r;

	if (flags & COW__ALLOCATION_STRICT)
		f |= COW__EXTENT_STRICT;
	if (flags & COW__ALLOCATION_WHOLE)
		f |= COW__EXTENT_WHOLE;
	if (flags & COW__ALLOCATION_ROOM)
		f |= COW__EXTENT_ROOM;
	if (flags & COW__ALLOCATION_APART)
		f = (f & ~(unsigned)COW__EXTENT_ROOM) | COW__EXTENT_APART | COW__EXTENT_MEMFD;
	r = cow__extent_make(bytes, 0, f, COW__USE_STORAGE, a, &a->tile, &dirty);
	if (r < 0)
		return r;
	a->fresh_zero = dirty == 0;
	a->kind = COW__AT_TILE;
	a->data = (void *)cow__tile_start(a->tile);
	a->bytes = a->tile->bytes;
	if ((flags & COW__ALLOCATION_ZERO) && dirty)
		memset(a->data, 0, dirty);
	return 0;
}

static int
small_new(struct cow__allocation *a, unsigned flags)
{
	a->kind = COW__AT_SMALL;
	a->owned = 1;
	return cow__small_new(&a->bytes, flags & COW__ALLOCATION_ZERO, &a->data);
}

int
cow__allocation_new(size_t bytes, unsigned flags,
                    struct cow_allocator *allocator,
                    struct cow__allocation **ret)
{
	struct cow__allocation *a = cow__pool_take(&allocations);
	int r = 0;

	if (!a)
		return -ENOMEM;
	*a = (struct cow__allocation){ .refs = 1, .bytes = bytes };
	if (bytes == 0)
		a->kind = COW__AT_NOTHING;
	else if (allocator)
		r = foreign_new(a, bytes, flags, allocator);
	else if (bytes > COW__SMALL_MAX || (flags & COW__ALLOCATION_TILE))
		r = tile_new(a, bytes, flags);
	else
		r = small_new(a, flags);
	if (r < 0) {
		cow__pool_give(&allocations, a);
		if (!allocator) {
			cow__error_begin(); /* forgets an earlier sentence */
			cow__profile_failure(bytes);
		}
		return r;
	}
	if (bytes && !allocator)
		cow__profile(a->data, (int64_t)a->bytes);
	*ret = a;
	return 0;
}

int
cow__allocation_on_tile(struct cow__tile *tile,
                        struct cow__allocation **ret)
{
	struct cow__allocation *a = cow__pool_take(&allocations);

	if (!a)
		return -ENOMEM;
	*a = (struct cow__allocation){
		.refs = 1,
		.kind = COW__AT_TILE,
		.data = (void *)cow__tile_start(tile),
		.bytes = cow__extent_usable(tile),
		.tile = tile,
		.owned = 1,
	};
	tile->map.allocation = a;
	*ret = a;
	return 0;
}

int
cow__allocation_external(struct cow_data_ptr *ptr, size_t bytes,
                         struct cow__allocation **ret)
{
	struct cow__allocation *a = cow__pool_take(&allocations);

	if (!a)
		return -ENOMEM;
	*a = (struct cow__allocation){
		.refs = 1,
		.kind = COW__AT_EXTERNAL,
		.data = ptr->data,
		.bytes = bytes,
		.ptr = cow_data_ptr_move(ptr),
	};
	*ret = a;
	return 0;
}

COW_EXPORT int
cow__allocation_other(void *data, size_t bytes, void *other,
                      const struct cow__allocation_ops *ops,
                      struct cow__allocation **ret)
{
	struct cow__allocation *a = cow__pool_take(&allocations);

	if (!a)
		return -ENOMEM;
	*a = (struct cow__allocation){
		.refs = 1,
		.kind = COW__AT_OTHER,
		.data = data,
		.bytes = bytes,
		.other = other,
		.ops = ops,
	};
	*ret = a;
	return 0;
}

bool
cow__allocation_try_ref(struct cow__allocation *a)
{
	uint64_t n = __atomic_load_n(&a->refs, __ATOMIC_RELAXED);

	while (n)
		if (__atomic_compare_exchange_n(&a->refs, &n, n + 1, true,
		                                __ATOMIC_ACQUIRE,
		                                __ATOMIC_RELAXED)) {
			/* As a lazy clone: see clone_by_reference(). */
			__atomic_store_n(&a->owned, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&a->cloned, 1, __ATOMIC_RELAXED);
			return true;
		}
	return false;
}

void
cow__allocation_settle(struct cow__allocation *a)
{
	uint32_t n;

	/* Pairs with the release in cow__copying_end(). */
	while ((n = __atomic_load_n(&a->copiers, __ATOMIC_ACQUIRE)) != 0)
		cow__wait(&a->copiers, n, 0);
}

static void
tile_free(struct cow__allocation *a)
{
	struct cow__tile *t = a->tile;

	cow__engine_lock();
	/* Another thread may have found the tile again by its address
	 * meanwhile. */
	if (t->map.allocation == a) {
		t->map.allocation = NULL;
		if (!cow__tile_is_block(t)) {
			t->map.use = COW__USE_STORAGE;
			cow__apart_free(t);
		}
	}
	cow__engine_tick();
	cow__engine_unlock();
}

static void
allocation_free(struct cow__allocation *a)
{
	cow__allocation_settle(a);
	if (a->kind == COW__AT_SMALL || a->kind == COW__AT_TILE)
		cow__profile(a->data, -(int64_t)a->bytes);
	switch (a->kind) {
	case COW__AT_SMALL:
		cow__small_free(a->data);
		break;
	case COW__AT_TILE:
		tile_free(a);
		break;
	case COW__AT_FOREIGN:
		if (a->ops)
			a->ops->drop(a);
		cow__profile_device(a->data, -(int64_t)a->bytes, a->ptr.device);
		cow_data_ptr_clear(&a->ptr);
		break;
	case COW__AT_EXTERNAL:
		cow_data_ptr_clear(&a->ptr);
		break;
	case COW__AT_OTHER:
		a->ops->drop(a);
		break;
	default:
		break;
	}
	cow__pool_give(&allocations, a);
}

void
cow__allocation_release(struct cow__allocation *a)
{
	if (a->kind == COW__AT_TILE) {
		a->tile->map.allocation = NULL;
		a->tile->map.use = cow__max(a->tile->map.use, COW__USE_BLOCK);
	}
	if (a->kind == COW__AT_FOREIGN && a->ops)
		a->ops->drop(a);
	cow__pool_give(&allocations, a);
}

COW_EXPORT void
cow__allocation_unref(struct cow__allocation *a)
{
	if (__atomic_fetch_sub(&a->refs, 1, __ATOMIC_ACQ_REL) == 1)
		allocation_free(a);
}

bool
cow__copying_begin(struct cow__copying *c)
{
	bool last;

	cow__engine_lock();
	__atomic_fetch_add(&c->from->copiers, 1, __ATOMIC_RELAXED);
	last = __atomic_fetch_sub(&c->from->refs, 1, __ATOMIC_ACQ_REL) == 1;
	if (last) {
		__atomic_store_n(&c->from->refs, 1, __ATOMIC_RELAXED);
		__atomic_fetch_sub(&c->from->copiers, 1, __ATOMIC_RELAXED);
	} else {
		c->next = copying;
		copying = c;
	}
	cow__engine_unlock();
	return !last;
}

/* A fork waits for the lock, so a child has all of this, or nothing. */
void
cow__copying_end(struct cow__copying *c, struct cow__allocation **data)
{
	uint32_t *copiers = &c->from->copiers;
	bool last;

	cow__engine_lock();
	for (struct cow__copying **p = &copying; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	*data = c->to;
	/* The last access: a thread that sees 0 may free it. Its memory stays an
	 * allocation for ever, so the wake-up hits no foreign word. */
	last = __atomic_fetch_sub(copiers, 1, __ATOMIC_RELEASE) == 1;
	cow__engine_unlock();
	if (last)
		cow__wake(copiers);
}

/* Is it memory of the engine's that is no plain block any more? */
static bool
is_changed(uintptr_t start, uintptr_t end)
{
	uintptr_t window = __atomic_load_n(&cow__engine.start, __ATOMIC_ACQUIRE);
	const struct cow__tile *t;
	bool changed = false;

	if (start < window ||
	    end > __atomic_load_n(&cow__engine.end, __ATOMIC_ACQUIRE))
		return false;
	cow__engine_lock();
	for (; start < end && !changed; start = cow__tile_end(t)) {
		t = cow__tile_find(start);
		changed = t->kind != COW__LIVE || t->map.slow;
	}
	cow__engine_unlock();
	return changed;
}

COW_EXPORT int
cow__allocation_probe(const struct cow__allocation *a, size_t offset,
                      size_t bytes)
{
	uintptr_t start = (uintptr_t)a->data + offset;
	int r;

	if (a->kind == COW__AT_TILE ? cow__likely(!cow__tile_is_slow(a->tile))
	                            : !is_changed(start, start + bytes))
		return 0;
	r = cow__map_readable(start, bytes);
	if (r < 0)
		cow__error_begin(); /* forgets an earlier sentence */
	return r;
}

int
cow__allocation_data(const struct cow__allocation *a, size_t at, size_t end,
                     size_t *ret_start, size_t *ret_end)
{
	if (a->kind == COW__AT_TILE)
		return cow__sparse_next(a->tile, at, end, ret_start, ret_end);
	return a->ops && a->ops->data ? a->ops->data(a, at, end, ret_start, ret_end)
	                              : -EINVAL;
}

static void
copy_run(struct cow__allocation *to, const struct cow__allocation *from,
         size_t at, size_t end)
{
	const char *src = (const char *)from->data + at;

	if (to->kind == COW__AT_TILE)
		cow__bulk_copy_to(to->tile, at, src, end - at, to->fresh_zero);
	else
		memcpy((char *)to->data + at, src, end - at);
	cow__stat_add(bytes_copied, end - at);
}

static void
clear_run(struct cow__allocation *to, size_t at, size_t end)
{
	if (at == end || to->fresh_zero)
		return;
	if (to->kind == COW__AT_TILE)
		cow__sparse_clear(to->tile, at, end);
	else
		memset((char *)to->data + at, 0, end - at);
}

/* Memory of the CPU to memory of the CPU. */
static void
copy_data(struct cow__allocation *to, const struct cow__allocation *from,
          size_t at, size_t end)
{
	size_t start, stop;
	int r = -EINVAL;

	while (end - at >= COW__SPARSE_LEAST &&
	       (r = cow__allocation_data(from, at, end, &start, &stop)) > 0) {
		clear_run(to, at, start);
		copy_run(to, from, start, stop);
		at = stop;
	}
	if (r == 0)
		clear_run(to, at, end);
	else if (at < end)
		copy_run(to, from, at, end);
}

int
cow__allocation_copy(struct cow__allocation *to,
                     const struct cow__allocation *from, size_t offset,
                     size_t bytes)
{
	int r;

	if (bytes == 0) /* then there may be no data */
		return 0;
	r = cow__allocation_readable(from, offset, bytes);
	if (r < 0)
		return r;
	if (to->kind == COW__AT_FOREIGN && to->allocator->copy_data) {
		cow__error_begin();
		r = to->allocator->copy_data(to->allocator,
		                             (char *)to->data + offset,
		                             (const char *)from->data + offset,
		                             bytes);
		if (r < 0)
			cow__error_stands();
		return r;
	}
	copy_data(to, from, offset, offset + bytes);
	return 0;
}

void
cow__allocation_copy_out(char *to, const struct cow__allocation *from, size_t bytes)
{
	const char *src = from->data;
	size_t at = 0, start, stop, done = 0;
	int r = -EINVAL;

	while (bytes - at >= COW__SPARSE_LEAST &&
	       (r = cow__allocation_data(from, at, bytes, &start, &stop)) > 0) {
		cow__bulk_copy_here(to + start, src + start, stop - start, true);
		done += stop - start;
		at = stop;
	}
	if (r != 0) {
		cow__bulk_copy_here(to + at, src + at, bytes - at, true);
		done += bytes - at;
	}
	cow__stat_add(bytes_copied, done);
}

/* The threads that were copying exist in the parent only. Their storages still
 * point at the old allocations: give them their references back. */
COW_FORK_CODE void
cow__allocations_child(void)
{
	struct cow__copying *c = copying;

	copying = NULL;
	for (; c; c = c->next) {
		c->from->copiers = 0;
		c->from->refs++;
		if (c->to->kind == COW__AT_TILE &&
		    c->to->tile->kind == COW__LIVE)
			cow__extent_free(c->to->tile);
	}
}

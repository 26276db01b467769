/* SPDX-License-Identifier: MIT */
/*
 * Resizing and swapping: other bytes under a living storage
 *
 * A storage grows and shrinks in place where that disturbs nobody: it is alone on its
 * allocation, the allocation is alone on its pages, and there is room behind them. Of
 * recycled memory behind it the bytes are cleared (ZERO), and fresh memory is committed
 * (STRICT). Everything else is copied: what is lazy or frozen, and what is shared with
 * other processes. A copy leaves out what was never touched (core/cow/sparse.h).
 */
#include "core/storage/storage.h"
#include "core/base/error.h"
#include "core/base/profile.h"
#include "core/cow/sparse.h"
#include "core/memory/bare.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/overcommit.h"
#include "core/memory/segment.h"
#include "core/memory/state.h"
#include "memfd/map.h"

/* May another part of the program use the address of this storage now? */
static bool
address_in_use(const struct cow_storage *s)
{
	bool block = s->data->kind == COW__AT_TILE && cow__tile_is_block(s->data->tile);

	return cow__transparent(s) &&
	       (block || __atomic_load_n(&s->refs, __ATOMIC_RELAXED) > 1);
}

static int
exposed_again(struct cow_storage *s)
{
	void *data;

	if (!cow__transparent(s))
		return 0;
	s->flags &= ~(uint32_t)COW_STORAGE_TRANSPARENT;
	return cow_storage_expose(s, &data);
}

static bool
may_resize_in_place(const struct cow_storage *s, size_t bytes)
{
	/* Pairs with the release of the threads that gave theirs up. */
	return bytes && s->data->kind == COW__AT_TILE &&
	       __atomic_load_n(&s->data->refs, __ATOMIC_ACQUIRE) == 1;
}

/* A storage that is alone in its file may be sent, but without what it had: neither in the
 * pages that it left there, nor in the last one. Engine locked. */
static void
leave_rest(struct cow__tile *t, size_t bytes)
{
	if (!t->own.segment || !t->own.segment->single)
		return;
	cow__bare_make(t->next, t->own.segment);
	memset((char *)cow__tile_start(t) + bytes, 0, t->bytes - bytes);
}

/* Resizes the extent. Its memory behind the old end may be anything. */
static bool
extent_resized(struct cow__allocation *a, size_t bytes)
{
	struct cow__tile *t = a->tile;
	size_t old = a->bytes, kept;
	bool done;

	cow__engine_lock();
	if (bytes < old)
		(void)cow__commit_wait(&t, cow__tile_start(t));
	done = t->map.allocation == a && !cow__tile_is_block(t) && cow__extent_resize(t, bytes);
	kept = t->bytes;
	if (done && kept <= old)
		leave_rest(t, bytes);
	cow__engine_unlock();
	if (!done)
		return false;
	a->bytes = kept;
	cow__profile(a->data, (int64_t)kept - (int64_t)old);
	return true;
}

static int
commit(const struct cow__allocation *a, size_t old)
{
	return a->bytes > old
	               ? cow__map_populate((uintptr_t)a->data + old, a->bytes - old)
	               : 0;
}

/* 1: it was. 0: it can't be. -errno: there is no memory to commit. */
static int
resized_in_place(struct cow_storage *s, size_t bytes)
{
	struct cow__allocation *a = s->data;
	size_t old = a->bytes;
	int r = 0;

	if (!may_resize_in_place(s, bytes) ||
	    (bytes > old && cow__overcommit_ask(bytes - old) < 0))
		return 0;
	cow__allocation_settle(a);
	if (!extent_resized(a, bytes))
		return 0;
	if (s->flags & COW_STORAGE_STRICT)
		r = commit(a, old);
	if (r < 0) {
		(void)extent_resized(a, s->bytes);
		return r;
	}
	if (bytes > s->bytes && (s->flags & COW_STORAGE_ZERO))
		cow__sparse_clear(a->tile, s->bytes, bytes);
	a->fresh_zero = false;
	s->bytes = bytes;
	return 1;
}

/* May a storage with bytes get others? 0 or -errno. */
static int
may_resize(const struct cow_storage *s, size_t bytes)
{
	if (!s->resizable)
		return cow__error(-EPERM,
		                  "cow_storage_resize: this storage has no "
		                  "allocator for new bytes");
	if (address_in_use(s))
		return cow__error(-EBUSY,
		                  "cow_storage_resize: the address of its "
		                  "bytes may be in use (transparent)");
	if (bytes > (size_t)INT64_MAX)
		return cow__error_number(
		        -EINVAL, "# bytes: a size beyond INT64_MAX is a mistake "
		                 "(negative?)", bytes);
	return 0;
}

/* An allocation of this size with a copy of the storage's bytes, as many as fit. */
static int
copied_to_new(const struct cow_storage *s, size_t bytes,
              struct cow__allocation **ret)
{
	unsigned flags = COW__ALLOCATION_WHOLE;
	struct cow__allocation *a;
	int r;

	/* It grows now, so it may grow again. */
	if (bytes > s->bytes && s->bytes >= COW__HUGE)
		flags |= COW__ALLOCATION_ROOM;
	flags |= cow__storage_allocation_flags(s);
	if (s->flags & COW_STORAGE_ZERO)
		flags |= COW__ALLOCATION_ZERO;
	r = cow__allocation_new(bytes, flags, s->allocator, &a);
	if (r < 0)
		return r;
	r = cow__allocation_copy(a, s->data, 0, cow__min(bytes, s->bytes));
	if (r == 0)
		r = cow__allocation_copied(s->data);
	if (r < 0)
		cow__allocation_unref(a);
	else
		*ret = a;
	return r;
}

COW_EXPORT int
cow_storage_resize(struct cow_storage *s, size_t bytes)
{
	struct cow__allocation *a, *old;
	int r;

	if (!s)
		return cow__error(-EINVAL, "cow_storage_resize: NULL");
	if (s->elements)
		return cow__error(-EOPNOTSUPP,
		                  "cow_storage_resize: a storage with element "
		                  "hooks has a fixed size");
	/* A size alone. */
	if (s->device.type == COW_DEVICE_META && bytes <= (size_t)INT64_MAX) {
		s->bytes = bytes;
		return 0;
	}
	r = may_resize(s, bytes);
	if (r < 0)
		return r;
	if (bytes == s->bytes)
		return 0;
	r = resized_in_place(s, bytes);
	if (r > 0)
		return 0;
	if (r == 0)
		r = copied_to_new(s, bytes, &a);
	if (r < 0)
		return cow__error_passed(r, "cow_storage_resize");
	/* In this order: another thread may fork. */
	old = s->data;
	s->bytes = cow__min(bytes, s->bytes);
	s->data = a;
	s->bytes = bytes;
	cow__allocation_unref(old);
	if (s->allocator)
		s->device = s->allocator->device;
	return exposed_again(s);
}

/* Hands the old bytes to the caller, in a data pointer that owns them. The
 * storage has none afterwards. */
static void
give_away(struct cow_storage *s, struct cow_data_ptr *ret)
{
	struct cow__allocation *a = s->data;

	/* Without bytes nothing was materialized: lazy clones share the
	 * allocation. */
	if (__atomic_load_n(&a->refs, __ATOMIC_ACQUIRE) > 1) {
		*ret = (struct cow_data_ptr){ .device = s->device };
		cow__allocation_unref(a);
		return;
	}
	switch (a->kind) {
	case COW__AT_FOREIGN:
	case COW__AT_EXTERNAL:
		*ret = cow_data_ptr_move(&a->ptr);
		break;
	case COW__AT_SMALL:
	case COW__AT_TILE:
		*ret = cow_data_ptr_make(a->data, a->data,
		                         cow_allocator_default()->raw_deleter,
		                         s->device);
		break;
	default:
		*ret = (struct cow_data_ptr){ .device = s->device };
	}
	/* A fork in another thread looks at the allocations of all tiles. */
	if (a->kind == COW__AT_TILE) {
		cow__engine_lock();
		cow__allocation_release(a);
		cow__engine_unlock();
	} else {
		cow__allocation_release(a);
	}
}

COW_EXPORT int
cow_storage_swap_data_ptr(struct cow_storage *s, struct cow_data_ptr *inout,
                          size_t bytes)
{
	struct cow_data_ptr old, fresh;
	struct cow__allocation *a;
	int r;

	if (!s || !inout || (bytes && !inout->data))
		return cow__error(-EINVAL, "cow_storage_swap_data_ptr: NULL");
	r = cow__storage_external_ok(inout, bytes);
	if (r < 0)
		return r;
	if (s->elements && bytes % s->elements->element_bytes)
		return cow__error(-EINVAL,
		                  "not a whole number of elements");
	if (address_in_use(s))
		return cow__error(-EBUSY,
		                  "cow_storage_swap_data_ptr: the address of "
		                  "its bytes may be in use (transparent)");
	/* The caller may write the old data, so no other storage may share it. */
	r = cow__materialize(s, 0, s->bytes, COW_WRITE_SPARSE);
	if (r < 0)
		return cow__error_passed(r, "cow_storage_swap_data_ptr");
	if (s->data->kind == COW__AT_OTHER)
		r = cow__materialize_here(s);
	if (r < 0)
		return cow__error_passed(r, "cow_storage_swap_data_ptr");
	fresh = *inout;
	r = cow__allocation_external(&fresh, bytes, &a);
	if (r < 0)
		return cow__error_passed(r, "cow_storage_swap_data_ptr");
	give_away(s, &old);
	s->data = a;
	s->bytes = bytes;
	s->device = a->ptr.device;
	s->flags &= ~(uint32_t)COW_STORAGE_TRANSPARENT;
	s->resizable = s->allocator
	                       ? a->ptr.deleter == s->allocator->raw_deleter
	                       : a->ptr.deleter ==
	                                 cow_allocator_default()->raw_deleter;
	*inout = old;
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Materializing: a storage gets bytes that it alone writes
 *
 * There are three ways. From cheap to expensive:
 *
 *   steal    no other storage is left: the bytes are taken over as they lie
 *   by page  a private view of the shared pages; each page is copied when it
 *            is first written, in about 2 us. The view still needs the pages
 *            that it did not copy, so the sibling can't write in place either:
 *            its writes cost as much, and are counted in
 *   by copy  all bytes at once, in about 0.3 us a page into recycled memory; the
 *            sibling is free afterwards
 *
 * Everything that can fail is prepared first. The reference is given up last, and
 * that can't fail (core/storage/allocation.h).
 */
#include "core/policy/decide.h"
#include "core/storage/storage.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/cow/thaw.h"
#include "core/cow/view.h"
#include "core/memory/apart.h"
#include "core/memory/commit.h"
#include "core/memory/extent.h"
#include "core/memory/state.h"

static bool
by_page_is_cheaper(size_t total, size_t range, enum cow_write_hint hint)
{
	uint64_t pages = (total + cow__page - 1) / cow__page;
	uint64_t written = (range + cow__page - 1) / cow__page;

	if (hint == COW_WRITE_BY_PAGE)
		return true;
	if (hint == COW_WRITE_BY_COPY || hint == COW_WRITE_ALL)
		return false;
	if (hint == COW_WRITE_SPARSE)
		written = (written + COW__SPARSE_SHARE - 1) / COW__SPARSE_SHARE;
	return cow__by_page_is_cheaper(pages, written);
}

/* How much is thawed at once for a write of this size. The work is in proportion
 * to the write, and a program that writes little waits briefly. */
static size_t
thaw_bytes(size_t range, enum cow_write_hint hint)
{
	if (hint == COW_WRITE_SPARSE)
		range /= COW__SPARSE_SHARE;
	return cow__max(range, COW__THAW_LEAST);
}

/* For the last reference: waits for the copiers. Under the lock, makes the pages
 * writable in place if nothing else reads them. 1: done. 0: views or processes
 * share the pages, and they are not private here. -errno: from the operations of
 * the data. */
static int
steal(struct cow_storage *s, const struct cow__writing *w)
{
	struct cow__allocation *a = s->data;
	struct cow__census c = { .asked = 0 };
	struct cow__tile *t = a->tile;
	int r = 1;

	cow__allocation_settle(a);
	if (a->ops) {
		r = a->ops->alone(a, w);
		a->owned = r == COW__ALONE;
		return r < 0 ? r : r != COW__NOT_ALONE;
	}
	if (a->kind != COW__AT_TILE) {
		a->owned = 1;
		return 1;
	}
	cow__engine_lock();
	if (t->map.backing == COW__PRIVATE) {
		/* It is private, so it may be written. To write in place is
		 * better. What an earlier thaw made shared is made private again
		 * if views read it. */
		if (cow__exclusive(t, &c))
			(void)cow__thaw_tile(t, thaw_bytes(w->bytes, w->hint));
		else if (!cow__is_frozen(t) &&
		         !cow__exclusive_where_shared(t, &c))
			r = cow__freeze(t) == 0;
	} else if (t->map.backing == COW__SHARED && !cow__exclusive(t, &c)) {
		r = 0;
	}
	if (r)
		a->owned = 1;
	cow__engine_unlock();
	return r;
}

/* Gives the storage other bytes. The old ones are kept for a caller that wants
 * them. */
static void
replace_data(struct cow_storage *s, struct cow__allocation *by,
             struct cow__allocation **old)
{
	struct cow__allocation *was = s->data;

	/* In this order: a child that is forked between the two has one reference
	 * too many, never one too few. */
	s->data = by;
	if (old)
		*old = was;
	else
		cow__allocation_unref(was);
}

/* Replaces the shared pages by a view of them. -E2BIG: a copy is better. */
static int
by_page(struct cow_storage *s, const struct cow__writing *w,
        struct cow__allocation **old)
{
	struct cow__allocation *from = s->data, *to;
	struct cow__tile *t;
	int r;

	if (from->ops) {
		r = from->ops->view(from, w, &to);
		if (r < 0)
			return r;
		cow__stat_add(materialized_page, 1);
		replace_data(s, to, old);
		return 0;
	}
	if (from->kind != COW__AT_TILE)
		return -E2BIG;
	cow__engine_lock();
	/* All storages on `from` are tracked: nobody writes it now. */
	r = cow__view_new(from->tile, COW__REBASE_ALWAYS, NULL, &t);
	if (r == 0) {
		r = cow__allocation_on_tile(t, &to);
		if (r < 0)
			cow__extent_free(t);
	}
	cow__engine_unlock();
	if (r == -E2BIG) /* cow__view_new() counted it */
		cow__stat_add(fallback_bytes[COW_FALLBACK_REWRITTEN], s->bytes);
	if (r < 0) /* whatever the error, a copy may succeed */
		return -E2BIG;
	cow__stat_add(materialized_page, 1);
	replace_data(s, to, old);
	return 0;
}

static int
copy_bytes(struct cow__allocation *to, const struct cow__allocation *from,
           const struct cow_storage *s, size_t offset, size_t bytes,
           enum cow_write_hint hint)
{
	int r;

	if (hint != COW_WRITE_ALL)
		return cow__allocation_copy(to, from, 0, s->bytes);
	/* Only the bytes outside of the range that will be overwritten. */
	r = cow__allocation_copy(to, from, 0, offset);
	if (r == 0)
		r = cow__allocation_copy(to, from, offset + bytes,
		                         s->bytes - offset - bytes);
	return r;
}

/* Can all that copy_bytes() reads be read? 0 or -EFAULT. */
static int
copyable(const struct cow_storage *s, size_t offset, size_t bytes,
         enum cow_write_hint hint)
{
	const struct cow__allocation *a = s->data;
	int r;

	if (hint != COW_WRITE_ALL)
		return cow__allocation_readable(a, 0, s->bytes);
	r = cow__allocation_readable(a, 0, offset);
	if (r == 0)
		r = cow__allocation_readable(a, offset + bytes,
		                             s->bytes - offset - bytes);
	return r;
}

/* Makes bytes of the storage's own. `sole`: no other storage is on this
 * allocation, but views read its pages. 1: it was the last reference after all,
 * and nothing was done. */
static int
by_copy(struct cow_storage *s, bool sole, size_t offset, size_t bytes,
        enum cow_write_hint hint, struct cow__allocation **old)
{
	struct cow__copying c = { .from = s->data };
	bool foreign = s->data->kind == COW__AT_FOREIGN ||
	               s->device.type != COW_DEVICE_CPU;
	int r = copyable(s, offset, bytes, hint);

	if (r < 0)
		return r;
	r = cow__allocation_new(s->bytes,
	                        cow__storage_allocation_flags(s) |
	                                COW__ALLOCATION_WHOLE,
	                        foreign ? s->allocator : NULL, &c.to);
	if (r < 0)
		return r;
	if (sole || old || (foreign && s->allocator->copy_data)) {
		/* The reference is given up after the copy, if at all: no other
		 * storage waits to steal, or the copy itself can fail. */
		r = copy_bytes(c.to, c.from, s, offset, bytes, hint);
		if (r == 0)
			r = cow__allocation_copied(c.from);
		if (r < 0) {
			cow__allocation_unref(c.to);
			return r;
		}
		cow__stat_add(materialized_copy, 1);
		replace_data(s, c.to, old);
		return 0;
	}
	if (!cow__copying_begin(&c)) {
		cow__allocation_unref(c.to);
		return 1;
	}
	(void)copy_bytes(c.to, c.from, s, offset, bytes, hint);
	cow__copying_end(&c, &s->data);
	cow__stat_add(materialized_copy, 1);
	return 0;
}

int
cow__materialize_here(struct cow_storage *s)
{
	int r = by_copy(s, true, 0, s->bytes, COW_WRITE_AUTO, NULL);

	return r < 0 ? r : 0;
}

static int
materialize(struct cow_storage *s, size_t offset, size_t bytes,
            enum cow_write_hint hint, struct cow__allocation **old)
{
	const struct cow__writing w = { s->bytes, offset, bytes, hint };

	if (s->bytes == 0 || s->data->kind == COW__AT_EXTERNAL ||
	    cow__transparent(s))
		return 0;
	if ((s->flags & COW_STORAGE_STRICT) && hint != COW_WRITE_ALL)
		hint = COW_WRITE_BY_COPY; /* pages of a view come later */
	for (;;) {
		struct cow__allocation *a = s->data;
		bool sole;
		int r;

		/* Pairs with the release of the threads that gave theirs up. */
		sole = __atomic_load_n(&a->refs, __ATOMIC_ACQUIRE) == 1;
		r = sole ? steal(s, &w) : 0;
		if (r < 0)
			return r;
		if (r > 0) {
			cow__stat_add(steals, a->cloned);
			a->cloned = 0;
			break;
		}
		r = -E2BIG;
		/* Other devices have other costs. */
		if (s->device.type != COW_DEVICE_CPU ||
		    by_page_is_cheaper(s->bytes, bytes, hint))
			r = by_page(s, &w, old);
		if (r == -E2BIG)
			r = by_copy(s, sole, offset, bytes, hint, old);
		if (r < 0)
			return r;
		if (r == 0)
			break;
	}
	if (hint == COW_WRITE_ALL && s->data->kind == COW__AT_TILE &&
	    s->data->fresh_zero) {
		cow__engine_lock();
		cow__commit_forget_young(s->data->tile); /* done here */
		cow__engine_unlock();
		cow__commit_range(s->data->tile, offset, bytes);
	}
	s->data->fresh_zero = false;
	return 0;
}

COW_EXPORT int
cow__materialize(struct cow_storage *s, size_t offset, size_t bytes,
                 enum cow_write_hint hint)
{
	return materialize(s, offset, bytes, hint, NULL);
}

COW_EXPORT int
cow__materialize_keeping(struct cow_storage *s, size_t offset, size_t bytes,
                         struct cow__allocation **ret)
{
	*ret = NULL;
	return materialize(s, offset, bytes, COW_WRITE_ALL, ret);
}

COW_EXPORT void
cow__materialize_undo(struct cow_storage *s, struct cow__allocation *old)
{
	cow__allocation_unref(s->data);
	s->data = old;
}

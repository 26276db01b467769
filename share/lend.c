/* SPDX-License-Identifier: MIT */
/*
 * Homes under storages
 *
 * The operations by which the engine uses shared data (struct cow__allocation_ops of
 * core/storage/allocation.h): ask whether it may be written in place, make a private view
 * of it or of such a view, drop it. Also makes a storage of a home, and moves a storage
 * to a home.
 */
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"
#include "share/hold.h"
#include "share/home.h"

/* A private view of a home's bytes. */
struct view {
	struct cow__home *home;
	uintptr_t mapping;
};

static struct cow__pool views = { .object_bytes = sizeof(struct view) };

static int
view_alone(struct cow__allocation *a, const struct cow__writing *w)
{
	(void)a;
	(void)w;
	return COW__ALONE;
}

static void
view_drop(struct cow__allocation *a)
{
	struct view *v = a->other;

	(void)cow__map_release(v->mapping,
	                       cow__round_up(a->bytes, cow__page));
	cow__share_enter();
	cow__home_unref(v->home);
	cow__share_leave();
	cow__pool_give(&views, v);
}

static const struct cow__allocation_ops view_ops;

/* A private mapping of the file's pages: the kernel copies each page at its first write.
 * -E2BIG: the caller should copy all bytes instead. */
static int
view_new(struct cow__home *h, struct cow__allocation **ret)
{
	const struct cow__descriptor *file = h->pack ? &h->pack->file : &h->file;
	uint64_t offset = cow__home_offset(h);
	size_t bytes = cow__round_up(h->bytes, cow__page);
	struct view *v;
	int r;

	if (offset % cow__page)
		return -E2BIG;
	v = cow__pool_take(&views);
	if (!v)
		return -E2BIG;
	/* Huge pages fit where the file's do. */
	r = cow__map_reserve(bytes, COW__PACK_HUGE, &v->mapping);
	if (r == 0) {
		r = cow__map_unlocked(v->mapping, bytes, file, offset, false, true);
		if (r == 0)
			r = cow__allocation_other((void *)v->mapping, h->bytes,
			                          v, &view_ops, ret);
		if (r < 0)
			(void)cow__map_release(v->mapping, bytes);
	}
	if (r < 0) { /* after any failure a copy may succeed */
		cow__pool_give(&views, v);
		return -E2BIG;
	}
	(*ret)->owned = 1;
	v->home = h;
	cow__share_enter();
	h->refs++;
	cow__share_leave();
	return 0;
}

/*
 * Another view of the same home, with the pages that were written in this one. Each page
 * is copied as it is at that moment, so it has every write that ended before. Such a write
 * made the kernel copy its page, and pagemap shows the copy.
 */
static int
view_moment(struct cow__allocation *a, struct cow__allocation **ret)
{
	struct view *v = a->other;
	uintptr_t at = v->mapping;
	uintptr_t end = at + cow__round_up(a->bytes, cow__page);
	struct cow__run runs[64];
	struct cow__allocation *to;
	size_t copied = 0;
	int r = view_new(v->home, &to), n;

	if (r < 0)
		return r;
	while (at < end) {
		n = cow__pagemap_copied(at, end, runs, 64, &at);
		for (int i = 0; i < n; i++)
			copied += runs[i].end - runs[i].start;
		if (n < 0 || copied > a->bytes / 2) {
			cow__allocation_unref(to);
			return -E2BIG;
		}
		for (int i = 0; i < n; i++)
			memcpy((char *)to->data + (runs[i].start - v->mapping),
			       (void *)runs[i].start,
			       runs[i].end - runs[i].start);
	}
	cow__stat_add(bytes_copied, copied);
	*ret = to;
	return 0;
}

/* Where a file has data, as struct cow__allocation_ops says. `base`: of the allocation. */
static int
file_data(const struct cow__descriptor *file, uint64_t base, size_t at, size_t end,
          size_t *ret_start, size_t *ret_end)
{
	uint64_t start, stop;
	int r = cow__memfd_data(file, base + at, base + end, &start, &stop);

	if (r > 0) {
		*ret_start = (size_t)(start - base);
		*ret_end = (size_t)(stop - base);
	}
	return r;
}

static int
home_file_data(const struct cow__home *h, size_t at, size_t end, size_t *ret_start,
               size_t *ret_end)
{
	return file_data(h->pack ? &h->pack->file : &h->file, cow__home_offset(h), at,
	                 end, ret_start, ret_end);
}

/* In the home's file, or in pages that were written in this view. */
static int
view_data(const struct cow__allocation *a, size_t at, size_t end, size_t *ret_start,
          size_t *ret_end)
{
	const struct view *v = a->other;
	uintptr_t next, stop;
	struct cow__run runs[2]; /* with one run asked for, only its first page is sure */
	int r = home_file_data(v->home, at, end, ret_start, ret_end), n = 0;

	if (r < 0 || (r > 0 && *ret_start == at))
		return r;
	next = cow__round_down(v->mapping + at, cow__page);
	stop = cow__round_up(v->mapping + (r > 0 ? *ret_start : end), cow__page);
	while (n == 0 && next < stop)
		n = cow__pagemap_copied(next, stop, runs, 2, &next);
	if (n <= 0)
		return n < 0 ? n : r;
	*ret_start = cow__max(runs[0].start - v->mapping, at);
	*ret_end = cow__min(runs[0].end - v->mapping, end);
	return 1;
}

static int
view_view(struct cow__allocation *a, const struct cow__writing *w,
          struct cow__allocation **ret)
{
	(void)w;
	return view_moment(a, ret);
}

static const struct cow__allocation_ops view_ops = {
	.alone = view_alone,
	.view = view_view,
	.moment = view_moment,
	.drop = view_drop,
	.data = view_data,
};

struct cow__home *
cow__home_shown(const struct cow_storage *s)
{
	const struct view *v = s->data->other;
	uintptr_t at, end;
	struct cow__run run;
	int n = 0;

	if (s->data->kind != COW__AT_OTHER || s->data->ops != &view_ops ||
	    s->bytes != v->home->bytes)
		return NULL;
	at = v->mapping;
	end = at + cow__round_up(s->data->bytes, cow__page);
	while (n == 0 && at < end)
		n = cow__pagemap_copied(at, end, &run, 1, &at);
	return n == 0 ? v->home : NULL;
}

static int
home_alone(struct cow__allocation *a, const struct cow__writing *w)
{
	struct cow__home *h = a->other;
	struct cow__roll roll = { { 0 } };
	bool alone = false;

	(void)w;
	cow__share_enter();
	/* A message that another thread received may have made a storage on it. */
	if (h->mapping || __atomic_load_n(&a->refs, __ATOMIC_ACQUIRE) > 1) {
		; /* or the home's mapping is for reading alone */
	} else if (h->kind == COW__HOME_PACKED && h->pack->retired) {
		h->diverged = alone = true;
	} else if (h->kind == COW__HOME_PACKED && h->refs == 1 &&
	           cow__hold_alone(h->pack, h->at.page, &roll)) {
		cow__home_renew(h);
		alone = true;
	}
	h->writable |= alone;
	cow__share_leave();
	return alone ? COW__ALONE : COW__NOT_ALONE;
}

static int
home_view(struct cow__allocation *a, const struct cow__writing *w,
          struct cow__allocation **ret)
{
	struct cow__home *h = a->other;

	(void)w;
	/* A fork at this moment changes no answer: the caller's reference keeps others from writing
	 * the home in place, so the file has what the mapping has. */
	return __atomic_load_n(&h->diverged, __ATOMIC_RELAXED) ? -E2BIG : view_new(h, ret);
}

static void
home_drop(struct cow__allocation *a)
{
	struct cow__home *h = a->other;

	cow__share_enter();
	if (h->allocation == a)
		h->allocation = NULL;
	cow__home_unref(h);
	cow__share_leave();
}

/* Of a pack that a fork made private the file does not tell all. A fork at this moment changes
 * no answer: nobody writes what is read here, so what the file has stays true. */
static int
home_data(const struct cow__allocation *a, size_t at, size_t end, size_t *ret_start,
          size_t *ret_end)
{
	const struct cow__home *h = a->other;

	return h->pack && __atomic_load_n(&h->pack->retired, __ATOMIC_RELAXED)
	               ? -EINVAL
	               : home_file_data(h, at, end, ret_start, ret_end);
}

static const struct cow__allocation_ops home_ops = {
	.alone = home_alone,
	.view = home_view,
	.drop = home_drop,
	.data = home_data,
};

/* An alias is external memory for the engine: others write it. */
static void
alias_delete(void *context)
{
	cow__share_enter();
	cow__home_unref(context);
	cow__share_leave();
}

struct cow__home *
cow__home_of(const struct cow_storage *s)
{
	const struct cow__allocation *a = s->data;

	if (a->kind == COW__AT_OTHER && a->ops == &home_ops)
		return a->other;
	if (a->kind == COW__AT_EXTERNAL && a->ptr.deleter == alias_delete)
		return a->ptr.context;
	return NULL;
}

static void
storage_ended(struct cow_storage *s)
{
	struct cow__home *h;

	cow__share_enter();
	h = s->home;
	if (h && h->storage == s)
		h->storage = NULL;
	cow__share_leave();
}

static int
alias_data(const struct cow__allocation *a, size_t at, size_t end, size_t *ret_start,
           size_t *ret_end)
{
	return home_file_data(a->ptr.context, at, end, ret_start, ret_end);
}

static const struct cow__allocation_ops alias_ops = { .data = alias_data };

/* The home's allocation, or a new one. Takes the caller's reference on the home over on
 * success. */
static int
allocation(struct cow__home *h, struct cow__allocation **ret)
{
	int r;

	if (h->kind == COW__HOME_ALIAS) {
		struct cow_data_ptr ptr = { h->data, h, alias_delete,
			                    { COW_DEVICE_CPU, 0 } };

		r = cow__allocation_external(&ptr, h->bytes, ret);
		if (r == 0)
			(*ret)->ops = &alias_ops;
		return r;
	}
	if (h->allocation && cow__allocation_try_ref(h->allocation)) {
		*ret = h->allocation;
		h->refs--; /* the allocation has a reference already */
		return 0;
	}
	r = cow__allocation_other(h->data, h->bytes, h, &home_ops, ret);
	if (r == 0)
		h->allocation = *ret;
	return r;
}

/* An alias that comes again, or back to its owner, is the same storage. */
static void
remember(struct cow__home *h, struct cow_storage *s)
{
	/* Other threads read it to end storages that have homes. */
	__atomic_store_n(&cow__storage_ended, storage_ended, __ATOMIC_RELAXED);
	h->storage = s;
	s->home = h;
}

int
cow__home_storage(struct cow__home *h, struct cow_storage **ret)
{
	const struct cow_storage like = { .resizable = true };
	struct cow_storage *s = h->storage;
	struct cow__allocation *a;
	int r;

	if (s && cow__storage_try_ref(s)) {
		if (cow__home_of(s) == h) {
			h->refs--;
			*ret = s;
			return 0;
		}
		/* Its data were swapped, and it is no longer on this home. */
		h->storage = NULL;
		cow__share_leave();
		(void)cow_storage_unref(s);
		cow__share_enter();
	}
	r = allocation(h, &a);
	if (r < 0)
		return r;
	r = cow__storage_on(a, h->bytes, &like, &s);
	if (r < 0) {
		h->refs++; /* the caller's again */
		cow__share_leave();
		cow__allocation_unref(a);
		cow__share_enter();
		return r;
	}
	if (h->kind == COW__HOME_ALIAS)
		remember(h, s);
	*ret = s;
	return 0;
}

COW_EXPORT int
cow__home_move_in(struct cow__home *h, struct cow_storage *s)
{
	struct cow__allocation *a, *old = s->data;
	int r;

	cow__share_enter();
	r = allocation(h, &a);
	if (r == 0) {
		s->data = a;
		s->resizable = h->kind != COW__HOME_ALIAS;
		if (h->kind == COW__HOME_ALIAS)
			remember(h, s);
	}
	cow__share_leave();
	if (r == 0)
		cow__allocation_unref(old);
	return r;
}

void
cow__home_describe(const struct cow_storage *s, struct cow_storage_info *ret)
{
	static const uint64_t shared[] = {
		[COW__HOME_ALIAS] = COW_SHARED_ALIAS,
		[COW__HOME_PACKED] = COW_SHARED_CLONE,
		[COW__HOME_SEALED] = COW_SHARED_SEALED,
	};
	const struct cow__home *h = cow__home_of(s);

	if (!h)
		h = cow__home_shown(s);
	if (h && s->bytes)
		ret->shared = shared[h->kind];
}

/* SPDX-License-Identifier: MIT */
/*
 * Clones
 *
 *   source                     lazy clone
 *   tracked                    one more reference on the allocation
 *   transparent, large         frozen in place, and a private view of it
 *   ... from another process   another private view, and what was written since
 *   transparent, small         an eager copy: mapping costs more
 *   ... beside I/O             an eager copy: see docs/design/fork.md, pins
 *   external memory, and
 *   read-only from elsewhere   an eager copy: its owner may write it unseen
 *   with element hooks         a copy through them
 *
 * A copy of memory that the program unmapped or protected fails (-EFAULT).
 */
#include "core/policy/constants.h"
#include "core/storage/storage.h"
#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/cow/old_tables.h"
#include "core/cow/view.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/resident.h"
#include "core/memory/state.h"
#include "memfd/pins.h"

static int
clone_elements(struct cow_storage *s, struct cow__allocation *to)
{
	const struct cow_element_hooks *e = s->elements;
	int r;

	if (s->bytes == 0)
		return 0;
	r = cow__allocation_readable(s->data, 0, s->bytes);
	if (r < 0)
		return r;
	return e->copy(e->user, to->data, s->data->data,
	               s->bytes / e->element_bytes);
}

/* Memory for a copy on the same device. On the meta device it is a size alone. */
static int
clone_memory(struct cow_storage *s, struct cow__allocation **ret)
{
	struct cow_allocator *allocator = NULL;
	unsigned flags = COW__ALLOCATION_WHOLE;

	flags |= cow__storage_allocation_flags(s);
	if (s->device.type == COW_DEVICE_META) {
		struct cow_data_ptr none = { .device = s->device };

		return cow__allocation_external(&none, s->bytes, ret);
	}
	if (s->data->kind == COW__AT_FOREIGN ||
	    (s->device.type != COW_DEVICE_CPU && s->allocator))
		allocator = s->allocator;
	else if (s->device.type != COW_DEVICE_CPU &&
	         cow_allocator_get(s->device, &allocator) < 0)
		return -ENODEV;
	return cow__allocation_new(s->bytes, flags, allocator, ret);
}

static int
clone_eager(struct cow_storage *s, struct cow_storage **ret)
{
	struct cow__allocation *a;
	int r;

	r = clone_memory(s, &a);
	if (r < 0)
		return r;
	if (s->elements)
		r = clone_elements(s, a);
	else if (s->device.type != COW_DEVICE_META)
		r = cow__allocation_copy(a, s->data, 0, s->bytes);
	if (r == 0)
		r = cow__allocation_copied(s->data);
	if (r == 0) {
		r = cow__storage_on(a, s->bytes, s, ret);
		if (r < 0)
			cow__elements_destroy(s, a->data);
	}
	if (r < 0) {
		cow__allocation_unref(a);
		return r;
	}
	/* A storage on imported device memory has no allocator. Its clone gets
	 * one, for its next bytes, too. */
	if (a->kind == COW__AT_FOREIGN)
		(*ret)->allocator = a->allocator;
	(*ret)->resizable = true;
	cow__stat_add(clones_eager, 1);
	return 0;
}

static int
clone_counted(struct cow_storage *s, enum cow_fallback reason,
              struct cow_storage **ret)
{
	cow__fallback_copied(reason, s->device.type == COW_DEVICE_META ? 0 : s->bytes);
	return clone_eager(s, ret);
}

static int
clone_by_reference(struct cow_storage *s, struct cow_storage **ret)
{
	struct cow__allocation *a = s->data;
	int r = 0;

	if (cow__unlikely(a->ops != NULL) && a->ops->cloned)
		r = a->ops->cloned(a);
	if (cow__unlikely(r > 0))
		return clone_counted(s, COW_FALLBACK_FOREIGN, ret);
	if (r == 0)
		r = cow__storage_on(a, s->bytes, s, ret);
	if (cow__unlikely(r < 0))
		return r;
	/* Cloning reads this storage. Other threads may read it at the same time,
	 * and nobody writes it. So these two stores need no order between them. A
	 * writer that comes later sees both. */
	__atomic_store_n(&a->owned, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&a->cloned, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&a->refs, 1, __ATOMIC_RELAXED);
	cow__stat_add(clones_lazy, 1);
	cow__stat_add(bytes_not_copied, s->bytes);
	return 0;
}

/* What one call finds out once for all its clones, as that reads /proc. */
struct asked {
	bool known, pins;
	uint64_t copied; /* bytes, so far */
};

static bool
pins_memory(struct asked *asked)
{
	if (!asked->known)
		asked->pins = cow__pins_memory();
	asked->known = true;
	return asked->pins;
}

/* The data of a clone of a transparent storage. */
struct paged {
	bool now;  /* the source was not frozen: the clone is of this moment */
	bool done; /* it was made with others */
	int r;
	size_t copied;
	struct cow__allocation *a;
};

/* Engine locked. */
static void
paged_make(struct cow__tile *source, struct paged *p)
{
	struct cow__tile *t;
	int r = 0;

	if (source->map.backing == COW__ANON || cow__tile_is_common(source))
		r = -ENOTSUP;
	p->now |= source->map.backing == COW__SHARED;
	if (r == 0 && !cow__is_frozen(source)) {
		cow__resident_before_freeze();
		r = cow__freeze(source);
	}
	if (r == 0)
		r = cow__view_new(source, p->now ? COW__REBASE_NOTHING
		                                 : COW__REBASE_IF_QUIET,
		                  &p->copied, &t);
	if (r == 0) {
		r = cow__allocation_on_tile(t, &p->a);
		if (r < 0)
			cow__extent_free(t);
	}
	if (cow__old_tables_pending())
		cow__helper_want(false);
	p->done = true;
	p->r = r;
}

/* Clones a transparent storage: its pages are frozen under its users. */
static int
clone_paged(struct cow_storage *s, struct asked *asked, struct paged *p,
            struct cow_storage **ret)
{
	size_t copied;
	int r;

	/* Memory under I/O: what I/O writes later would be in the clone, too, or
	 * in the clone alone. */
	if (!p->done && pins_memory(asked)) {
		asked->copied += s->bytes;
		return clone_counted(s, COW_FALLBACK_PINNED, ret);
	}
	if (!p->done) {
		cow__engine_lock();
		paged_make(s->data->tile, p);
		cow__engine_unlock();
	}
	r = p->r;
	if (r == 0) {
		r = cow__storage_on(p->a, s->bytes, s, ret);
		if (r < 0)
			cow__allocation_unref(p->a);
	}
	if (r < 0)
		return r;
	copied = cow__min(p->copied, s->bytes);
	asked->copied += copied;
	cow__stat_add(clones_paged, 1);
	cow__stat_add(bytes_not_copied, s->bytes - copied);
	return 0;
}

/* Clones a transparent storage whose memory has operations. */
static int
clone_moment(struct cow_storage *s, struct cow_storage **ret)
{
	struct cow__allocation *a;
	int r = s->data->ops->moment(s->data, &a);

	if (r < 0)
		return r;
	r = cow__storage_on(a, s->bytes, s, ret);
	if (r < 0) {
		cow__allocation_unref(a);
		return r;
	}
	cow__stat_add(clones_paged, 1);
	cow__stat_add(bytes_not_copied, s->bytes);
	return 0;
}

static int
clone_copied(struct cow_storage *s, struct asked *asked,
             enum cow_fallback reason, struct cow_storage **ret)
{
	asked->copied += s->bytes;
	return clone_counted(s, reason, ret);
}

static int
lazy_clone(struct cow_storage *s, struct asked *asked, struct paged *paged,
           struct cow_storage **ret)
{
	int r;

	if (s->elements)
		return clone_copied(s, asked, COW_FALLBACK_ELEMENTS, ret);
	if (cow__unwatched(s))
		return clone_copied(s, asked, COW_FALLBACK_FOREIGN, ret);
	if (!cow__transparent(s))
		return clone_by_reference(s, ret);
	if (s->data->kind == COW__AT_FOREIGN ||
	    (s->data->kind == COW__AT_OTHER && !s->data->ops->moment))
		return clone_copied(s, asked, COW_FALLBACK_FOREIGN, ret);
	if (s->bytes < COW__PAGED_LEAST)
		return clone_copied(s, asked, COW_FALLBACK_SMALL, ret);
	r = s->data->kind == COW__AT_OTHER ? clone_moment(s, ret)
	                                   : clone_paged(s, asked, paged, ret);
	if (r == -ENOTSUP)
		return clone_copied(s, asked, COW_FALLBACK_BACKING, ret);
	if (r == 0)
		return 0;
	if (r == -E2BIG) /* cow__view_new() counted it */
		cow__stat_add(fallback_bytes[COW_FALLBACK_REWRITTEN], s->bytes);
	asked->copied += s->bytes;
	return clone_eager(s, ret);
}

COW_EXPORT int
cow_storage_lazy_clone(struct cow_storage *s, struct cow_storage **ret)
{
	struct paged paged = { .done = false };
	struct asked asked = { 0 };
	int r;

	if (!s || !ret)
		return cow__error(-EINVAL, "cow_storage_lazy_clone: NULL");
	r = lazy_clone(s, &asked, &paged, ret);
	return r < 0 ? cow__error_passed(r, "cow_storage_lazy_clone") : 0;
}

/* Would lazy_clone() freeze it now? For sure if the engine is locked. */
static bool
freezes(const struct cow_storage *s)
{
	return !s->elements && !cow__unwatched(s) && cow__transparent(s) &&
	       s->data->kind == COW__AT_TILE && s->bytes >= COW__PAGED_LEAST &&
	       cow__tile_is_shared(s->data->tile);
}

/* Freezes the storages that lie side by side together, and makes the data of their
 * clones. Those that were frozen before may have pages to copy, and are left out. */
static void
make_together(struct cow_storage *const *storages, size_t n, struct asked *asked,
              struct paged *paged)
{
	size_t together = 0;

	for (size_t i = 0; i < n; i++) {
		paged[i] = (struct paged){ .done = false };
		together += freezes(storages[i]);
	}
	if (together < 2 || pins_memory(asked))
		return;
	cow__engine_lock();
	for (size_t i = 0; i < n; i++) {
		paged[i].now = freezes(storages[i]);
		if (!paged[i].now)
			continue;
		cow__freeze_close_gap(storages[i]->data->tile);
		storages[i]->data->tile->mark = COW__MARK_CHOSEN;
	}
	for (size_t i = 0; i < n; i++)
		if (paged[i].now)
			cow__freeze_chosen(storages[i]->data->tile);
	for (size_t i = 0; i < n; i++)
		if (paged[i].now)
			paged_make(storages[i]->data->tile, &paged[i]);
	cow__engine_unlock();
}

static int
clone_some(struct cow_storage *const *storages, size_t n, struct asked *asked,
           struct cow_storage **ret)
{
	struct paged paged[COW__CLONES_TOGETHER];
	int r = 0;

	make_together(storages, n, asked, paged);
	for (size_t i = 0; i < n; i++)
		if (r == 0)
			r = lazy_clone(storages[i], asked, &paged[i], &ret[i]);
		else if (paged[i].done && paged[i].r == 0)
			cow__allocation_unref(paged[i].a);
	return r;
}

COW_EXPORT int
cow_storages_lazy_clone(struct cow_storage *const *storages, size_t n,
                        uint64_t *ret_copied, struct cow_storage **ret)
{
	struct asked asked = { 0 };
	int r = 0;

	if (n && (!storages || !ret))
		return cow__error(-EINVAL, "cow_storages_lazy_clone: NULL");
	for (size_t i = 0; i < n; i++)
		if (!storages[i])
			return cow__error(-EINVAL,
			                  "cow_storages_lazy_clone: NULL");
	for (size_t i = 0; i < n; i++)
		ret[i] = NULL;
	for (size_t i = 0; i < n && r == 0; i += COW__CLONES_TOGETHER)
		r = clone_some(storages + i, cow__min(n - i, COW__CLONES_TOGETHER), &asked, ret + i);
	if (r < 0) {
		for (size_t i = 0; i < n; i++)
			ret[i] = cow_storage_unref(ret[i]);
		return cow__error_passed(r, "cow_storages_lazy_clone");
	}
	if (ret_copied)
		*ret_copied = asked.copied;
	return 0;
}

COW_EXPORT int
cow_storage_clone(struct cow_storage *s, struct cow_storage **ret)
{
	int r;

	if (!s || !ret)
		return cow__error(-EINVAL, "cow_storage_clone: NULL");
	r = clone_eager(s, ret);
	return r < 0 ? cow__error_passed(r, "cow_storage_clone") : 0;
}

COW_EXPORT int
cow__storage_beside(struct cow_storage *s, struct cow_storage **ret)
{
	int r;

	if (s->data->kind != COW__AT_OTHER) {
		*ret = cow_storage_ref(s);
		return 0;
	}
	r = cow__storage_on(s->data, s->bytes, s, ret);
	if (r < 0)
		return cow__error_from(r, "another storage on the same bytes");
	__atomic_fetch_add(&s->data->refs, 1, __ATOMIC_RELAXED);
	return 0;
}

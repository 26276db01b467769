/* SPDX-License-Identifier: MIT */
/*
 * Storages: birth, death and plain access
 *
 * A storage is a handle: a count, a size and an allocation. clone.c and
 * materialize.c have everything about sharing bytes.
 */
#include "core/storage/storage.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/cow/thaw.h"
#include "core/memory/state.h"

#define KNOWN_FLAGS                                                            \
	(COW_STORAGE_ZERO | COW_STORAGE_TRANSPARENT | COW_STORAGE_STRICT |     \
	 COW_STORAGE_SHAREABLE)

static struct cow__pool storages = {
	.object_bytes = sizeof(struct cow_storage)
};

void (*cow__storage_ended)(struct cow_storage *s);
void (*cow__storage_shared)(const struct cow_storage *s, struct cow_storage_info *ret);

COW_EXPORT int
cow__storage_on(struct cow__allocation *a, size_t bytes,
                const struct cow_storage *like, struct cow_storage **ret)
{
	struct cow_storage *s = cow__pool_take(&storages);

	if (cow__unlikely(!s))
		return -ENOMEM;
	*s = (struct cow_storage){
		.refs = 1,
		.bytes = bytes,
		.data = a,
		.allocator = like->allocator,
		.elements = like->elements,
		.device = like->device,
		.flags = like->flags & ~(uint32_t)COW_STORAGE_TRANSPARENT,
		.resizable = like->resizable,
	};
	cow__stat_add(storages_live, 1);
	*ret = s;
	return 0;
}

unsigned
cow__storage_allocation_flags(const struct cow_storage *s)
{
	unsigned f = 0;

	if (s->flags & COW_STORAGE_STRICT)
		f |= COW__ALLOCATION_STRICT | COW__ALLOCATION_TILE;
	if (s->flags & COW_STORAGE_TRANSPARENT)
		f |= COW__ALLOCATION_TILE;
	if (s->flags & COW_STORAGE_SHAREABLE)
		f |= COW__ALLOCATION_APART | COW__ALLOCATION_TILE;
	return f;
}

static int
options_read(const struct cow_storage_options *o, struct cow_storage *ret)
{
	struct cow_storage_options known = { .size = sizeof(known) };

	*ret = (struct cow_storage){ .resizable = true };
	if (!o)
		return 0;
	if (o->size < offsetof(struct cow_storage_options, allocator))
		return cow__error(-EINVAL,
		                  "cow_storage_options: size is not set");
	for (size_t i = sizeof(known); i < o->size; i++)
		if (((const char *)o)[i])
			return cow__error(-E2BIG,
			                  "cow_storage_options: has members "
			                  "that this library does not know");
	memcpy(&known, o, cow__min(o->size, sizeof(known)));
	if ((known.flags & ~(uint32_t)KNOWN_FLAGS) || known.reserved)
		return cow__error(-EINVAL,
		                  "cow_storage_options: unknown flags");
	ret->flags = known.flags;
	ret->allocator = known.allocator;
	ret->elements = known.elements;
	if (known.elements &&
	    (known.elements->size < sizeof(*known.elements) ||
	     !known.elements->copy || !known.elements->element_bytes))
		return cow__error(-EINVAL, "cow_element_hooks: size, copy or "
		                          "element_bytes is not set");
	if (known.elements && (known.flags & COW_STORAGE_SHAREABLE))
		return cow__error(-EOPNOTSUPP, "a storage with element hooks can't be "
		                               "shared with other processes");
	return 0;
}

static int
elements_fit(const struct cow_storage *s, size_t bytes)
{
	if (s->elements && bytes % s->elements->element_bytes)
		return cow__error_number(
		        -EINVAL,
		        "# bytes are not a whole number of elements", bytes);
	return 0;
}

static int
elements_construct(const struct cow_storage *s, void *data, size_t bytes)
{
	const struct cow_element_hooks *e = s->elements;

	if (!e || !bytes)
		return 0;
	if (!e->construct) {
		memset(data, 0, bytes);
		return 0;
	}
	return e->construct(e->user, data, bytes / e->element_bytes);
}

void
cow__elements_destroy(const struct cow_storage *s, void *data)
{
	const struct cow_element_hooks *e = s->elements;

	if (e && e->destroy && s->bytes)
		e->destroy(e->user, data, s->bytes / e->element_bytes);
}

/* The allocator for new bytes, NULL for the engine, and its device. */
static int
choose_allocator(struct cow_storage *like)
{
	int r;

	if (!like->allocator) {
		r = cow_allocator_get((struct cow_device){ COW_DEVICE_CPU, 0 },
		                      &like->allocator);
		if (r < 0)
			return r;
	}
	if (like->allocator == cow_allocator_default())
		like->allocator = NULL; /* the engine, without a detour */
	if (like->allocator)
		like->device = like->allocator->device;
	return 0;
}

static int
size_ok(size_t bytes)
{
	if (bytes <= (size_t)INT64_MAX)
		return 0;
	return cow__error_number(-EINVAL, "# bytes: a size beyond INT64_MAX is a mistake "
	                                  "(negative?)", bytes);
}

int
cow__storage_external_ok(const struct cow_data_ptr *p, size_t bytes)
{
	int r = size_ok(bytes);

	if (r < 0)
		return r;
	if (p->device.type < 0 || p->device.type >= COW_DEVICE_TYPES ||
	    p->device.index < 0 || p->device.index >= COW_DEVICE_INDEXES)
		return cow__error(-EINVAL, "no such device type or index");
	if ((uintptr_t)p->data + bytes < (uintptr_t)p->data)
		return cow__error_number(-EINVAL, "# bytes from there on wrap around the "
		                                  "address space", bytes);
	return 0;
}

COW_EXPORT int
cow_storage_new(size_t bytes, const struct cow_storage_options *options,
                struct cow_storage **ret)
{
	struct cow__allocation *a;
	struct cow_storage like, *s;
	unsigned flags;
	int r;

	if (!ret)
		return cow__error(-EINVAL, "cow_storage_new: ret is NULL");
	r = options_read(options, &like);
	if (r == 0)
		r = elements_fit(&like, bytes);
	if (r == 0)
		r = choose_allocator(&like);
	if (r < 0)
		return r;
	r = size_ok(bytes);
	if (r < 0)
		return r;
	flags = cow__storage_allocation_flags(&like);
	if (like.flags & COW_STORAGE_ZERO)
		flags |= COW__ALLOCATION_ZERO;
	r = cow__allocation_new(bytes, flags, like.allocator, &a);
	if (r < 0)
		return cow__error_passed(r, "cow_storage_new");
	like.bytes = bytes;
	r = elements_construct(&like, a->data, bytes);
	if (r == 0) {
		r = cow__storage_on(a, bytes, &like, &s);
		if (r < 0)
			cow__elements_destroy(&like, a->data);
	}
	if (r < 0) {
		cow__allocation_unref(a);
		return cow__error_from(r, "cow_storage_new");
	}
	if (like.flags & COW_STORAGE_TRANSPARENT) {
		void *data;

		r = cow_storage_expose(s, &data);
		if (r < 0) {
			(void)cow_storage_unref(s);
			return r;
		}
	}
	*ret = s;
	return 0;
}

COW_EXPORT int
cow_storage_new_external(struct cow_data_ptr *ptr, size_t bytes,
                         const struct cow_storage_options *options,
                         struct cow_storage **ret)
{
	struct cow__allocation *a;
	struct cow_storage like;
	int r;

	if (!ptr || !ret || (bytes && !ptr->data &&
	                     ptr->device.type != COW_DEVICE_META))
		return cow__error(-EINVAL,
		                  "cow_storage_new_external: no data");
	r = cow__storage_external_ok(ptr, bytes);
	if (r == 0)
		r = options_read(options, &like);
	if (r == 0)
		r = elements_fit(&like, bytes);
	if (r < 0)
		return r;
	like.flags &= ~(uint32_t)(COW_STORAGE_TRANSPARENT | COW_STORAGE_SHAREABLE);
	like.resizable = like.allocator != NULL;
	if (like.allocator == cow_allocator_default())
		like.allocator = NULL;
	like.device = ptr->device;
	r = cow__allocation_external(ptr, bytes, &a);
	if (r < 0)
		return cow__error_from(r, "cow_storage_new_external");
	r = cow__storage_on(a, bytes, &like, ret);
	if (r < 0) {
		*ptr = cow_data_ptr_move(&a->ptr);
		cow__allocation_unref(a);
		return cow__error_from(r, "cow_storage_new_external");
	}
	return 0;
}

COW_EXPORT struct cow_storage *
cow_storage_ref(struct cow_storage *s)
{
	if (s)
		__atomic_fetch_add(&s->refs, 1, __ATOMIC_RELAXED);
	return s;
}

COW_EXPORT bool
cow__storage_try_ref(struct cow_storage *s)
{
	uint64_t n = __atomic_load_n(&s->refs, __ATOMIC_RELAXED);

	while (n)
		if (__atomic_compare_exchange_n(&s->refs, &n, n + 1, 1,
		                                __ATOMIC_ACQUIRE,
		                                __ATOMIC_RELAXED))
			return true;
	return false;
}

COW_EXPORT struct cow_storage *
cow_storage_unref(struct cow_storage *s)
{
	uint64_t before;

	if (!s)
		return NULL;
	before = __atomic_fetch_sub(&s->refs, 1, __ATOMIC_ACQ_REL);
	cow__require(before > 0);
	if (before > 1)
		return NULL;
	if (cow__unlikely(s->home)) /* with share/lend.c, which set it before the home */
		__atomic_load_n(&cow__storage_ended, __ATOMIC_RELAXED)(s);
	cow__elements_destroy(s, s->data->data);
	cow__allocation_unref(s->data);
	cow__pool_give(&storages, s);
	cow__stat_sub(storages_live, 1);
	return NULL;
}

COW_EXPORT size_t
cow_storage_bytes(const struct cow_storage *s)
{
	return s ? s->bytes : 0;
}

COW_EXPORT struct cow_device
cow_storage_device(const struct cow_storage *s)
{
	return s ? s->device : (struct cow_device){ COW_DEVICE_CPU, 0 };
}

COW_EXPORT uint64_t
cow_storage_use_count(const struct cow_storage *s)
{
	return s ? __atomic_load_n(&s->refs, __ATOMIC_RELAXED) : 0;
}

COW_EXPORT const void *
cow_storage_data(const struct cow_storage *s)
{
	return s && s->bytes ? s->data->data : NULL;
}

COW_EXPORT int
cow_storage_data_mut_range(struct cow_storage *s, size_t offset, size_t bytes,
                           enum cow_write_hint hint, void **ret)
{
	int r;

	if (!s || !ret)
		return cow__error(-EINVAL, "cow_storage_data_mut: NULL");
	if (offset > s->bytes || bytes > s->bytes - offset)
		return cow__error_number(-EINVAL,
		                         "range outside of a storage of # bytes",
		                         s->bytes);
	if ((unsigned)hint > COW_WRITE_BY_COPY)
		return cow__error(-EINVAL, "no such cow_write_hint");
	/* The storage is alone, and nothing is frozen anywhere: no lock. `owned`
	 * pairs with clone_by_reference(). Another storage on the allocation may
	 * be calling that now: then `owned` is 0 before and after. */
	if (!__atomic_load_n(&s->data->owned, __ATOMIC_RELAXED) ||
	    hint == COW_WRITE_ALL ||
	    __atomic_load_n(&cow__engine.frozen, __ATOMIC_RELAXED)) {
		r = cow__materialize(s, offset, bytes, hint);
		if (r < 0)
			return cow__error_passed(r, "cow_storage_data_mut");
	}
	*ret = s->bytes ? s->data->data : NULL;
	return 0;
}

COW_EXPORT int
cow_storage_data_mut(struct cow_storage *s, void **ret)
{
	return cow_storage_data_mut_range(s, 0, s ? s->bytes : 0,
	                                  COW_WRITE_AUTO, ret);
}

COW_EXPORT int
cow_storage_get_info(const struct cow_storage *s, struct cow_storage_info *ret)
{
	struct cow_storage_info i = { .size = sizeof(i) };
	size_t size;

	if (!s || !ret || ret->size < sizeof(size_t) + 8)
		return cow__error(-EINVAL, "cow_storage_get_info: size is not "
		                           "set, or no storage");
	cow__storage_describe(s, &i);
	size = cow__min(ret->size, sizeof(i));
	i.size = ret->size;
	memcpy(ret, &i, size);
	return 0;
}

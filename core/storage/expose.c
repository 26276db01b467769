/* SPDX-License-Identifier: MIT */
/*
 * Storages whose address the program has
 *
 * cow_storage_expose() gives the address of a storage away. Its bytes move once more
 * if they must, and never again. cow_storage_from_ptr() goes the other way, from an
 * address to the storage. A block that has none gets one, which takes part in the
 * block's life: the tile ends with the last of the two.
 */
#include "core/storage/storage.h"
#include "core/base/error.h"
#include "core/memory/attribute.h"
#include "core/memory/state.h"

/* Small data moves to a tile of its own, whose address can be looked up. */
static int
move_to_tile(struct cow_storage *s)
{
	struct cow__allocation *a, *old = s->data;
	int r = cow__allocation_new(s->bytes, COW__ALLOCATION_TILE, NULL, &a);

	if (r < 0)
		return r;
	(void)cow__allocation_copy(a, old, 0, s->bytes);
	s->data = a;
	cow__allocation_unref(old); /* last: another thread may fork */
	return 0;
}

COW_EXPORT int
cow_storage_expose(struct cow_storage *s, void **ret)
{
	int r = 0;

	if (!s || !ret)
		return cow__error(-EINVAL, "cow_storage_expose: NULL");
	if (s->elements)
		return cow__error(-EOPNOTSUPP,
		                  "cow_storage_expose: a storage with element "
		                  "hooks can't be transparent");
	/* Once more if other memory was copied into a small cell. */
	while (r == 0 && !cow__transparent(s) && s->bytes) {
		if (s->data->kind == COW__AT_SMALL)
			r = move_to_tile(s);
		if (r == 0)
			r = cow__materialize(s, 0, s->bytes, COW_WRITE_SPARSE);
		if (s->data->kind != COW__AT_SMALL)
			break;
	}
	if (r < 0)
		return cow__error_passed(r, "cow_storage_expose");
	if (!cow__transparent(s) && s->data->kind == COW__AT_TILE) {
		cow__engine_lock();
		s->data->tile->map.use = cow__max(s->data->tile->map.use, COW__USE_EXPOSED);
		s->data->storage = s;
		cow__engine_unlock();
	}
	s->flags |= COW_STORAGE_TRANSPARENT;
	*ret = s->bytes ? s->data->data : NULL;
	return 0;
}

static int
storage_of_block(struct cow__tile *t, struct cow_storage **ret)
{
	const struct cow_storage like = { .resizable = true };
	struct cow__allocation *a;
	int r = cow__allocation_on_tile(t, &a);

	if (r == 0) {
		r = cow__storage_on(a, t->map.used, &like, ret);
		if (r < 0) {
			cow__allocation_release(a);
		}
	}
	if (r < 0)
		return r;
	(*ret)->flags |= COW_STORAGE_TRANSPARENT;
	a->storage = *ret;
	return 0;
}

COW_EXPORT int
cow_storage_from_ptr(const void *ptr, size_t *ret_offset,
                     struct cow_storage **ret)
{
	struct cow_storage *s = NULL;
	struct cow__tile *t;
	size_t offset = 0;
	int r = -ENOENT;

	if (!ret)
		return cow__error(-EINVAL, "cow_storage_from_ptr: NULL");
	cow__engine_lock();
	t = cow__tile_find((uintptr_t)ptr);
	if (t && t->kind == COW__LIVE && cow__tile_is_exposed(t)) {
		offset = (uintptr_t)ptr - cow__tile_start(t);
		if (offset >= cow__max(t->map.used, 1) || cow__attributes_holed(t) || t->map.use == COW__USE_PART)
			; /* behind its bytes the last page is nobody's; or it is a part */
		else if (t->map.allocation && t->map.allocation->storage &&
		    cow__storage_try_ref(t->map.allocation->storage)) {
			s = t->map.allocation->storage;
			r = 0;
		} else if (cow__tile_is_block(t)) {
			r = storage_of_block(t, &s);
		}
	}
	cow__engine_unlock();
	if (r == -ENOENT)
		return cow__error(r, "the address is not in a transparent "
		                     "storage or block of this process");
	if (r < 0)
		return cow__error_from(r, "cow_storage_from_ptr");
	if (ret_offset)
		*ret_offset = offset;
	*ret = s;
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Write intents, on addresses and on storages: cow_write_intent(3)
 */
#include "core/base/error.h"
#include "core/cow/rewrite.h"
#include "core/memory/state.h"
#include "core/storage/storage.h"

static bool
is_hint(enum cow_write_hint hint)
{
	return (unsigned)hint <= COW_WRITE_BY_COPY;
}

/* With these the caller wants copies page by page. */
static bool
is_by_page(enum cow_write_hint hint)
{
	return hint == COW_WRITE_SPARSE || hint == COW_WRITE_BY_PAGE;
}

static int
done(uint64_t copied, uint64_t *ret)
{
	if (ret)
		*ret = copied;
	return 0;
}

COW_EXPORT int
cow_write_intent(const struct cow_range *ranges, size_t n, enum cow_write_hint hint,
                 uint64_t *ret_copied)
{
	uint64_t copied = 0;

	if (!is_hint(hint))
		return cow__error(-EINVAL, "cow_write_intent: there is no such hint");
	if (n && !ranges)
		return cow__error(-EINVAL, "cow_write_intent: no ranges");
	for (size_t i = 0; i < n; i++)
		if ((uintptr_t)ranges[i].start + ranges[i].bytes <
		    (uintptr_t)ranges[i].start)
			return cow__error(-EINVAL, "cow_write_intent: a range wraps "
			                           "around the address space");
	for (size_t i = 0; i < n && !is_by_page(hint); i++)
		cow__rewrite((uintptr_t)ranges[i].start,
		             (uintptr_t)ranges[i].start + ranges[i].bytes,
		             hint == COW_WRITE_ALL, &copied);
	return done(copied, ret_copied);
}

COW_EXPORT bool
cow_is_frozen(void)
{
	return __atomic_load_n(&cow__engine.frozen, __ATOMIC_RELAXED) != 0;
}

static int
storage_intent(struct cow_storage *s, enum cow_write_hint hint, uint64_t *copied)
{
	void *unused;

	if (cow__transparent(s)) {
		if (s->data->kind == COW__AT_TILE && !is_by_page(hint))
			cow__rewrite((uintptr_t)s->data->data,
			             (uintptr_t)s->data->data + s->bytes,
			             hint == COW_WRITE_ALL, copied);
		return 0;
	}
	return cow_storage_data_mut_range(s, 0, s->bytes, hint, &unused);
}

COW_EXPORT int
cow_storages_write_intent(struct cow_storage *const *storages, size_t n,
                          enum cow_write_hint hint, uint64_t *ret_copied)
{
	uint64_t copied = 0;

	if (!is_hint(hint))
		return cow__error(-EINVAL,
		                  "cow_storages_write_intent: there is no such hint");
	for (size_t i = 0; i < n; i++)
		if (!storages || !storages[i])
			return cow__error(-EINVAL,
			                  "cow_storages_write_intent: a storage is NULL");
	for (size_t i = 0; i < n; i++) {
		int r = storage_intent(storages[i], hint, &copied);

		if (r < 0)
			return r;
	}
	return done(copied, ret_copied);
}

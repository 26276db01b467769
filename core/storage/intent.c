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

static int
check_ranges(const struct cow_range *ranges, size_t n)
{
	if (n && !ranges)
		return cow__error(-EINVAL, "no ranges: their address is NULL");
	for (size_t i = 0; i < n; i++)
		if ((uintptr_t)ranges[i].start + ranges[i].bytes <
		    (uintptr_t)ranges[i].start)
			return cow__error(-EINVAL,
			                  "a range wraps around the address space");
	return 0;
}

COW_EXPORT int
cow_write_intent(const struct cow_range *ranges, size_t n, enum cow_write_hint hint,
                 uint64_t *ret_copied)
{
	uint64_t copied = 0;
	int r;

	if (!is_hint(hint))
		return cow__error(-EINVAL, "cow_write_intent: there is no such hint");
	r = check_ranges(ranges, n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && !is_by_page(hint); i++)
		cow__rewrite((uintptr_t)ranges[i].start,
		             (uintptr_t)ranges[i].start + ranges[i].bytes,
		             hint == COW_WRITE_ALL, &copied);
	return done(copied, ret_copied);
}

COW_EXPORT int
cow_rewrite_begin(const struct cow_range *range, void **ret_at, struct cow_rewrite **ret)
{
	struct cow__rewrite *w;
	int r;

	if (!ret_at || !ret)
		return cow__error(-EINVAL, "cow_rewrite_begin: no place for the result");
	if (!range)
		return cow__error(-EINVAL, "cow_rewrite_begin: no range");
	r = check_ranges(range, 1);
	if (r == 0)
		r = cow__rewrite_begin((uintptr_t)range->start, range->bytes, ret_at, &w);
	if (r == 0)
		*ret = (struct cow_rewrite *)w;
	else if (r == -EAGAIN)
		return cow__error(r, "cow_rewrite_begin: a write intent would copy nothing");
	else if (r == -ENOTSUP)
		return cow__error(r, "cow_rewrite_begin: the range is not a whole block or "
		                     "storage, or its memory must keep its pages");
	else if (r == -EBUSY)
		return cow__error(r, "cow_rewrite_begin: the memory may be under I/O, or is worked on");
	else if (r == -ENOMEM)
		return cow__error(r, "cow_rewrite_begin: no memory for the new pages");
	return r;
}

COW_EXPORT int
cow_rewrite_end(struct cow_rewrite *rewrite, bool keep)
{
	int r;

	if (!rewrite)
		return cow__error(-EINVAL, "cow_rewrite_end: no rewrite");
	r = cow__rewrite_end((struct cow__rewrite *)rewrite, keep);
	return r == -ESTALE ? cow__error(r, "cow_rewrite_end: another process has begun it")
	                    : r;
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

/* SPDX-License-Identifier: MIT */
/*
 * Clones of many storages, all of one moment (cow_storages_clone_at_once() in cowshed.h)
 *
 *   caller              other threads       kernel
 *   freezes             write               copies what they write
 *   makes a child       wait                one instant for all private memory
 *   makes the views     write               copies what they write
 *   ends the child
 *
 * A lazy clone copies the pages that were written since its source was frozen, one by one, while
 * others write them: a later write may be in it, and an earlier one not. Here these pages come from
 * a child that the kernel forked at one instant (memfd/moment.h). All else that the clones show are
 * file pages, which nobody writes after the freeze. So no thread has to be stopped, and none is
 * asked.
 *
 * The engine is locked throughout, so no page is thawed, given back or handed out anew while the
 * child reads it. A process with a single thread needs no child: with all signals blocked nobody
 * writes.
 */
#include "core/storage/moment.h"
#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/cow/old_tables.h"
#include "core/cow/sparse.h"
#include "core/cow/view.h"
#include "core/memory/can.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/resident.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "core/storage/storage.h"
#include "memfd/map.h"
#include "memfd/moment.h"
#include "memfd/pins.h"
#include "memfd/process.h"
#include "memfd/signals.h"
#include "memfd/thread.h"

#include <string.h>

/* Where a storage's bytes of the moment come from. */
enum source {
	REFERENCE, /* a tracked storage: nobody writes it during the call */
	CELL,      /* small, in the heap of small storages */
	TILE,      /* transparent, in pages of its own */
	NOWHERE,   /* others may write it where no fork sees it */
};

static enum source
source_of(const struct cow_storage *s)
{
	const struct cow__allocation *a = s->data;

	if (s->elements || cow__unwatched(s) || s->device.type != COW_DEVICE_CPU)
		return NOWHERE;
	if (!cow__transparent(s) || a->kind == COW__AT_NOTHING)
		return REFERENCE;
	if (a->kind == COW__AT_SMALL)
		return CELL;
	if (a->kind != COW__AT_TILE || cow__tile_is_common(a->tile) || cow__tile_is_pinned(a->tile))
		return NOWHERE;
	return TILE;
}

/* Makes the source's bytes private memory that the child inherits. */
static int
hold(struct cow__tile *t)
{
	int r = 0;

	if (t->map.backing == COW__ANON) /* it is, but for what the program asked */
		return t->map.attributes || t->map.overlay ? -ENOTSUP : 0;
	if (!cow__can(t, COW__TO_VIEW)) /* the program changed the mapping */
		return -ENOTSUP;
	if (!cow__is_frozen(t)) {
		cow__resident_before_freeze();
		r = cow__freeze(t);
	}
	if (cow__old_tables_pending())
		cow__helper_want(false);
	if (r < 0)
		return r;
	r = cow__map_inherit(cow__tile_start(t), t->bytes, true);
	if (r < 0) /* it came up to some part */
		(void)cow__map_inherit(cow__tile_start(t), t->bytes, false);
	return r;
}

/* *ret: so many are held. */
static int
hold_all(struct cow_storage *const *storages, size_t n, size_t *ret)
{
	int r = 0;

	for (*ret = 0; r == 0 && *ret < n; *ret += r == 0) {
		enum source source = source_of(storages[*ret]);

		if (source == NOWHERE) /* since check() */
			r = -ENOTSUP;
		if (source == TILE)
			r = hold(storages[*ret]->data->tile);
	}
	return r;
}

/* Other children than ours must not inherit frozen memory, which is thawed later. */
static void
withhold_all(struct cow_storage *const *storages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (source_of(storages[i]) == TILE && cow__is_frozen(storages[i]->data->tile))
			(void)cow__map_inherit(cow__tile_start(storages[i]->data->tile),
			                       storages[i]->data->tile->bytes, false);
}

/* All that the source has, where views would take too many mappings. */
static int
copy_all(struct cow__moment *m, struct cow__tile *from, size_t bytes, size_t *ret_copied,
         struct cow__tile **ret)
{
	size_t at = 0, start, end, dirty;
	struct cow__run run;
	char *to;
	int r = cow__extent_new(bytes, 0, COW__EXTENT_WHOLE, ret, &dirty), more;

	*ret_copied = 0;
	if (r < 0)
		return r;
	to = (char *)cow__tile_start(*ret);
	memset(to, 0, cow__min(dirty, bytes));
	while (r == 0 && (more = cow__sparse_next_locked(from, at, bytes, &start, &end)) != 0) {
		if (more < 0) /* it can't be known */
			start = at, end = bytes;
		end = cow__min(cow__round_up(end, COW__MOMENT_GAP), bytes);
		run = (struct cow__run){ cow__tile_start(from) + start, cow__tile_start(from) + end };
		r = cow__moment_read(m, &run, 1, to + start, 0);
		*ret_copied += end - start;
		at = end;
		if (at >= bytes)
			break;
	}
	cow__stat_add(bytes_copied, *ret_copied);
	if (r < 0)
		cow__extent_free(*ret);
	return r;
}

static int
make_data(struct cow__moment *m, const struct cow_storage *s, uint64_t *copied,
          struct cow__allocation **ret)
{
	struct cow__tile *t = NULL;
	size_t some = 0;
	int r = cow__view_of_moment(s->data->tile, m, &some, &t);

	if (r < 0 && r != -ENOMEM && r != -EAGAIN) { /* or what was written can't be known */
		r = copy_all(m, s->data->tile, s->bytes, &some, &t);
	}
	if (r == 0) {
		r = cow__allocation_on_tile(t, ret);
		if (r < 0)
			cow__extent_free(t);
	}
	some = cow__min(some, s->bytes);
	*copied += some;
	if (r == 0) {
		cow__stat_add(clones_paged, 1);
		cow__stat_add(bytes_not_copied, s->bytes - some);
	}
	return r;
}

/* The data of all clones, but for references. Engine locked. */
static int
make_all(struct cow__moment *m, struct cow_storage *const *storages, size_t n, uint64_t *copied,
         struct cow__allocation **data)
{
	struct cow__run cell;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		switch (source_of(storages[i])) {
		case TILE:
			r = make_data(m, storages[i], copied, &data[i]);
			break;
		case CELL:
			cell.start = (uintptr_t)storages[i]->data->data;
			cell.end = cell.start + storages[i]->bytes;
			r = cow__moment_read(m, &cell, 1, data[i]->data, 0);
			*copied += storages[i]->bytes;
			break;
		default:
			break;
		}
	return r;
}

static struct cow__moment last; /* whose child may not have ended yet */

/* A child needs a processor to end, which other threads may keep for ms: nobody waits for that. */
uint64_t
cow__moment_job(uint64_t now)
{
	(void)now;
	return !last.desk || cow__moment_reap(&last, false) ? UINT64_MAX : COW__MOMENT_REST_NS;
}

static int
end_moment(struct cow__moment *m)
{
	int r = cow__moment_end(m);

	last = *m;
	if (cow__engine.use_helper)
		cow__helper_want(true);
	else
		(void)cow__moment_reap(&last, true);
	return r;
}

static int
take_moment(struct cow_storage *const *storages, size_t n, uint64_t *copied,
            struct cow__allocation **data)
{
	struct cow__moment m;
	size_t held;
	int r, ended;

	cow__engine_lock();
	(void)cow__moment_reap(&last, true);
	r = hold_all(storages, n, &held);
	if (cow__engine.retired) /* since check(): a filter may forbid the child */
		r = -ENOTSUP;
	if (r == 0)
		r = cow__moment_begin(&m);
	withhold_all(storages, held);
	if (r == 0) {
		r = make_all(&m, storages, n, copied, data);
		ended = end_moment(&m);
		r = r < 0 ? r : ended;
	}
	cow__engine_unlock();
	return r;
}

/* Makes a storage of the data, or a reference. */
static int
finish(struct cow_storage *s, struct cow__allocation **data, struct cow_storage **ret)
{
	int r;

	if (!*data)
		return cow_storage_lazy_clone(s, ret);
	r = cow__storage_on(*data, s->bytes, s, ret);
	if (r == 0)
		*data = NULL;
	return r;
}

/* With the data of small storages ready, which takes the lock. */
static int
make_clones(struct cow_storage *const *storages, size_t n, uint64_t *copied,
            struct cow__allocation **data, struct cow_storage **ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (source_of(storages[i]) == CELL)
			r = cow__allocation_new(storages[i]->bytes, COW__ALLOCATION_WHOLE, NULL,
			                        &data[i]);
	if (r == 0)
		r = take_moment(storages, n, copied, data);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = finish(storages[i], &data[i], &ret[i]);
	for (size_t i = 0; i < n; i++) {
		if (data[i])
			cow__allocation_unref(data[i]);
		if (r < 0)
			ret[i] = cow_storage_unref(ret[i]);
	}
	return r;
}

static int
by_child(struct cow_storage *const *storages, size_t n, uint64_t *copied, struct cow_storage **ret)
{
	struct cow__allocation **data = NULL;
	uint32_t cap = 0;
	int r;

	if (n > UINT32_MAX)
		return -ENOMEM;
	r = cow__array_reserve((void **)&data, &cap, sizeof(*data), (uint32_t)n);
	if (r < 0)
		return r;
	memset(data, 0, n * sizeof(*data));
	r = make_clones(storages, n, copied, data, ret);
	cow__array_free(data, cap, sizeof(*data));
	return r;
}

static int
check(struct cow_storage *const *storages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (source_of(storages[i]) == NOWHERE)
			return -ENOTSUP;
	if (cow__engine.retired)
		return -ENOTSUP;
	if (cow__engine.process != cow__process_id() || cow__mutex_is_mine(&cow__engine.lock) ||
	    cow__pins_memory())
		return -EBUSY;
	return 0;
}

COW_EXPORT int
cow_storages_clone_at_once(struct cow_storage *const *storages, size_t n, uint64_t *ret_copied,
                           struct cow_storage **ret)
{
	struct cow__signals signals;
	uint64_t copied = 0;
	bool alone;
	int r;

	if (n && (!storages || !ret))
		return cow__error(-EINVAL, "cow_storages_clone_at_once: NULL");
	for (size_t i = 0; i < n; i++)
		if (!storages[i])
			return cow__error(-EINVAL, "cow_storages_clone_at_once: NULL");
	for (size_t i = 0; i < n; i++)
		ret[i] = NULL;
	r = check(storages, n);
	if (r == 0 && n) {
		/* Else a handler could write between two clones, or run in the child. */
		r = cow__signals_block(&signals) ? 0 : -EAGAIN;
		alone = r == 0 && cow__thread_alone(NULL);
		if (r == 0)
			r = alone ? cow_storages_lazy_clone(storages, n, &copied, ret)
			          : by_child(storages, n, &copied, ret);
		cow__signals_restore(&signals);
	}
	if (r < 0)
		return cow__error_passed(r, "cow_storages_clone_at_once");
	if (ret_copied)
		*ret_copied = copied;
	return 0;
}

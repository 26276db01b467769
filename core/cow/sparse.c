/* SPDX-License-Identifier: MIT */
/*
 * Memory that was never touched: see the header.
 *
 * What a tile shows has memory in one of two places: in the files of its pieces, or in
 * pages that a private mapping copied when they were written. The answer is the first run
 * of either. Healing moves bytes from the second place to the first, so both are looked at
 * under one lock.
 */
#include "core/cow/sparse.h"
#include "core/cow/part.h"
#include "core/memory/bulk.h"
#include "core/memory/commit.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"

/* Distances from the start of the tile. */
struct run {
	size_t start, end;
};

/* In the files of the pieces. */
static int
next_in_files(struct cow__tile *t, size_t at, size_t end, struct run *ret)
{
	uint64_t start, stop;
	int r = 0;

	while (r == 0 && at < end) {
		size_t offset, bytes;
		const struct cow__tile *p = cow__part_source(
		        t, cow__tile_start(t) + at, &offset, &bytes);
		uint64_t base;

		if (!p->own.segment)
			return -EINVAL;
		base = cow__segment_offset(cow__tile_start(p)) + offset;
		bytes = cow__min(bytes, end - at);
		r = cow__memfd_data(&p->own.segment->file, base, base + bytes, &start,
		                    &stop);
		if (r > 0)
			*ret = (struct run){ at + (size_t)(start - base),
				             at + (size_t)(stop - base) };
		at += bytes;
	}
	return r;
}

/* In copied pages of the mapping, or in anonymous memory. */
static int
next_copied(const struct cow__tile *t, size_t at, size_t end, struct run *ret)
{
	uintptr_t here = cow__tile_start(t), next = here + at;
	struct cow__run runs[2]; /* with one run asked for, only its first page is sure */
	uintptr_t stop = here + cow__round_up(end, cow__page);
	int r = 0;

	next = cow__round_down(next, cow__page);
	while (r == 0 && next < stop)
		r = t->map.backing == COW__ANON ? cow__pagemap_made(next, stop, runs, 2, &next)
		                            : cow__pagemap_copied(next, stop, runs, 2, &next);
	if (r > 0)
		*ret = (struct run){ cow__max(runs[0].start - here, at),
			             cow__min(runs[0].end - here, end) };
	return r < 0 ? r : r > 0;
}

static int
next_run(struct cow__tile *t, size_t at, size_t end, struct run *ret)
{
	struct run copied;
	int r, more;

	if (t->map.slow || t->map.overlay || t->kind != COW__LIVE)
		return -EINVAL; /* others' pages are mapped there, too */
	if (t->map.backing == COW__ANON)
		return next_copied(t, at, end, ret);
	r = next_in_files(t, at, end, ret);
	if (r < 0 || t->map.backing != COW__PRIVATE || (r > 0 && ret->start == at))
		return r;
	more = next_copied(t, at, r > 0 ? ret->start : end, &copied);
	if (more > 0)
		*ret = copied;
	return more ? more : r;
}

int
cow__sparse_next_locked(struct cow__tile *t, size_t at, size_t end, size_t *ret_start,
                        size_t *ret_end)
{
	struct run run;
	int r;

	cow__commit_stop(t);
	r = at < end ? next_run(t, at, end, &run) : 0;
	if (r > 0) {
		*ret_start = run.start;
		*ret_end = run.end;
	}
	return r;
}

int
cow__sparse_next(struct cow__tile *t, size_t at, size_t end, size_t *ret_start,
                 size_t *ret_end)
{
	int r;

	cow__engine_lock();
	r = cow__sparse_next_locked(t, at, end, ret_start, ret_end);
	cow__engine_unlock();
	return r;
}

size_t
cow__sparse_fill_locked(char *to, struct cow__tile *t, size_t at, size_t end, bool fresh)
{
	const char *from = (const char *)cow__tile_start(t);
	size_t start, stop, done = 0;
	int r = -EINVAL;

	while (end - at >= COW__SPARSE_LEAST &&
	       (r = cow__sparse_next_locked(t, at, end, &start, &stop)) > 0) {
		cow__bulk_copy_here(to + start, from + start, stop - start, fresh);
		done += stop - start;
		at = stop;
	}
	if (r == 0 || at == end)
		return done;
	cow__bulk_copy_here(to + at, from + at, end - at, fresh);
	return done + (end - at);
}

/* The last owner of warm memory may have left few pages behind. To clear the others would
 * make them. */
void
cow__sparse_clear(struct cow__tile *t, size_t at, size_t end)
{
	char *to = (char *)cow__tile_start(t);
	size_t data, data_end;
	int r = -EINVAL;

	if (at >= end)
		return;
	while (end - at >= COW__SPARSE_LEAST &&
	       (r = cow__sparse_next(t, at, end, &data, &data_end)) > 0) {
		memset(to + data, 0, data_end - data);
		at = data_end;
	}
	if (r != 0)
		memset(to + at, 0, end - at);
}

void
cow__sparse_copy(struct cow__tile *to, struct cow__tile *from, size_t bytes, size_t dirty)
{
	const char *src = (const char *)cow__tile_start(from);
	char *dst = (char *)cow__tile_start(to);
	size_t at = 0, start, end;
	int r = -EINVAL;

	while (bytes >= COW__SPARSE_LEAST &&
	       (r = cow__sparse_next(from, at, bytes, &start, &end)) > 0) {
		cow__sparse_clear(to, at, cow__min(start, dirty));
		memcpy(dst + start, src + start, end - start);
		at = end;
	}
	if (r < 0)
		memcpy(dst + at, src + at, bytes - at);
	else
		cow__sparse_clear(to, at, cow__min(bytes, dirty));
}

/* SPDX-License-Identifier: MIT */
/*
 * Old page tables: see the header.
 */
#include "core/cow/old_tables.h"
#include "core/base/base.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "core/policy/decide.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/wait.h"

static struct cow__tile *old_tables COW_FORK_DATA;
static unsigned count COW_FORK_DATA;
static unsigned failures;
static bool moved COW_FORK_DATA;

static struct cow__returns returns COW_FORK_DATA = COW__RETURNS_NEW;

/* Most forks find little to move: the parent has hardly touched its memory since the
 * last one. Then a move, and the helper that wakes for it, would be the greater
 * work. */
static bool
is_worth_it(uintptr_t at, size_t bytes)
{
	int r = bytes < COW__TABLES_LEAST ? 0 : cow__pagemap_has(at, at + bytes, COW__TABLES_LEAST_PAGES);

	return r < 0 ? bytes >= COW__TABLES_LEAST_UNSEEN : r > 0;
}

/* Is [at, at + bytes) one mapping of the kernel's? A move of several may fail halfway
 * (Linux 6.17 and later; before, it is refused). */
static bool
is_one_mapping(uintptr_t at, size_t bytes)
{
	const struct cow__tile *t = cow__tile_find(at);

	while (t && cow__tile_start(t) < at + bytes && !t->slow)
		t = t->next;
	return !t || cow__tile_start(t) >= at + bytes;
}

void
cow__old_tables_move(uintptr_t at, size_t bytes, struct cow__segment *segment, uint64_t offset)
{
	struct cow__tile *s;
	int r;

	if (cow__without(OLD_TABLES) || count == COW__TABLES_MOST ||
	    failures == COW__TABLES_TRIES || !cow__engine.use_helper || !is_one_mapping(at, bytes))
		return;
	if (!is_worth_it(at, bytes)) {
		cow__returns_few(&returns);
		return;
	}
	cow__returns_moved(&returns);
	/* At the same place within a GiB the kernel moves whole upper levels of
	 * the page tables. */
	s = cow__tile_inner(bytes, at, GIB);
	if (!s)
		return;
	cow__tile_change_begin(s);
	r = cow__map_displace(at, bytes, cow__tile_start(s));
	if (r == -ENOTRECOVERABLE)
		s->kind = COW__LOST;
	if (r == 0) {
		s->backing = COW__SHARED;
		s->segment = segment;
		cow__segment_ref(s->segment);
		s->committed = 0; /* how far it is taken down */
		/* The address that these tables came from; 0 if they map another file offset, so that
		 * they can't be moved back. */
		s->touched = s->down_touched = offset == cow__segment_offset(at) ? at : 0;
		s->progress_at = cow__now();
	}
	cow__tile_change_end(s);
	if (r < 0) {
		failures += r != -ENOMEM && r != -EFAULT;
		if (s->kind == COW__INNER)
			(void)cow__tile_put(s);
		return;
	}
	s->list_next = old_tables;
	old_tables = s;
	count++;
	moved = true;
}

bool
cow__old_tables_pending(void)
{
	return old_tables != NULL;
}

bool
cow__old_tables_moved(void)
{
	bool yes = moved;

	moved = false;
	return yes;
}

/* `s` is off the list, and nothing is mapped there. */
static void
clear(struct cow__tile *s, uint8_t kind)
{
	s->list_next = NULL;
	s->committed = s->touched = s->down_touched = 0;
	cow__tile_change_begin(s);
	s->kind = kind;
	s->backing = COW__NONE;
	cow__segment_unref(s->segment);
	s->segment = NULL;
	cow__tile_change_end(s);
	count--;
}

static void
forget(struct cow__tile *s)
{
	clear(s, COW__INNER);
	(void)cow__tile_put(s);
}

static void
remove_from_list(const struct cow__tile *s)
{
	struct cow__tile **p = &old_tables;

	while (*p != s)
		p = &(*p)->list_next;
	*p = s->list_next;
}

/* The page tables of [start, end) are no longer in `s`. What lies before them is not moved back
 * any more. `reserved`: their place in `s` is. Else all of `s` is given up. */
static void
brought_back(struct cow__tile *s, uintptr_t start, uintptr_t end, bool reserved)
{
	uintptr_t place = cow__tile_start(s) - s->touched;
	bool all = start == s->touched && end == s->touched + s->bytes;

	s->down_touched = end;
	if (reserved && !all)
		return;
	remove_from_list(s);
	if (reserved) {
		forget(s);
		return;
	}
	(void)cow__map_none(cow__tile_start(s), start - s->touched);
	(void)cow__map_none(place + end, s->touched + s->bytes - end);
	clear(s, COW__LOST);
}

/* The moved mapping that has the page tables of [start, end), of which none was taken down or
 * moved back. */
static struct cow__tile *
moved_from(uintptr_t start, uintptr_t end, const struct cow__segment *segment)
{
	for (struct cow__tile *s = old_tables; s; s = s->list_next)
		if (s->segment == segment && !s->busy && !s->committed && s->touched &&
		    s->down_touched <= start && end <= s->touched + s->bytes)
			return s;
	return NULL;
}

int
cow__old_tables_share(uintptr_t start, uintptr_t end, struct cow__segment *segment)
{
	struct cow__tile *s = returns.left ? moved_from(start, end, segment) : NULL;
	int r;

	returns.thawed = true;
	if (s && !cow__without(OLD_RETURNS)) {
		r = cow__map_bring_back(cow__tile_start(s) + (start - s->touched), end - start,
		                        start);
		if (r == 0 || r == -ENOTRECOVERABLE) {
			brought_back(s, start, end, r == 0);
			returns.returned = true;
			return 0;
		}
	}
	r = cow__map_shared(start, end - start, &segment->file, cow__segment_offset(start), false);
	/* The move may have unmapped the range. Its memory must come back. */
	if (r < 0 && s) {
		cow__old_tables_release();
		r = cow__map_shared(start, end - start, &segment->file,
		                    cow__segment_offset(start), false);
	}
	return r;
}

uint64_t
cow__old_tables_job(uint64_t now)
{
	struct cow__tile *s = old_tables; /* the last one moved */
	uint64_t rest = returns.left && count <= COW__TABLES_STAY_MOST ? COW__TABLES_STAY_NS
	                                                               : COW__TABLES_REST_NS;
	size_t n;
	int r;

	if (!s)
		return UINT64_MAX;
	if (cow__elapsed(s->progress_at, now) < rest)
		return s->progress_at + rest - now;
	while (s->list_next) /* the first one moved */
		s = s->list_next;
	n = cow__min(COW__TABLES_SLICE, s->bytes - s->committed);
	s->busy = true;
	cow__engine_unlock();
	r = cow__map_none(cow__tile_start(s) + s->committed, n);
	cow__helper_lock();
	s->busy = false;
	if (r < 0)
		return COW__TABLES_REST_NS; /* no kernel mapping is left now */
	s->committed += n;
	if (s->committed == s->bytes) {
		remove_from_list(s);
		forget(s);
	}
	return 0;
}

void
cow__old_tables_release(void)
{
	struct cow__tile *s, *next;

	for (s = old_tables; s; s = next) {
		next = s->list_next;
		/* If the helper is about to do a slice of it, it goes on there:
		 * nothing is mapped any more. */
		if (cow__map_none(cow__tile_start(s), s->bytes) < 0 || s->busy)
			continue;
		remove_from_list(s);
		forget(s);
	}
}

COW_FORK_CODE void
cow__old_tables_child(void)
{
	for (struct cow__tile *s = old_tables; s; s = s->list_next)
		s->busy = false;
	cow__old_tables_release();
}

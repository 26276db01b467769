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

/* Page tables that were moved away. They lie at the addresses of `tile`, which are the engine's. */
struct old {
	struct cow__tile *tile;
	uintptr_t from;  /* the address that they came from */
	uintptr_t start; /* of those that can still be moved back; 0: none, since they show another place
	                  * of the file */
	size_t down;     /* bytes at the start of `tile` that were taken down */
	uint64_t at;     /* when they were moved */
	bool busy;       /* the helper takes a slice of them down, without the lock */
};

static struct old olds[COW__TABLES_MOST]; /* in the order of their moves */
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

	while (t && cow__tile_start(t) < at + bytes && !t->map.slow)
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
		s->map.backing = COW__SHARED;
		s->own.segment = segment;
		cow__segment_ref(s->own.segment);
	}
	cow__tile_change_end(s);
	if (r < 0) {
		failures += r != -ENOMEM && r != -EFAULT;
		if (s->kind == COW__INNER)
			(void)cow__tile_put(s);
		return;
	}
	olds[count++] = (struct old){
		.tile = s,
		.from = at,
		.start = offset == cow__segment_offset(at) ? at : 0,
		.at = cow__now(),
	};
	moved = true;
}

bool
cow__old_tables_pending(void)
{
	return count > 0;
}

bool
cow__old_tables_moved(void)
{
	bool yes = moved;

	moved = false;
	return yes;
}

/* Nothing is mapped there. The addresses are free again, or the program's (`kind`). */
static void
forget_old(struct old *old, uint8_t kind)
{
	struct cow__tile *t = old->tile;

	for (count--; old < olds + count; old++)
		old[0] = old[1];
	cow__tile_change_begin(t);
	t->kind = kind;
	t->map.backing = COW__NONE;
	cow__segment_unref(t->own.segment);
	t->own.segment = NULL;
	cow__tile_change_end(t);
	if (kind == COW__INNER)
		(void)cow__tile_put(t);
}

/* The page tables of [start, end) are back in their place. What lies before them is not moved back
 * any more. `reserved`: their addresses in the tile are still the engine's. Else all of it is given up. */
static void
note_brought_back(struct old *old, uintptr_t start, uintptr_t end, bool reserved)
{
	uintptr_t last = old->from + old->tile->bytes;
	uintptr_t place = cow__tile_start(old->tile) - old->from;

	if (reserved && (start > old->from || end < last)) {
		old->start = end;
		return;
	}
	if (!reserved) {
		(void)cow__map_none(place + old->from, start - old->from);
		(void)cow__map_none(place + end, last - end);
	}
	forget_old(old, reserved ? COW__INNER : COW__LOST);
}

/* The ones that have the page tables of [start, end), of which none was taken down or moved back. */
static struct old *
find_moved(uintptr_t start, uintptr_t end, const struct cow__segment *segment)
{
	for (struct old *old = olds + count; old-- > olds;)
		if (old->tile->own.segment == segment && !old->busy && !old->down && old->start &&
		    old->start <= start && end <= old->from + old->tile->bytes)
			return old;
	return NULL;
}

int
cow__old_tables_share(uintptr_t start, uintptr_t end, struct cow__segment *segment)
{
	struct old *old = returns.left ? find_moved(start, end, segment) : NULL;
	int r;

	returns.thawed = true;
	if (old && !cow__without(OLD_RETURNS)) {
		r = cow__map_bring_back(cow__tile_start(old->tile) + (start - old->from),
		                        end - start, start);
		if (r == 0 || r == -ENOTRECOVERABLE) {
			note_brought_back(old, start, end, r == 0);
			returns.returned = true;
			return 0;
		}
	}
	r = cow__map_shared(start, end - start, &segment->file, cow__segment_offset(start), false);
	/* The move may have unmapped the range. Its memory must come back. */
	if (r < 0 && old) {
		cow__old_tables_release();
		r = cow__map_shared(start, end - start, &segment->file,
		                    cow__segment_offset(start), false);
	}
	return r;
}

uint64_t
cow__old_tables_job(uint64_t now)
{
	uint64_t rest = returns.left && count <= COW__TABLES_STAY_MOST ? COW__TABLES_STAY_NS
	                                                               : COW__TABLES_REST_NS;
	struct old *old = olds; /* the first one moved */
	const struct cow__tile *t;
	uint64_t last;
	size_t n;
	int r;

	if (!count)
		return UINT64_MAX;
	last = olds[count - 1].at;
	if (cow__elapsed(last, now) < rest)
		return last + rest - now;
	t = old->tile;
	n = cow__min(COW__TABLES_SLICE, t->bytes - old->down);
	old->busy = true;
	cow__engine_unlock();
	r = cow__map_none(cow__tile_start(t) + old->down, n);
	cow__helper_lock();
	old->busy = false;
	if (r < 0)
		return COW__TABLES_REST_NS; /* no kernel mapping is left now */
	old->down += n;
	if (old->down == t->bytes)
		forget_old(old, COW__INNER);
	return 0;
}

void
cow__old_tables_release(void)
{
	for (struct old *old = olds + count; old-- > olds;)
		/* If the helper is about to do a slice of it, it goes on there: nothing is mapped any
		 * more. */
		if (cow__map_none(cow__tile_start(old->tile), old->tile->bytes) == 0 && !old->busy)
			forget_old(old, COW__INNER);
}

COW_FORK_CODE void
cow__old_tables_child(void)
{
	for (unsigned i = 0; i < count; i++)
		olds[i].busy = false;
	cow__old_tables_release();
}

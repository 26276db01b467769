/* SPDX-License-Identifier: MIT */
/*
 * Tiles: see the header.
 *
 * Free tiles hang in lists by heat and size class. There are four classes to each
 * power of two, so that a search looks at few tiles. Warm ones hang in a list by age as well.
 */
#include "core/memory/tile.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/memory/engine.h"
#include "core/memory/segment_ref.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"

#define CLASSES 192

static struct cow__pool tiles = { .object_bytes = sizeof(struct cow__tile) };
static struct cow__node *root;
static struct cow__tile *first;
/* One set for each side of the parting. */
static struct bins {
	struct cow__tile *first[COW__HEATS][CLASSES];
	uint64_t map[COW__HEATS][CLASSES / 64];
} bins[2];

/* What the last carving left behind its piece. */
static struct cow__tile *rest;

static unsigned
size_class(size_t bytes)
{
	size_t pages = bytes / cow__page;
	unsigned log = 63u - (unsigned)__builtin_clzll(pages | 1);

	if (log < 2)
		return (unsigned)pages;
	return log * 4 + ((unsigned)(pages >> (log - 2)) & 3);
}

enum cow__heat
cow__tile_heat(const struct cow__tile *t)
{
	if (t->map.backing == COW__NONE)
		return COW__BARE;
	return t->own.freed_at ? COW__WARM : COW__COLD;
}

static bool
is_behind(const struct cow__tile *t)
{
	return cow__tile_start(t) >= cow__engine.parting;
}

/* The oldest first: core/memory/decay.c cools them. */
static void
warm_add(struct cow__tile *t)
{
	struct cow__tile *after = cow__engine.warm_last;

	while (after && after->own.freed_at > t->own.freed_at)
		after = after->list_prev;
	t->list_prev = after;
	t->list_next = after ? after->list_next : cow__engine.warm_first;
	if (t->list_next)
		t->list_next->list_prev = t;
	else
		cow__engine.warm_last = t;
	if (after)
		after->list_next = t;
	else
		cow__engine.warm_first = t;
	cow__engine.warm_bytes += t->bytes - t->own.hollow;
	cow__stat_set(bytes_warm, cow__engine.warm_bytes);
}

static void
warm_remove(struct cow__tile *t)
{
	if (t->list_prev)
		t->list_prev->list_next = t->list_next;
	else
		cow__engine.warm_first = t->list_next;
	if (t->list_next)
		t->list_next->list_prev = t->list_prev;
	else
		cow__engine.warm_last = t->list_prev;
	t->list_prev = t->list_next = NULL;
	cow__engine.warm_bytes -= t->bytes - t->own.hollow;
	cow__stat_set(bytes_warm, cow__engine.warm_bytes);
}

static void
bin_add(struct cow__tile *t)
{
	struct bins *b = &bins[is_behind(t)];
	enum cow__heat heat = cow__tile_heat(t);
	unsigned c = size_class(t->bytes);

	t->bin_prev = NULL;
	t->bin_next = b->first[heat][c];
	if (t->bin_next)
		t->bin_next->bin_prev = t;
	b->first[heat][c] = t;
	b->map[heat][c / 64] |= 1ull << (c % 64);
	if (heat == COW__WARM)
		warm_add(t);
}

void
cow__tile_unlist(struct cow__tile *t)
{
	struct bins *b = &bins[is_behind(t)];
	enum cow__heat heat = cow__tile_heat(t);
	unsigned c = size_class(t->bytes);

	if (heat == COW__WARM)
		warm_remove(t);
	if (rest == t)
		rest = NULL;
	if (t->bin_next)
		t->bin_next->bin_prev = t->bin_prev;
	if (t->bin_prev) {
		t->bin_prev->bin_next = t->bin_next;
		return;
	}
	b->first[heat][c] = t->bin_next;
	if (!t->bin_next)
		b->map[heat][c / 64] &= ~(1ull << (c % 64));
}

struct cow__tile *
cow__tile_find(uintptr_t addr)
{
	struct cow__node *n = cow__tree_floor(root, addr);
	struct cow__tile *t = (struct cow__tile *)n;

	return t && addr < cow__tile_end(t) ? t : NULL;
}

COW_FORK_CODE struct cow__tile *
cow__tile_first(void)
{
	return first;
}

int
cow__tiles_init(uintptr_t start, size_t bytes)
{
	struct cow__tile *t = cow__pool_take(&tiles);

	if (!t)
		return -ENOMEM;
	*t = (struct cow__tile){
		.node.key = start,
		.bytes = bytes,
		.kind = COW__FREE,
	};
	first = t;
	cow__engine.parting = start + bytes;
	cow__tree_insert(&root, &t->node);
	bin_add(t);
	return 0;
}

/* How many kernel mappings the seam between two neighbours costs. It costs 0
 * where the kernel merges them: for the same file at adjoining offsets. */
static unsigned
seam_mappings(const struct cow__tile *a, const struct cow__tile *b)
{
	if (!a || !b)
		return 1;
	return !(a->map.backing == b->map.backing && !a->map.pieces && !b->map.pieces &&
	         !a->map.nkept && !b->map.nkept && !a->map.attributes && !b->map.attributes &&
	         (a->map.backing == COW__NONE || a->map.backing == COW__ANON ||
	          a->own.segment == b->own.segment));
}

static unsigned
mappings_around(const struct cow__tile *t)
{
	unsigned inside = t->map.npieces ? t->map.npieces - 1 : 2 * t->map.nkept;

	return inside + seam_mappings(t->prev, t) + seam_mappings(t, t->next);
}

static size_t
is_frozen(const struct cow__tile *t)
{
	return t->kind == COW__LIVE && t->map.backing == COW__PRIVATE;
}

/* Other threads read it without the lock: see cow_storage_data_mut_range(). */
static void
frozen_count_add(size_t n)
{
	__atomic_store_n(&cow__engine.frozen, cow__engine.frozen + n,
	                 __ATOMIC_RELAXED);
}

void
cow__tile_change_begin(const struct cow__tile *t)
{
	cow__engine.mappings -= mappings_around(t);
	if (is_frozen(t))
		frozen_count_add((size_t)-1);
}

void
cow__tile_change_end(const struct cow__tile *t)
{
	cow__engine.mappings += mappings_around(t);
	if (is_frozen(t))
		frozen_count_add(1);
}

void
cow__tiles_change_begin(const struct cow__tile *from, const struct cow__tile *to)
{
	cow__engine.mappings -= seam_mappings(from->prev, from) + seam_mappings(to, to->next);
}

void
cow__tiles_change_end(const struct cow__tile *from, const struct cow__tile *to,
                      size_t count)
{
	cow__engine.mappings += seam_mappings(from->prev, from) + seam_mappings(to, to->next);
	frozen_count_add(count);
}

static bool
tile_serves(const struct cow__tile *t, unsigned want)
{
	return !(want & COW__WANT_ANON) == (t->map.backing != COW__ANON) &&
	       cow__segment_usable(t->own.segment);
}

static bool
tile_fits(const struct cow__tile *t, unsigned want, size_t bytes, size_t align)
{
	uintptr_t at = cow__round_up(cow__tile_start(t), align);

	return at + bytes <= cow__tile_end(t) && tile_serves(t, want);
}

bool
cow__tile_serves(const struct cow__tile *t, unsigned want)
{
	return is_behind(t) == !!(want & COW__WANT_MAPPING) && tile_serves(t, want);
}

struct cow__tile *
cow__tile_search(enum cow__heat heat, unsigned want, size_t bytes, size_t align)
{
	const struct bins *b = &bins[!!(want & COW__WANT_MAPPING)];
	unsigned c = size_class(bytes);

	while (c < CLASSES) {
		uint64_t map = b->map[heat][c / 64] >> (c % 64);
		struct cow__tile *t;
		int looks = 0;

		if (!map) {
			c = (c / 64 + 1) * 64;
			continue;
		}
		c += (unsigned)__builtin_ctzll(map);
		for (t = b->first[heat][c]; t && looks < COW__FREE_LOOKS;
		     t = t->bin_next, looks++)
			if (tile_fits(t, want, bytes, align))
				return t;
		c++;
	}
	return NULL;
}

struct cow__tile *
cow__tile_rest(unsigned want, size_t bytes)
{
	const struct cow__tile *b;

	if (!rest || cow__tile_heat(rest) != COW__WARM || rest->own.hollow ||
	    is_behind(rest) != !!(want & COW__WANT_MAPPING) ||
	    size_class(rest->bytes) > size_class(bytes) ||
	    !tile_fits(rest, want, cow__min(bytes, rest->bytes), cow__page))
		return NULL;
	if (rest->bytes >= bytes)
		return rest;
	b = rest->next;
	return bytes - rest->bytes <= bytes / COW__REST_SHARE &&
	                       cow__tile_same_mapping(rest, b) &&
	                       rest->bytes + b->bytes >= bytes
	               ? rest
	               : NULL;
}

/* Makes a tile of its own of the part of `t` from `at` on, like `t`. */
static struct cow__tile *
tile_split(struct cow__tile *t, uintptr_t at)
{
	struct cow__tile *b = cow__pool_take(&tiles);

	if (!b)
		return NULL;
	cow__tile_change_begin(t);
	if (is_frozen(t))
		frozen_count_add(2);
	*b = *t;
	b->node.key = at;
	b->bytes = cow__tile_end(t) - at;
	b->prev = t;
	if (b->next)
		b->next->prev = b;
	t->next = b;
	t->bytes = at - cow__tile_start(t);
	b->own.hollow = cow__min(b->own.hollow, b->bytes);
	t->own.hollow -= b->own.hollow;
	cow__tree_insert(&root, &b->node);
	if (b->own.segment)
		cow__segment_ref(b->own.segment);
	cow__engine.mappings += mappings_around(t) + mappings_around(b) -
	                        seam_mappings(t, b);
	return b;
}

static void
tile_merge_next(struct cow__tile *t)
{
	struct cow__tile *b = t->next;

	cow__engine.mappings -= mappings_around(t) + mappings_around(b) -
	                        seam_mappings(t, b);
	cow__tree_remove(&root, &b->node);
	t->own.hollow = b->own.hollow == b->bytes ? t->own.hollow + b->bytes : b->own.hollow;
	t->bytes += b->bytes;
	t->own.small_pages |= b->own.small_pages;
	t->next = b->next;
	if (t->next)
		t->next->prev = t;
	if (b->own.segment)
		cow__segment_unref(b->own.segment);
	cow__pool_give(&tiles, b);
	cow__engine.mappings += mappings_around(t);
}

struct cow__tile *
cow__tile_carve(struct cow__tile *t, uintptr_t start, size_t bytes)
{
	struct cow__tile *after = NULL;

	cow__tile_unlist(t);
	if (start + bytes < cow__tile_end(t)) {
		after = tile_split(t, start + bytes);
		if (!after) {
			bin_add(t);
			return NULL;
		}
	}
	if (start > cow__tile_start(t)) {
		struct cow__tile *mid = tile_split(t, start);

		if (!mid) {
			if (after)
				tile_merge_next(t);
			bin_add(t);
			return NULL;
		}
		bin_add(t);
		t = mid;
	}
	if (after)
		bin_add(after);
	if (after)
		rest = after;
	return t;
}

int
cow__tiles_part(uintptr_t at)
{
	struct cow__tile *t = cow__tile_find(at), *b;

	if (!t || t->kind != COW__FREE || t->map.backing != COW__NONE ||
	    t->next || cow__tile_start(t) == at)
		return -ENOMEM;
	cow__tile_unlist(t);
	b = tile_split(t, at);
	if (b)
		cow__engine.parting = at;
	bin_add(t);
	if (b)
		bin_add(b);
	return b ? 0 : -ENOMEM;
}

struct cow__tile *
cow__tile_inner(size_t bytes, uintptr_t like, size_t unit)
{
	size_t skew = like & (unit - 1);
	struct cow__tile *t =
	        cow__tile_search(COW__BARE, 0, bytes + unit, COW__HUGE);
	uintptr_t at;

	if (!t)
		return NULL;
	at = cow__round_down(cow__tile_end(t) - bytes - skew, unit) + skew;
	if (at < cow__tile_start(t))
		return NULL;
	t = cow__tile_carve(t, at, bytes);
	if (t)
		t->kind = COW__INNER;
	return t;
}

void
cow__tile_inner_free(struct cow__tile *t)
{
	(void)cow__map_none(cow__tile_start(t), t->bytes);
	(void)cow__tile_put(t);
}

static bool
tiles_alike(const struct cow__tile *a, const struct cow__tile *b)
{
	return a && b && a->kind == COW__FREE && b->kind == COW__FREE &&
	       is_behind(a) == is_behind(b) && a->map.backing == b->map.backing &&
	       a->own.segment == b->own.segment && cow__tile_heat(a) == cow__tile_heat(b);
}

struct cow__tile *
cow__tile_put(struct cow__tile *t)
{
	t->kind = COW__FREE;
	/* Another file may come here, whose words are others. */
	t->own.word = 0;
	t->own.held = COW__HELD_NEVER;
	if (cow__tile_heat(t) != COW__WARM) {
		t->own.small_pages = false;
		t->own.hollow = 0;
	}
	if (tiles_alike(t, t->next)) {
		cow__tile_unlist(t->next);
		if (t->next->bytes > t->bytes)
			t->own.freed_at = t->next->own.freed_at;
		tile_merge_next(t);
	}
	if (tiles_alike(t->prev, t)) {
		struct cow__tile *p = t->prev;

		cow__tile_unlist(p);
		if (t->bytes > p->bytes)
			p->own.freed_at = t->own.freed_at;
		tile_merge_next(p);
		t = p;
	}
	bin_add(t);
	return t;
}

int
cow__tile_grow(struct cow__tile *t, size_t bytes)
{
	struct cow__tile *b = NULL;

	if (is_behind(t) == is_behind(t->next))
		b = cow__tile_carve(t->next, cow__tile_start(t->next), bytes);
	if (!b)
		return -ENOMEM;
	tile_merge_next(t);
	return 0;
}

struct cow__tile *
cow__tile_cut(struct cow__tile *t, size_t bytes)
{
	return tile_split(t, cow__tile_end(t) - bytes);
}

ssize_t
cow__copied_bytes(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	struct cow__run runs[64];
	size_t sum = 0;

	while (at < end) {
		int n = cow__pagemap_copied(at, end, runs, 64, &at);

		if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			sum += runs[i].end - runs[i].start;
	}
	return (ssize_t)sum;
}

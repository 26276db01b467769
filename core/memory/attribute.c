/* SPDX-License-Identifier: MIT */
/*
 * What the program did to a mapping of the engine: see the header.
 *
 * Each tile has a tree of notes, ordered by kind, then by address. Notes of one
 * kind do not overlap. So each can be put back by itself, and at no moment does
 * an older note hold.
 *
 * A note that says the same as its neighbour becomes part of it. So the tree does
 * not grow when a program toggles a page, or sweeps over many. A program that
 * protects single pages of a large block makes thousands of notes, as garbage
 * collectors do.
 */
#include "core/memory/attribute.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "memfd/forked.h"
#include "memfd/map.h"

#define PROTECTION_READ 1 /* of <sys/mman.h>, which belongs to memfd/ */
#define KIND_SHIFT 60     /* in a key; addresses are below */
#define NO_END (((uintptr_t)1 << KIND_SHIFT) - 1)

struct cow__attribute {
	struct cow__node node; /* by kind and start */
	uintptr_t end;
	int value;
};

static struct cow__pool attributes = {
	.object_bytes = sizeof(struct cow__attribute)
};

static uintptr_t
key_of(enum cow__attribute_kind kind, uintptr_t addr)
{
	return (uintptr_t)kind << KIND_SHIFT | addr;
}

static enum cow__attribute_kind
kind_of(const struct cow__attribute *a)
{
	return (enum cow__attribute_kind)(a->node.key >> KIND_SHIFT);
}

static uintptr_t
start_of(const struct cow__attribute *a)
{
	return a->node.key & NO_END;
}

static struct cow__attribute *
note_from_key(const struct cow__tile *t, uintptr_t key)
{
	return (struct cow__attribute *)cow__tree_ceiling(t->map.attributes, key);
}

/* The first of this kind from `key` on, if it begins before `end`. */
static struct cow__attribute *
next_note(const struct cow__tile *t, enum cow__attribute_kind kind, uintptr_t key,
          uintptr_t end)
{
	struct cow__attribute *a = note_from_key(t, key);

	return a && a->node.key < key_of(kind, end) ? a : NULL;
}

/* The first of this kind that has a part of [start, end), or NULL; the next one is
 * next_note() from its key + 1. */
static struct cow__attribute *
first_note(const struct cow__tile *t, enum cow__attribute_kind kind,
           uintptr_t start, uintptr_t end)
{
	uintptr_t key = key_of(kind, start);
	struct cow__attribute *a;

	a = (struct cow__attribute *)cow__tree_floor(t->map.attributes, key);
	return a && kind_of(a) == kind && a->end > start
	               ? a
	               : next_note(t, kind, key, end);
}

static size_t count; /* of all tiles */

bool
cow__attributes_any(void)
{
	return count != 0;
}

static void
note_put(struct cow__tile *t, struct cow__attribute *a, enum cow__attribute_kind kind,
         uintptr_t start, uintptr_t end, int value)
{
	*a = (struct cow__attribute){ .end = end, .value = value };
	a->node.key = key_of(kind, start);
	cow__tree_insert(&t->map.attributes, &a->node);
	count++;
}

static void
note_drop(struct cow__tile *t, struct cow__attribute *a)
{
	cow__tree_remove(&t->map.attributes, &a->node);
	cow__pool_give(&attributes, a);
	count--;
}

/* Does it go beyond [start, end) on both sides? */
static bool
note_goes_around(const struct cow__attribute *a, uintptr_t start, uintptr_t end)
{
	return start_of(a) < start && a->end > end;
}

/* Takes [start, end) away from `a`, which does not go beyond it on both sides.
 * `a` keeps what it has outside. */
static void
note_give_way(struct cow__tile *t, struct cow__attribute *a, uintptr_t start,
              uintptr_t end)
{
	if (start_of(a) < start) {
		a->end = start;
	} else if (a->end > end) {
		cow__tree_remove(&t->map.attributes, &a->node);
		count--;
		note_put(t, a, kind_of(a), end, a->end, a->value);
	} else {
		note_drop(t, a);
	}
}

int
cow__attribute_add(struct cow__tile *t, uintptr_t start, uintptr_t end,
                   enum cow__attribute_kind kind, int value)
{
	struct cow__attribute *a = cow__pool_take(&attributes), *rest = NULL;
	struct cow__attribute *old = first_note(t, kind, start, end);
	bool parts = old && note_goes_around(old, start, end) && old->value != value;
	uintptr_t key;

	if (a && parts) {
		rest = cow__pool_take(&attributes);
		if (!rest)
			cow__pool_give(&attributes, a);
	}
	if (!a || (parts && !rest))
		return -ENOMEM;
	cow__tile_change_begin(t);
	if (rest) {
		note_put(t, rest, kind, end, old->end, old->value);
		old->end = end;
	}
	/* The neighbours as well: those with the same value merge with it. */
	for (old = first_note(t, kind, start - 1, end + 1); old;
	     old = next_note(t, kind, key + 1, end + 1)) {
		key = old->node.key;
		if (old->value == value) {
			start = cow__min(start_of(old), start);
			end = cow__max(old->end, end);
			note_drop(t, old);
		} else if (old->end > start && start_of(old) < end) {
			note_give_way(t, old, start, end);
		}
	}
	note_put(t, a, kind, start, end, value);
	cow__tile_set_slow(t);
	cow__tile_change_end(t);
	return 0;
}

int
cow__attribute_at(const struct cow__tile *t, enum cow__attribute_kind kind,
                  int none, uintptr_t addr, uintptr_t *end)
{
	const struct cow__attribute *a = first_note(t, kind, addr, *end);

	if (!a)
		return none;
	*end = cow__min(*end, start_of(a) > addr ? start_of(a) : a->end);
	return start_of(a) > addr ? none : a->value;
}

size_t
cow__attributes_count(const struct cow__tile *t)
{
	const struct cow__attribute *a;
	size_t n = 0;

	for (a = note_from_key(t, 0); a; a = note_from_key(t, a->node.key + 1))
		n++;
	return n;
}

bool
cow__attributes_have_key(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	const enum cow__attribute_kind kind = COW__ATTRIBUTE_PROTECTION;
	const struct cow__attribute *a = first_note(t, kind, start, end);

	while (a && !(a->value & COW__MAP_KEYS))
		a = next_note(t, kind, a->node.key + 1, end);
	return a;
}

static bool
note_lingers(const struct cow__attribute *a)
{
	switch (kind_of(a)) {
	case COW__ATTRIBUTE_PROTECTION:
		return a->value & COW__MAP_KEYS;
	case COW__ATTRIBUTE_LOCK:
		return a->value >= 0;
	case COW__ATTRIBUTE_DUMP:
	case COW__ATTRIBUTE_FORK:
	case COW__ATTRIBUTE_WIPE:
		return a->value;
	case COW__ATTRIBUTE_PLACE:
		break;
	}
	return false;
}

bool
cow__attributes_linger(const struct cow__tile *t, uintptr_t start,
                       uintptr_t end)
{
	const struct cow__attribute *a;

	for (enum cow__attribute_kind kind = 0; kind < COW__ATTRIBUTES; kind++)
		for (a = first_note(t, kind, start, end); a;
		     a = next_note(t, kind, a->node.key + 1, end))
			if (note_lingers(a))
				return true;
	return false;
}

bool
cow__attributes_unmapped(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t), to;

	for (; at < end; at = to) {
		to = end;
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS,
		                      at, &to) != COW__PLACE_HOLE)
			return false;
	}
	return true;
}

bool
cow__attributes_holed(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t), to = end;

	for (; t->map.attributes && at < end; at = to, to = end)
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS,
		                      at, &to) == COW__PLACE_HOLE)
			return true;
	return false;
}

/* A note that goes beyond both ends of [start, end) becomes two. */
static int
split_note(struct cow__tile *t, enum cow__attribute_kind kind, uintptr_t start,
           uintptr_t end)
{
	struct cow__attribute *a = first_note(t, kind, start, end), *rest;

	if (!a || !note_goes_around(a, start, end))
		return 0;
	rest = cow__pool_take(&attributes);
	if (!rest)
		return -ENOMEM;
	note_put(t, rest, kind, end, a->end, a->value);
	a->end = end;
	return 0;
}

static void
clear_notes(struct cow__tile *t, enum cow__attribute_kind kind, uintptr_t start,
            uintptr_t end)
{
	struct cow__attribute *a;
	uintptr_t key;

	for (a = first_note(t, kind, start, end); a;
	     a = next_note(t, kind, key + 1, end)) {
		key = a->node.key;
		note_give_way(t, a, start, end);
	}
}

int
cow__attribute_cut(struct cow__tile *t, uintptr_t start, uintptr_t end,
                   enum cow__attribute_kind kind)
{
	int r = split_note(t, kind, start, end);

	if (r == 0)
		clear_notes(t, kind, start, end);
	return r;
}

int
cow__attributes_cut(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	enum cow__attribute_kind kind;
	int r = 0;

	/* What may fail comes first. */
	for (kind = 0; r == 0 && kind < COW__ATTRIBUTES; kind++)
		r = split_note(t, kind, start, end);
	for (kind = 0; r == 0 && kind < COW__ATTRIBUTES; kind++)
		clear_notes(t, kind, start, end);
	return r;
}

/* Readable for the engine: without a key of the program's, which may be closed to
 * this thread. */
static int
readable_protection(int protection)
{
	if (protection > 0xffff)
		protection = (protection & 0xffff) | COW__MAP_KEY(0);
	return protection | PROTECTION_READ;
}

void
cow__attributes_reveal(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	const enum cow__attribute_kind kind = COW__ATTRIBUTE_PROTECTION;
	const struct cow__attribute *a;

	for (a = first_note(t, kind, start, end); a;
	     a = next_note(t, kind, a->node.key + 1, end)) {
		uintptr_t from = cow__max(start_of(a), start);

		(void)cow__map_protect(from, cow__min(a->end, end) - from,
		                       readable_protection(a->value));
	}
}

COW_FORK_CODE void
cow__attributes_unlock(struct cow__tile *t)
{
	struct cow__attribute *a;

	while ((a = first_note(t, COW__ATTRIBUTE_LOCK, 0, NO_END)) != NULL)
		note_drop(t, a);
}

void
cow__attributes_withhold(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t to;

	for (; start < end; start = to) {
		to = end;
		if (cow__attribute_at(t, COW__ATTRIBUTE_FORK, 0, start, &to))
			(void)cow__map_inherit(start, to - start, false);
	}
}

/* Puts back the notes of one kind, which a new mapping lacks. */
static void
apply_notes_of(const struct cow__tile *t, enum cow__attribute_kind kind,
               uintptr_t start, uintptr_t end, bool protections)
{
	const struct cow__attribute *a;

	for (a = first_note(t, kind, start, end); a;
	     a = next_note(t, kind, a->node.key + 1, end)) {
		uintptr_t from = cow__max(start_of(a), start);
		size_t bytes = cow__min(a->end, end) - from;

		if (kind == COW__ATTRIBUTE_DUMP)
			(void)cow__map_advise(from, bytes, a->value);
		else if (kind == COW__ATTRIBUTE_LOCK)
			(void)cow__map_lock(from, bytes, a->value);
		else if (protections || (a->value & COW__MAP_KEYS))
			(void)cow__map_protect(from, bytes, a->value);
	}
}

static void
apply_notes(const struct cow__tile *t, uintptr_t start, uintptr_t end, bool protections)
{
	cow__attributes_withhold(t, start, end);
	apply_notes_of(t, COW__ATTRIBUTE_PROTECTION, start, end, protections);
	apply_notes_of(t, COW__ATTRIBUTE_DUMP, start, end, protections);
	apply_notes_of(t, COW__ATTRIBUTE_LOCK, start, end, protections);
}

void
cow__attributes_apply(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	apply_notes(t, start, end, true);
}

void
cow__attributes_mapped(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	apply_notes(t, start, end, false);
}

void
cow__attributes_each(struct cow__tile *t, enum cow__attribute_kind kind,
                     int value,
                     void (*fn)(struct cow__tile *t, uintptr_t start,
                                uintptr_t end))
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t), to;

	for (; at < end; at = to) {
		to = end;
		if (cow__attribute_at(t, kind, !value, at, &to) == value)
			fn(t, at, to);
	}
}

void
cow__attributes_free(struct cow__tile *t)
{
	while (t->map.attributes)
		note_drop(t, (struct cow__attribute *)t->map.attributes);
}

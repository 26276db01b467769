/* SPDX-License-Identifier: MIT */
/*
 * What the program did to a mapping of ours. See the header.
 *
 * A list in the order of the calls. Putting all of it back in that order gives
 * the same result, whatever overlaps; a note that covers an older one of its
 * kind replaces it, and one that goes on where the last one stopped extends it:
 * so a program that toggles a page, or sweeps over many, does not grow the list.
 */
#include "core/attribute.h"
#include "core/base.h"
#include "core/pool.h"
#include "memfd/map.h"

#define PROTECTION_READ 1 /* of <sys/mman.h>, which belongs to memfd/ */

struct cow__attribute {
	struct cow__attribute *next;
	uintptr_t start, end;
	enum cow__attribute_kind kind;
	int value;
};

static struct cow__pool attributes = {
	.object_bytes = sizeof(struct cow__attribute)
};

int
cow__attribute_add(struct cow__tile *t, uintptr_t start, uintptr_t end,
                   enum cow__attribute_kind kind, int value)
{
	struct cow__attribute *a = cow__pool_take(&attributes), **p;

	if (!a)
		return -ENOMEM;
	*a = (struct cow__attribute){
		.start = start, .end = end, .kind = kind, .value = value
	};
	cow__tile_change_begin(t);
	for (p = &t->attributes; *p;) {
		struct cow__attribute *old = *p;

		if (!old->next && old->kind == kind && old->value == value &&
		    old->start <= end && start <= old->end) {
			a->start = start = cow__min(old->start, start);
			a->end = end = cow__max(old->end, end);
		}
		if (old->kind == kind && old->start >= start &&
		    old->end <= end) {
			*p = old->next;
			cow__pool_give(&attributes, old);
		} else {
			p = &old->next;
		}
	}
	*p = a;
	t->slow = true;
	cow__tile_change_end(t);
	return 0;
}

int
cow__attribute_at(const struct cow__tile *t, enum cow__attribute_kind kind,
                  int none, uintptr_t addr, uintptr_t *end)
{
	for (const struct cow__attribute *a = t->attributes; a; a = a->next) {
		if (a->kind != kind || a->end <= addr)
			continue;
		if (a->start > addr) {
			*end = cow__min(*end, a->start);
			continue;
		}
		*end = cow__min(*end, a->end);
		none = a->value;
	}
	return none;
}

bool
cow__attributes_have_key(const struct cow__tile *t)
{
	for (const struct cow__attribute *a = t->attributes; a; a = a->next)
		if (a->kind == COW__ATTRIBUTE_PROTECTION &&
		    (a->value & COW__MAP_KEYS))
			return true;
	return false;
}

bool
cow__attributes_linger(const struct cow__tile *t, uintptr_t start,
                       uintptr_t end)
{
	bool yes = false;

	for (const struct cow__attribute *a = t->attributes; a && !yes;
	     a = a->next) {
		if (a->end <= start || a->start >= end)
			continue;
		switch (a->kind) {
		case COW__ATTRIBUTE_PROTECTION:
			yes = a->value & COW__MAP_KEYS;
			break;
		case COW__ATTRIBUTE_LOCK:
			yes = a->value >= 0;
			break;
		case COW__ATTRIBUTE_DUMP:
		case COW__ATTRIBUTE_FORK:
		case COW__ATTRIBUTE_WIPE:
			yes = a->value;
			break;
		case COW__ATTRIBUTE_PLACE:
			break;
		}
	}
	return yes;
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

int
cow__attributes_cut(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	struct cow__attribute *a, *rest, **p;

	/* First what may fail: notes on both sides of the range are two. */
	for (a = t->attributes; a; a = a->next) {
		if (a->start >= start || a->end <= end)
			continue;
		rest = cow__pool_take(&attributes);
		if (!rest)
			return -ENOMEM;
		*rest = *a;
		a->end = rest->start = end;
		a->next = rest;
	}
	for (p = &t->attributes; (a = *p) != NULL;) {
		if (a->start < start)
			a->end = cow__min(a->end, start);
		else if (a->end > end)
			a->start = cow__max(a->start, end);
		else
			a->end = a->start;
		if (a->start < a->end) {
			p = &a->next;
			continue;
		}
		*p = a->next;
		cow__pool_give(&attributes, a);
	}
	return 0;
}

/* Without a key of the program's, which may close it to this thread. */
static int
readable(int protection)
{
	if (protection > 0xffff)
		protection = (protection & 0xffff) | COW__MAP_KEY(0);
	return protection | PROTECTION_READ;
}

void
cow__attributes_reveal(const struct cow__tile *t)
{
	for (struct cow__attribute *a = t->attributes; a; a = a->next)
		if (a->kind == COW__ATTRIBUTE_PROTECTION)
			(void)cow__map_protect(a->start, a->end - a->start,
			                       readable(a->value));
}

void
cow__attributes_unlock(struct cow__tile *t)
{
	struct cow__attribute **p = &t->attributes, *a;

	while ((a = *p) != NULL) {
		if (a->kind != COW__ATTRIBUTE_LOCK) {
			p = &a->next;
			continue;
		}
		*p = a->next;
		cow__pool_give(&attributes, a);
	}
}

static void
withhold(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t to;

	for (; start < end; start = to) {
		to = end;
		if (cow__attribute_at(t, COW__ATTRIBUTE_FORK, 0, start, &to))
			(void)cow__map_inherit(start, to - start, false);
	}
}

void
cow__attributes_apply(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	withhold(t, start, end);
	for (struct cow__attribute *a = t->attributes; a; a = a->next) {
		uintptr_t from = cow__max(a->start, start);
		uintptr_t to = cow__min(a->end, end);

		if (from >= to)
			continue;
		switch (a->kind) {
		case COW__ATTRIBUTE_PROTECTION:
			(void)cow__map_protect(from, to - from, a->value);
			break;
		case COW__ATTRIBUTE_DUMP:
			(void)cow__map_advise(from, to - from, a->value);
			break;
		case COW__ATTRIBUTE_LOCK:
			(void)cow__map_lock(from, to - from, a->value);
			break;
		case COW__ATTRIBUTE_FORK:
		case COW__ATTRIBUTE_WIPE:
		case COW__ATTRIBUTE_PLACE:
			break;
		}
	}
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
	while (t->attributes) {
		struct cow__attribute *a = t->attributes;

		t->attributes = a->next;
		cow__pool_give(&attributes, a);
	}
}

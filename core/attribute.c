/* SPDX-License-Identifier: MIT */
/*
 * What the program did to a mapping of ours. See the header.
 *
 * A list. Those of one kind stand in it by their addresses and do not overlap, so
 * that each can be put back by itself: at no moment is anything there what an older
 * note said. One that says the same as its neighbour is part of it: so a program
 * that toggles a page, or sweeps over many, does not grow the list.
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

/* The one of this kind that goes beyond [start, end) on both sides and says something else,
 * or NULL. */
static const struct cow__attribute *
around(const struct cow__tile *t, uintptr_t start, uintptr_t end,
       enum cow__attribute_kind kind, int value)
{
	const struct cow__attribute *a = t->attributes;

	while (a && !(a->kind == kind && a->start < start && a->end > end &&
	              a->value != value))
		a = a->next;
	return a;
}

/* Leaves [start, end) to a new note. True: nothing of `old` is left. */
static bool
give_way(struct cow__attribute *old, uintptr_t start, uintptr_t end)
{
	if (old->start >= end || old->end <= start)
		return false;
	if (old->start < start)
		old->end = start;
	else if (old->end > end)
		old->start = end;
	else
		return true;
	return false;
}

int
cow__attribute_add(struct cow__tile *t, uintptr_t start, uintptr_t end,
                   enum cow__attribute_kind kind, int value)
{
	struct cow__attribute *a = cow__pool_take(&attributes), *rest = NULL, **p;
	const struct cow__attribute *whole = around(t, start, end, kind, value);

	if (a && whole) {
		rest = cow__pool_take(&attributes);
		if (!rest)
			cow__pool_give(&attributes, a);
	}
	if (!a || (whole && !rest))
		return -ENOMEM;
	if (rest)
		*rest = (struct cow__attribute){
			.start = end, .end = whole->end, .kind = kind, .value = whole->value
		};
	*a = (struct cow__attribute){ .kind = kind, .value = value };
	cow__tile_change_begin(t);
	for (p = &t->attributes; *p;) {
		struct cow__attribute *old = *p;
		bool over = false;

		if (old->kind == kind && old->value == value && old->start <= end &&
		    start <= old->end) {
			start = cow__min(old->start, start);
			end = cow__max(old->end, end);
			over = true;
		} else if (old->kind == kind) {
			over = give_way(old, start, end);
		}
		if (over) {
			*p = old->next;
			cow__pool_give(&attributes, old);
		} else {
			p = &old->next;
		}
	}
	for (p = &t->attributes; *p && !((*p)->kind == kind && (*p)->start > start);)
		p = &(*p)->next;
	a->start = start;
	a->end = end;
	a->next = *p;
	*p = a;
	if (rest) {
		rest->next = a->next;
		a->next = rest;
	}
	t->slow = true;
	cow__tile_change_end(t);
	return 0;
}

int
cow__attribute_from(const struct cow__attribute **from,
                    enum cow__attribute_kind kind, int none, uintptr_t addr,
                    uintptr_t *end)
{
	const struct cow__attribute *a = *from;

	while (a && (a->kind != kind || a->end <= addr))
		a = a->next;
	*from = a;
	if (!a)
		return none;
	*end = cow__min(*end, a->start > addr ? a->start : a->end);
	return a->start > addr ? none : a->value;
}

int
cow__attribute_at(const struct cow__tile *t, enum cow__attribute_kind kind,
                  int none, uintptr_t addr, uintptr_t *end)
{
	const struct cow__attribute *from = t->attributes;

	return cow__attribute_from(&from, kind, none, addr, end);
}

size_t
cow__attributes_count(const struct cow__tile *t)
{
	size_t n = 0;

	for (const struct cow__attribute *a = t->attributes; a; a = a->next)
		n++;
	return n;
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

void
cow__attributes_withhold(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	const struct cow__attribute *from = t->attributes;
	uintptr_t to;

	for (; start < end; start = to) {
		to = end;
		if (cow__attribute_from(&from, COW__ATTRIBUTE_FORK, 0, start, &to))
			(void)cow__map_inherit(start, to - start, false);
	}
}

static void
apply(const struct cow__tile *t, uintptr_t start, uintptr_t end, bool protections)
{
	cow__attributes_withhold(t, start, end);
	for (struct cow__attribute *a = t->attributes; a; a = a->next) {
		uintptr_t from = cow__max(a->start, start);
		uintptr_t to = cow__min(a->end, end);

		if (from >= to)
			continue;
		switch (a->kind) {
		case COW__ATTRIBUTE_PROTECTION:
			if (protections || (a->value & COW__MAP_KEYS))
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
cow__attributes_apply(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	apply(t, start, end, true);
}

void
cow__attributes_mapped(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	apply(t, start, end, false);
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

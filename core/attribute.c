/* SPDX-License-Identifier: MIT */
/*
 * What the program did to a mapping of ours. See the header.
 *
 * A list in the order of the calls. Putting all of it back in that order gives
 * the same result, whatever overlaps; a note that covers an older one of its
 * kind replaces it, so that a program which toggles a page does not grow the
 * list.
 */
#include "core/attribute.h"
#include "core/base.h"
#include "core/pool.h"
#include "memfd/map.h"

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

		if (old->kind == kind && old->start >= start &&
		    old->end <= end &&
		    (kind != COW__ATTRIBUTE_ADVICE || old->value == value)) {
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

void
cow__attributes_apply(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	for (struct cow__attribute *a = t->attributes; a; a = a->next) {
		uintptr_t from = cow__max(a->start, start);
		uintptr_t to = cow__min(a->end, end);

		if (from >= to)
			continue;
		switch (a->kind) {
		case COW__ATTRIBUTE_PROTECTION:
			(void)cow__map_protect(from, to - from, a->value);
			break;
		case COW__ATTRIBUTE_ADVICE:
			(void)cow__map_advise(from, to - from, a->value);
			break;
		case COW__ATTRIBUTE_LOCK:
			(void)cow__map_lock(from, to - from, a->value);
			break;
		case COW__ATTRIBUTE_WIPE:
		case COW__ATTRIBUTE_UNMAPPED:
			break;
		}
	}
}

void
cow__attributes_wiped(struct cow__tile *t,
                      void (*fn)(void *tile, uintptr_t start, uintptr_t end))
{
	for (struct cow__attribute *a = t->attributes; a; a = a->next)
		if (a->kind == COW__ATTRIBUTE_WIPE && a->value)
			fn(t, a->start, a->end);
}

bool
cow__attributes_unmapped(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);

	while (at < end) {
		uintptr_t until = at, next = end;
		int value = 0;

		for (struct cow__attribute *a = t->attributes; a; a = a->next) {
			if (a->kind != COW__ATTRIBUTE_UNMAPPED || a->end <= at)
				continue;
			if (a->start > at) {
				next = cow__min(next, a->start);
				continue;
			}
			value = a->value;
			until = a->end;
		}
		if (!value)
			return false;
		at = cow__min(until, next);
	}
	return true;
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

/* SPDX-License-Identifier: MIT */
/*
 * Parts of a tile: see the header.
 */
#include "core/cow/part.h"
#include "core/base/base.h"
#include "core/memory/attribute.h"
#include "core/memory/state.h"
#include "memfd/map.h"

#include <string.h>

#define AROUND ((uintptr_t)64 << 10) /* the kernel's default of fault_around_bytes */

struct cow__tile *
cow__part_source(const struct cow__tile *t, uintptr_t addr, size_t *ret_offset,
                 size_t *ret_bytes)
{
	size_t at = addr - cow__tile_start(t);

	if (!t->map.npieces) {
		*ret_offset = at;
		*ret_bytes = t->bytes - at;
		return (struct cow__tile *)t;
	}
	for (uint32_t i = 0; i < t->map.npieces; i++) {
		const struct cow__piece *p = &t->map.pieces[i];

		if (at < p->bytes) {
			*ret_offset = p->offset + at;
			*ret_bytes = p->bytes - at;
			return p->pages;
		}
		at -= p->bytes;
	}
	cow__require(false);
	return NULL;
}

int
cow__part_map(struct cow__tile *t, uintptr_t start, uintptr_t end, bool shared,
              uintptr_t *ret_done)
{
	uintptr_t at = start;
	int r = 0;

	while (at < end) {
		size_t offset, bytes;
		struct cow__tile *p = cow__part_source(t, at, &offset, &bytes);
		uint64_t file = cow__segment_offset(cow__tile_start(p)) +
		                offset;

		uintptr_t to = at + cow__min(bytes, end - at);
		/* The mapping has the noted protection from its first moment, but
		 * for keys: no thread may write what the program closed. */
		int prot = cow__attribute_at(t, COW__ATTRIBUTE_PROTECTION,
		                             COW__MAP_READ_WRITE, at, &to);

		/* A block that was not frozen may have parts that are not in the file. */
		if (!shared && cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, at,
		                                 &to) != COW__PLACE_OURS) {
			at = to;
			continue;
		}
		r = cow__map_protected(at, to - at, &p->own.segment->file, file,
		                       shared, prot);
		if (r < 0)
			break;
		at = to;
	}
	if (t->map.attributes)
		cow__attributes_mapped(t, start, at);
	if (ret_done)
		*ret_done = at;
	return r;
}

bool
cow__private_part(const struct cow__tile *t, uintptr_t at, struct cow__span *ret)
{
	*ret = (struct cow__span){ at, cow__tile_end(t) };
	if (t->map.backing != COW__PRIVATE || at >= ret->end)
		return false;
	if (!t->map.nkept)
		return true;
	for (uint32_t i = 0; i < t->map.nkept; i++)
		if (t->map.kept[i].end > at) {
			ret->start = cow__max(at, t->map.kept[i].start);
			ret->end = t->map.kept[i].end;
			return true;
		}
	return false;
}

struct cow__tile *
cow__part_alias(struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	uintptr_t at = start;
	struct cow__tile *a; /* huge pages fit in it where they fit in `t` */
	int r = 0;

	a = cow__tile_inner(end - start, start, COW__HUGE);
	if (!a)
		return NULL;
	while (r == 0 && at < end) {
		size_t offset, bytes;
		struct cow__tile *p = cow__part_source(t, at, &offset, &bytes);

		bytes = cow__min(bytes, end - at);
		r = cow__map_shared(
		        cow__tile_start(a) + (at - start), bytes,
		        &p->own.segment->file,
		        cow__segment_offset(cow__tile_start(p)) + offset,
		        false);
		at += bytes;
	}
	if (r == 0)
		return a;
	cow__tile_inner_free(a);
	return NULL;
}

void
cow__part_write(uintptr_t to, const void *from, size_t bytes)
{
	for (uintptr_t at = to; at < to + bytes; at = cow__round_down(at, AROUND) + AROUND)
		(void)*(const volatile char *)at;
	memcpy((void *)to, from, bytes);
}

size_t
cow__runs_bytes(const struct cow__run *runs, int n)
{
	size_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += runs[i].end - runs[i].start;
	return bytes;
}

size_t
cow__made_bytes(uintptr_t at, uintptr_t end, size_t enough)
{
	struct cow__run runs[64];
	size_t made = 0;
	int n;

	while (at < end && made < enough) {
		n = cow__pagemap_made(at, end, runs, 64, &at);
		if (n < 0)
			break;
		made += cow__runs_bytes(runs, n);
	}
	return made;
}

/* SPDX-License-Identifier: MIT */
/*
 * Which pages the program did not touch: see the header.
 */
#include "core/program/missing.h"
#include "core/base/base.h"
#include "core/memory/segment.h"
#include "core/memory/tile.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"

static void
note(unsigned char *bits, size_t i)
{
	bits[i / 8] |= (unsigned char)(1 << i % 8);
}

/* Pages [i, to) after `start` are in the page table. One touch brings a whole huge page there. So
 * those that hold zeros in 2 MiB that are there as a whole count as missing. */
static void
note_zeros(const struct cow__tile *t, uintptr_t start, size_t i, size_t to, unsigned char *ret)
{
	const size_t pages = COW__HUGE / cow__page;
	uintptr_t huge = 0;
	bool whole = false;

	for (; i < to; i++) {
		uintptr_t page = start + i * cow__page;
		uint64_t at = cow__segment_offset(page);

		if (huge != cow__round_down(page, COW__HUGE)) {
			huge = cow__round_down(page, COW__HUGE);
			whole = cow__pagemap_touched(huge, cow__page, pages, 0) == (int)pages;
		}
		if (whole && cow__memfd_zeros(&t->own.segment->file, at, at + cow__page) > 0)
			note(ret, i);
	}
}

void
cow__note_missing(const struct cow__tile *t, uintptr_t start, uintptr_t end, bool zeros,
             unsigned char *ret)
{
	const struct cow__descriptor *file = &t->own.segment->file;
	uint64_t base = cow__segment_offset(start), data, data_end = 0;
	size_t pages = (end - start) / cow__page, i = 0;
	int touched, r = 1;

	while (i < pages) {
		uint64_t at = base + i * cow__page;

		/* Holes of the file are many pages. */
		if (r > 0 && at >= data_end)
			r = cow__memfd_data(file, at, base + pages * cow__page, &data, &data_end);
		touched = r > 0 && at >= data
		                  ? cow__pagemap_touched(start + i * cow__page, cow__page, pages - i, 0)
		                  : 0;
		if (r < 0 || touched < 0)
			return;
		if (touched && zeros)
			note_zeros(t, start, i, i + (size_t)touched, ret);
		i += (size_t)touched;
		if (touched)
			continue;
		if (r == 0 || at < data || cow__memfd_zeros(file, at, at + cow__page) > 0)
			note(ret, i);
		i++;
	}
}

static void
not_missing(unsigned char *bits, size_t i, size_t end)
{
	for (; i < end; i++)
		bits[i / 8] &= (unsigned char)~(1 << i % 8);
}

int
cow__note_absent(const struct cow__tile *t, uintptr_t start, uintptr_t end, unsigned char *ret)
{
	uint64_t base = cow__segment_offset(start), last = base + (end - start), from, to = base;
	struct cow__run runs[16];
	uintptr_t next = start;
	int r = 1;

	if (t->map.npieces || !t->own.segment)
		return -EINVAL;
	memset(ret, 0xff, (end - start) / cow__page / 8 + 1);
	while (r > 0 && to < last) {
		r = cow__memfd_data(&t->own.segment->file, to, last, &from, &to);
		if (r > 0)
			not_missing(ret, (from - base) / cow__page,
			            (to - base + cow__page - 1) / cow__page);
	}
	while (r >= 0 && t->map.backing == COW__PRIVATE && next < end) {
		r = cow__pagemap_copied(next, end, runs, 16, &next);
		for (int i = 0; i < r; i++)
			not_missing(ret, (runs[i].start - start) / cow__page,
			            (runs[i].end - start) / cow__page);
	}
	return r < 0 ? r : 0;
}

void
cow__copy_there(uintptr_t start, uintptr_t end, const unsigned char *missing, char *copy)
{
	for (size_t i = 0; start + i * cow__page < end; i++)
		if (!missing || !(missing[i / 8] & 1 << i % 8))
			memcpy(copy + i * cow__page, (void *)(start + i * cow__page), cow__page);
}

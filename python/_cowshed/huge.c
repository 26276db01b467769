/* SPDX-License-Identifier: MIT */
/*
 * Huge pages for frozen objects
 *
 * A forked child begins with page tables that the processor has never read. Reading millions
 * of objects, one page of 4 KiB after the other, takes a fifth longer for that reason, in each
 * child. Frozen objects stay for good, so their memory is worth huge pages. Forks copy fewer
 * page tables then, too.
 *
 * A block of 2 MiB with objects of the program's mostly has nothing else. The kernel copies it
 * into a huge page, or says no: an older kernel, a block with something else, no memory. A
 * child that writes to a huge page gets a copy of 4 KiB, as before.
 */
#include "python/_cowshed/huge.h"

#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { SHIFT = 21, LEAST = 2048 }; /* objects of a block: one for each KiB */

struct huge_block {
	uintptr_t number; /* the address, shifted; 0: none */
	size_t objects;
};

static struct huge_block *block_of(struct huge_block *all, size_t mask, uintptr_t number)
{
	size_t i = number * UINT64_C(0x9e3779b97f4a7c15) >> 20 & mask;

	while (all[i].number && all[i].number != number)
		i = (i + 1) & mask;
	return &all[i];
}

static bool grow(struct huge *h)
{
	size_t mask = h->all ? 2 * h->mask + 1 : 1023;
	struct huge_block *all = calloc(mask + 1, sizeof(*all));

	if (!all)
		return false;
	for (size_t i = 0; h->all && i <= h->mask; i++)
		if (h->all[i].number)
			*block_of(all, mask, h->all[i].number) = h->all[i];
	free(h->all);
	h->all = all;
	h->mask = mask;
	return true;
}

void huge_count(struct huge *h, uintptr_t at)
{
	uintptr_t number = at >> SHIFT;

	if (h->failed)
		return;
	if (!h->last || h->last->number != number) {
		if (2 * h->used >= h->mask && !grow(h)) {
			h->failed = true;
			return;
		}
		h->last = block_of(h->all, h->mask, number);
		h->used += !h->last->number;
		h->last->number = number;
	}
	h->last->objects++;
}

void huge_collapse(const struct huge *h)
{
	for (size_t i = 0; h->all && !h->failed && i <= h->mask; i++)
		if (h->all[i].objects >= LEAST)
			(void)madvise((void *)(h->all[i].number << SHIFT), (size_t)1 << SHIFT,
			              MADV_COLLAPSE);
}

void huge_free(struct huge *h)
{
	free(h->all);
}

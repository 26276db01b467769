/* SPDX-License-Identifier: MIT */
/*
 * Exclusive pages: see the header.
 */
#include "core/cow/exclusive.h"
#include "core/policy/constants.h"

/* Do two pieces show one page at two places? A write through one of them would
 * change the other. */
static bool
shown_twice(const struct cow__tile *t, uint32_t i)
{
	const struct cow__piece *p = &t->map.pieces[i];

	for (uint32_t k = 0; k < i; k++) {
		const struct cow__piece *q = &t->map.pieces[k];

		if (p->pages == q->pages &&
		    p->offset < q->offset + q->bytes &&
		    q->offset < p->offset + p->bytes)
			return true;
	}
	return false;
}

typedef bool holders_fn(const struct cow__tile *t, struct cow__census *c);

/* Does nobody else read the pages that the tile shows? `nobody` answers for other
 * processes. */
static bool
nobody_reads(const struct cow__tile *t, struct cow__census *c, holders_fn *nobody)
{
	if (t->map.backing == COW__ANON || t->map.npieces > COW__PIECES_COMPARED ||
	    t->map.overlay == COW__OVERLAY_LASTS ||
	    (t->map.overlay && t->own.bound) || cow__tile_is_punched(t))
		return false;
	if (!t->map.npieces)
		return t->own.refs == 1 && nobody(t, c);
	for (uint32_t i = 0; i < t->map.npieces; i++) {
		const struct cow__tile *pages = t->map.pieces[i].pages;
		uint32_t mine = 0;

		for (uint32_t k = 0; k < t->map.npieces; k++)
			mine += t->map.pieces[k].pages == pages;
		if (pages->own.refs != mine || shown_twice(t, i) || !nobody(pages, c))
			return false;
	}
	return true;
}

bool
cow__exclusive(const struct cow__tile *t, struct cow__census *c)
{
	return nobody_reads(t, c, cow__holders_alone);
}

bool
cow__unread(const struct cow__tile *t, struct cow__census *c)
{
	return nobody_reads(t, c, cow__holders_unread);
}

/* Is all of [start, end) in one of the parts that are private? */
static bool
is_kept(const struct cow__tile *t, uintptr_t start, uintptr_t end)
{
	for (uint32_t i = 0; i < t->map.nkept; i++)
		if (t->map.kept[i].start <= start && end <= t->map.kept[i].end)
			return true;
	return false;
}

bool
cow__exclusive_where_shared(const struct cow__tile *t, struct cow__census *c)
{
	uintptr_t at[COW__PIECES_COMPARED + 1] = { cow__tile_start(t) };

	if (!t->map.nkept || !t->map.npieces || t->map.npieces > COW__PIECES_COMPARED ||
	    t->map.overlay || cow__tile_is_punched(t))
		return false;
	for (uint32_t i = 0; i < t->map.npieces; i++)
		at[i + 1] = at[i] + t->map.pieces[i].bytes;
	for (uint32_t i = 0; i < t->map.npieces; i++) {
		const struct cow__tile *pages = t->map.pieces[i].pages;
		uint32_t mine = 0;

		if (is_kept(t, at[i], at[i + 1]))
			continue;
		for (uint32_t k = 0; k < t->map.npieces; k++)
			mine += t->map.pieces[k].pages == pages &&
			        !is_kept(t, at[k], at[k + 1]);
		if (pages->own.refs != mine || shown_twice(t, i) ||
		    !cow__holders_alone(pages, c))
			return false;
	}
	return true;
}

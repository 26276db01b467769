/* SPDX-License-Identifier: MIT */
/*
 * Free memory that becomes bare: see the header.
 */
#include "core/memory/bare.h"
#include "core/memory/segment_ref.h"
#include "memfd/map.h"

void
cow__bare_make(struct cow__tile *rest, struct cow__segment *s)
{
	if (!rest || rest->kind != COW__FREE || rest->own.segment != s ||
	    rest->map.backing == COW__NONE ||
	    (s && cow__tile_heat(rest) != COW__COLD &&
	     cow__map_punch(cow__tile_start(rest), rest->bytes) < 0) ||
	    cow__map_none(cow__tile_start(rest), rest->bytes) < 0)
		return; /* it stays, then */
	cow__tile_unlist(rest);
	cow__tile_change_begin(rest);
	rest->map.backing = COW__NONE;
	if (s)
		cow__segment_unref(s);
	rest->own.segment = NULL;
	rest->own.freed_at = 0;
	rest->own.hollow = 0;
	cow__tile_change_end(rest);
	(void)cow__tile_put(rest);
}

void
cow__bare_put(struct cow__tile *t)
{
	struct cow__tile *rest = cow__tile_put(t)->next;

	if (rest && rest->kind == COW__FREE && rest->map.backing == COW__ANON &&
	    cow__tile_heat(rest) == COW__COLD)
		cow__bare_make(rest, NULL);
}

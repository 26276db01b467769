/* SPDX-License-Identifier: MIT */
/*
 * What may happen to a range of memory: see the header.
 */
#include "core/memory/can.h"
#include "core/memory/segment_ref.h"
#include "core/policy/constants.h"

#define SHARED (1u << COW__IS_SHARED)
#define FROZEN (1u << COW__IS_FROZEN)
#define PARTLY (1u << COW__IS_PARTLY)
#define ANON (1u << COW__IS_ANON)
#define PRIVATE (FROZEN | PARTLY)
#define FILED (SHARED | PRIVATE)
#define LIVE (FILED | ANON)

/* What the program did to the mapping, so that other pages can't take its place unseen. */
#define CHANGED (COW__IF_NOTED | COW__IF_OVERLAID)
#define TOUCHED (CHANGED | COW__IF_SLOW | COW__IF_BOUND)
/* Others work on the pages, so that these must stay the same ones. */
#define WORKED_ON (COW__IF_PINNED | COW__IF_COMMON)
#define OTHER_PAGES (TOUCHED | WORKED_ON | COW__IF_PUNCHING | COW__IF_SCATTERED)

static const struct {
	uint32_t from, refused;
} rules[COW__EVENTS] = {
	[COW__TO_FREEZE] = { SHARED | PARTLY, WORKED_ON },
	[COW__TO_VIEW] = { FILED, CHANGED | WORKED_ON },
	[COW__TO_THAW] = { PRIVATE, 0 },
	[COW__TO_THAW_MANY] = { FROZEN, COW__IF_NOTED | COW__IF_PIECED | COW__IF_READ },
	[COW__TO_AHEAD] = { PRIVATE, COW__IF_NOTED },
	[COW__TO_REWRITE] = { PRIVATE, OTHER_PAGES },
	[COW__TO_FORWARD] = { PRIVATE, OTHER_PAGES | COW__IF_BUSY },
	[COW__TO_COPY_OVER] = { FILED, CHANGED | WORKED_ON | COW__IF_NO_BLOCK | COW__IF_STORAGE },
	[COW__TO_COPY_PART] = { FILED, CHANGED | COW__IF_SLOW | COW__IF_BUSY | COW__IF_BLOCK },
	[COW__TO_SEAL] = { SHARED | FROZEN, TOUCHED | COW__IF_PUNCHING | COW__IF_LAZY },
	[COW__TO_ALIAS] = { LIVE, TOUCHED | COW__IF_PINNED | COW__IF_LAZY | COW__IF_MAPPING },
	[COW__TO_JOIN] = { ANON, TOUCHED | WORKED_ON | COW__IF_BUSY | COW__IF_PIECED |
	                                 COW__IF_READ | COW__IF_NO_BLOCK },
	[COW__TO_CUT] = { SHARED | ANON, COW__IF_SLOW | COW__IF_PINNED | COW__IF_PIECED | COW__IF_READ |
	                                         COW__IF_FOREIGN },
	[COW__TO_CLOSE_GAP] = { SHARED, COW__IF_NOTED | COW__IF_SLOW | COW__IF_BOUND | COW__IF_PINNED |
	                                        COW__IF_BUSY | COW__IF_PIECED | COW__IF_MAPPING },
	[COW__TO_EMPTY] = { PRIVATE, CHANGED | COW__IF_BUSY },
	[COW__TO_FILL] = { LIVE, COW__IF_BUSY },
};

enum cow__state
cow__state(const struct cow__tile *t)
{
	switch ((enum cow__kind)t->kind) {
	case COW__FREE:
		return (enum cow__state)(COW__IS_BARE + cow__tile_heat(t));
	case COW__LIVE:
		break;
	case COW__LIMBO:
		return COW__IS_LIMBO;
	case COW__INNER:
		return COW__IS_INNER;
	case COW__LOST:
		return COW__IS_LOST;
	}
	if (t->map.backing == COW__SHARED)
		return COW__IS_SHARED;
	if (t->map.backing == COW__PRIVATE)
		return t->map.nkept ? COW__IS_PARTLY : COW__IS_FROZEN;
	return COW__IS_ANON;
}

uint32_t
cow__obstacles(const struct cow__tile *t)
{
	bool foreign = t->own.segment && !t->own.segment->owner;

	return (uint32_t)((t->map.attributes ? COW__IF_NOTED : 0) |
	                  (t->map.overlay ? COW__IF_OVERLAID : 0) |
	                  (t->map.slow ? COW__IF_SLOW : 0) |
	                  (t->own.bound ? COW__IF_BOUND : 0) |
	                  (cow__tile_is_pinned(t) ? COW__IF_PINNED : 0) |
	                  (cow__tile_is_common(t) ? COW__IF_COMMON : 0) |
	                  (t->map.lazy ? COW__IF_LAZY : 0) |
	                  (t->work ? COW__IF_BUSY : 0) |
	                  (cow__tile_is_punched(t) ? COW__IF_PUNCHING : 0) |
	                  (t->map.npieces ? COW__IF_PIECED : 0) |
	                  (t->map.npieces > COW__PIECES_MOST ? COW__IF_SCATTERED : 0) |
	                  (t->own.refs > 1 ? COW__IF_READ : 0) |
	                  (foreign ? COW__IF_FOREIGN : 0) |
	                  (cow__tile_is_block(t) ? COW__IF_BLOCK : COW__IF_NO_BLOCK) |
	                  (cow__tile_is_mapping(t) ? COW__IF_MAPPING : 0) |
	                  (t->map.allocation ? COW__IF_STORAGE : 0));
}

bool
cow__can(const struct cow__tile *t, enum cow__event event)
{
	return (rules[event].from >> cow__state(t) & 1) &&
	       !(rules[event].refused & cow__obstacles(t));
}

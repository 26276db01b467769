/* SPDX-License-Identifier: MIT */
/*
 * Healing forward: see the header.
 *
 * A move has one target of up to 32 MiB, or of a sixteenth of a larger block, which its chunks
 * fill one after the other. So they are neighbours in the new file, and few mappings.
 */
#include "core/cow/forward.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/exclusive.h"
#include "core/cow/part.h"
#include "core/cow/target.h"
#include "core/memory/apart.h"
#include "core/memory/can.h"
#include "core/memory/extent.h"
#include "core/memory/quiet_window.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/pins.h"
#include "memfd/wait.h"
#include "quiet/quiet.h"

static struct {
	uintptr_t at, end;        /* what is left to move; at == end: nothing */
	struct cow__target to;    /* for the run that began at `from` */
	uintptr_t from;
	unsigned vain;
} move;
static uintptr_t cursor; /* where the next look begins */
static COW_FORK_DATA uint64_t look_at;  /* ... and when */
static COW_FORK_DATA uint64_t held_since; /* forks put it off since then; 0: they don't */
static COW_FORK_DATA uint64_t fork_at;  /* not before then does a fork move memory */

static bool
can_move(const struct cow__tile *t)
{
	return t->bytes >= COW__HUGE && cow__can(t, COW__TO_FORWARD);
}

/* Was enough of [at, end) copied? */
static bool
is_chunk_dense(uintptr_t at, uintptr_t end, bool left)
{
	size_t most = end - at;
	size_t enough = cow__max(left ? most / COW__FORWARD_LEFT_SHARE
	                              : most - most / COW__FORWARD_HELD_SHARE,
	                         1);

	return cow__made_bytes(at, end, enough) >= enough;
}

static uintptr_t
chunk_end(const struct cow__tile *t, uintptr_t at)
{
	return cow__min(cow__round_down(at, COW__HUGE) + COW__HUGE, cow__tile_end(t));
}

/* The first run of dense chunks of the tile, from *at on. */
static uintptr_t
find_run(const struct cow__tile *t, uintptr_t *at, bool left)
{
	size_t most = cow__max(COW__FORWARD_RUN_LEAST,
	                       cow__round_up(t->bytes / COW__FORWARD_RUNS, COW__HUGE));
	struct cow__span part;
	uintptr_t end, start;

	while (cow__private_part(t, *at, &part)) {
		start = cow__max(*at, part.start);
		if (start != cow__tile_start(t))
			start = cow__round_up(start, COW__HUGE);
		for (end = start; end < part.end && end - start < most;) {
			uintptr_t next = cow__min(chunk_end(t, end), part.end);

			if ((next % COW__HUGE && next != cow__tile_end(t)) ||
			    !is_chunk_dense(end, next, left))
				break;
			end = next;
		}
		*at = start;
		if (end > start)
			return end;
		*at = chunk_end(t, start);
	}
	return 0;
}

/* Nobody needs the target any more, besides those who show parts of it. */
static void
end_move(void)
{
	struct cow__tile *pages = move.to.piece.pages;

	if (!pages) /* each fork ends here, and a write would copy a page */
		return;
	move.at = move.end = 0;
	move.to.piece.pages = NULL;
	pages->own.open--;
	cow__extent_unref_pages(pages);
}

void
cow__forward_stop(void)
{
	end_move();
	look_at = cow__now() + COW__FORWARD_HELD_NS;
}

/* Takes new pages for the run. The move has the only reference on them. */
static bool
begin_move(uintptr_t start, uintptr_t end)
{
	struct cow__target to = { .made = false };

	if (cow__target_new(end - start, true, &to) < 0)
		return false;
	cow__extent_detach(to.piece.pages);
	to.piece.pages->own.open++;
	to.made = false;
	move.to = to;
	move.from = move.at = start;
	move.end = end;
	move.vain = 0;
	return true;
}

/* Looks through one tile that may have something to move, beginning behind the last one.
 * `zeroed`: only such tiles. True: a move has begun. */
static bool
find_move(bool zeroed)
{
	struct cow__census c = { .asked = 0 };
	struct cow__tile *t = cursor ? cow__tile_find(cursor) : NULL;
	uintptr_t at, end;

	for (t = t ? t : cow__tile_first(); t; t = t->next) {
		if (!can_move(t) || (zeroed && !t->map.zeroed) || cow__exclusive(t, &c))
			continue;
		at = cow__max(cursor, cow__tile_start(t));
		end = at < cow__tile_end(t) ? find_run(t, &at, cow__unread(t, &c)) : 0;
		cursor = end ? end : cow__tile_end(t);
		if (end && begin_move(at, end))
			return true;
		if (end)
			break;
	}
	cursor = 0;
	return false;
}

/* Moves the chunk [move.at, end). In a quiet moment. */
static int
move_chunk(struct cow__tile *t, uintptr_t end)
{
	uintptr_t start = move.at;
	struct cow__target to = move.to;
	size_t bytes = end - start;
	int r;

	to.piece.offset = start - move.from;
	to.piece.bytes = bytes;
	to.at = move.to.at + to.piece.offset;
	memcpy((void *)to.at, (const void *)start,
	       cow__min(bytes, cow__tile_start(t) + cow__extent_usable(t) - start));
	r = cow__target_show(t, start, end, &to);
	if (r < 0)
		return r;
	if (t->map.rewritten)
		t->map.rewritten->keep_ns = 0; /* its old pages are of no use here */
	cow__stat_add(bytes_forwarded, bytes);
	return 0;
}

/* The tile of the run, if it still is what it was. */
static struct cow__tile *
tile_of_move(uintptr_t *ret_end)
{
	struct cow__tile *t = cow__tile_find(move.at);
	struct cow__span part;

	if (!t || !can_move(t) || !cow__private_part(t, move.at, &part) ||
	    part.start > move.at)
		return NULL;
	*ret_end = cow__min(chunk_end(t, move.at), move.end);
	return part.end >= *ret_end ? t : NULL;
}

/* Makes the next chunk's pages huge, while the program runs. */
static void
prepare_chunk(uintptr_t end)
{
	uintptr_t at = move.to.at + (move.at - move.from);

	cow__commit_at(at, at + (end - move.at));
}

/* One chunk. False: the move has ended. */
static bool
move_next_chunk(void)
{
	struct cow__park_range w;
	struct cow__tile *t;
	uintptr_t end;
	int r = 0;

	t = tile_of_move(&end);
	if (!t)
		return false;
	prepare_chunk(end);
	if (!cow__engine_quiet(0))
		return ++move.vain < COW__FORWARD_VAIN_MOST;
	move.vain = 0;
	if (cow__pins_memory())
		r = -EBUSY;
	else if (!cow__quiet_written(move.at, end, &w))
		r = move_chunk(t, end);
	cow__quiet_end();
	/* Entries at this address, too, would count twice in RSS. */
	(void)cow__map_zap(move.to.at + (move.at - move.from), end - move.at);
	move.at = end;
	return r == 0 && move.at < move.end;
}

void
cow__forward_before_fork(void)
{
	uint64_t began = cow__now(), now, most = 0;
	uint32_t nothing = 0;
	bool found;

	cow__forward_stop();
	if (!held_since)
		held_since = began;
	if (!cow__engine.frozen || !cow__engine.heal_percent || began < fork_at ||
	    cow__elapsed(held_since, began) < COW__FORWARD_OFTEN_NS)
		return;
	found = find_move(true);
	if (found)
		most = cow__max(COW__FORWARD_FORK_NS, cow__tile_find(move.at)->bytes / MIB *
		                                              COW__FORWARD_FORK_NS_GIB / 1024);
	while (found && move_next_chunk() && cow__elapsed(began, cow__now()) < most)
		if (move.vain) {
			if (move.vain == COW__FORWARD_FORK_TRIES)
				break;
			cow__wait(&nothing, 0, COW__FORWARD_FORK_LOOK_NS);
		}
	end_move();
	now = cow__now();
	fork_at = now + COW__FORWARD_FORK_REST * cow__elapsed(began, now) +
	          (found ? 0 : COW__FORWARD_OFTEN_NS);
}

uint64_t
cow__forward_job(uint64_t now)
{
	static uint64_t look_ns = COW__FORWARD_LOOK_NS;

	if (!cow__engine.frozen || !cow__engine.heal_percent) {
		end_move();
		return UINT64_MAX;
	}
	if (move.at < move.end) {
		if (!move_next_chunk())
			end_move();
		else if (move.vain)
			return COW__FORWARD_BUSY_NS;
		return COW__FORWARD_SLICE_NS / 10;
	}
	if (now < look_at)
		return look_at - now;
	held_since = 0;
	if (find_move(false)) {
		look_ns = COW__FORWARD_LOOK_NS;
		return 0;
	}
	look_at = cow__now() + look_ns;
	look_ns = cow__min(2 * look_ns, COW__FORWARD_LOOK_MOST_NS);
	return look_ns / 2;
}

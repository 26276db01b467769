/* SPDX-License-Identifier: MIT */
/*
 * Committing fresh memory ahead of the program, in huge pages. See the header.
 */
#include "core/memory/commit.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/apart.h"
#include "core/memory/extent.h"
#include "core/memory/fill_history.h"
#include "core/memory/helper.h"
#include "core/memory/mend.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/wait.h"

#define LOOK_NS 40000u         /* while the program fills memory */
#define LOOK_MOST_NS 10000000u /* ... and does not get on */
#define AHEAD_LEAST (2 * MIB)   /* without a helper ... */
#define AHEAD_HELPED (4 * MIB)  /* ... and with one: it needs time to react */
#define HELPER_PAYS (16 * MIB)  /* missing bytes that are worth a thread */
#define ONCE (4 * GIB)          /* the most in one call of the program */
#define BATCH COW__APART_MOST   /* committed in one go, without the lock */
/* A chunk that was filled before it was collapsed looks untouched, since the collapse
 * takes it out of the page table. Up to so many may be in a row. */
#define PASSED (BATCH / COW__HUGE)
#define PATIENCE 16
#define YOUTH_NS 500000000u     /* no progress for so long: no longer young */
/* Each look reads pagemap. A program may have thousands of blocks that it never fills. */
#define YOUNG_MOST 32
#define LOOKS 8 /* in one call of the program */

static struct cow__tile *young, *oldest; /* a list, by their last progress */
static unsigned nyoung;
static size_t ahead;         /* committed, not known to be touched; all tiles */
static size_t touched_total; /* of live tiles */
static size_t touched_most;  /* ... at any time so far */

static size_t
whole_chunks(const struct cow__tile *t)
{
	uintptr_t end = cow__max(cow__round_down(cow__tile_end(t), COW__HUGE), cow__mend_origin(t));

	return end - cow__mend_origin(t);
}

/* How much more may be committed for an extent of `bytes` bytes. Small pages
 * cost more than to commit all at once. So does a helper that comes after the
 * writer. */
static size_t
room(bool helped, size_t bytes)
{
	size_t most = helped ? AHEAD_HELPED : AHEAD_LEAST;

	most += touched_total / cow__fill_history_share(bytes);
	return most > ahead ? most - ahead : 0;
}

/* A program that fills extents of this size gets back at once what it had touched before:
 * so much that with all that is live it has no more than then. */
static size_t
room_again(const struct cow__tile *t)
{
	size_t used = cow__engine.live_bytes - t->bytes;

	if (!cow__fill_history_fills(t->bytes) || used >= touched_most)
		return 0;
	return touched_most - used;
}

static void
touched_more(size_t bytes)
{
	touched_total += bytes;
	touched_most = cow__max(touched_most, touched_total);
}

static void
young_add(struct cow__tile *t)
{
	t->young = true;
	t->list_prev = NULL;
	t->list_next = young;
	if (young)
		young->list_prev = t;
	else
		oldest = t;
	young = t;
	nyoung++;
}

static void
take_out(struct cow__tile *t)
{
	if (t->list_prev)
		t->list_prev->list_next = t->list_next;
	else
		young = t->list_next;
	if (t->list_next)
		t->list_next->list_prev = t->list_prev;
	else
		oldest = t->list_prev;
	t->list_prev = t->list_next = NULL;
	t->young = false;
	nyoung--;
}

static void
young_remove(struct cow__tile *t)
{
	if (!t->young)
		return;
	take_out(t);
	ahead -= t->committed - t->touched;
	/* Nobody could touch what is owed. What was warm says nothing. */
	if (!t->owed)
		cow__fill_history_learn(t->bytes, t->touched - t->warm,
		                        t->committed - t->touched);
	t->committed = t->touched;
}

/* The tile is no longer young. If it has small pages, the helper mends them. */
static void
grown_up(struct cow__tile *t)
{
	bool mend = t->missed && t->segment && cow__engine.use_helper;

	young_remove(t);
	if (mend)
		cow__mend_later(t);
}

/* How far has the program filled the tile? Returns the chunks that are new, or -errno. */
static int
advance(struct cow__tile *t)
{
	int n = cow__pagemap_touched(cow__mend_origin(t) + t->touched, COW__HUGE,
	                             (whole_chunks(t) - t->touched) / COW__HUGE, PASSED);
	size_t reached;

	if (n <= 0)
		return n;
	reached = t->touched + (size_t)n * COW__HUGE;
	ahead -= cow__min(reached, t->committed) - t->touched;
	touched_more(reached - t->touched);
	t->touched = reached;
	if (t->committed < reached) {
		t->missed += reached - t->committed;
		t->committed = reached;
	}
	return n;
}

/* True if the program got on since the last look. */
static bool
look(struct cow__tile *t, uint64_t now)
{
	int n = advance(t);

	if (n < 0) {
		cow__fallback(COW_FALLBACK_PAGEMAP);
		young_remove(t);
		return false;
	}
	if (n > 0) {
		t->progress_at = now;
		take_out(t);
		young_add(t);
	}
	if (t->touched >= whole_chunks(t) || cow__elapsed(t->progress_at, now) > YOUTH_NS)
		grown_up(t);
	return n > 0;
}

static void
refused(struct cow__tile *t, int error)
{
	/* A shortage passes. Any other error is how this kernel is. */
	if (error != -ENOMEM && error != -EAGAIN && error != -EBUSY)
		cow__engine.no_collapse = true;
	cow__fallback(COW_FALLBACK_COLLAPSE);
	young_remove(t);
}

/* One less is young: the one that got on the longest ago. What is ahead of it would be
 * forgotten and committed again elsewhere, so tiles with anything ahead stay. So does the
 * newest, which may get something ahead. */
static void
retire(void)
{
	struct cow__tile *t = oldest;

	while (t != young && (t->busy || t->committed != t->touched))
		t = t->list_prev;
	if (t != young)
		grown_up(t);
}

/* Makes a tile young that has pages up to `there`. The program touched them, or they were
 * warm: that gives no credit. */
static void
begin_at(struct cow__tile *t, size_t there, bool warm)
{
	uintptr_t at = cow__round_down(cow__tile_start(t) + there, COW__HUGE);

	t->committed = t->touched = at > cow__mend_origin(t) ? at - cow__mend_origin(t) : 0;
	t->warm = warm ? t->touched : 0;
	touched_more(t->touched - t->warm);
	t->progress_at = cow__now();
	young_add(t);
	if (nyoung > YOUNG_MOST)
		retire();
}

/* Those that got on last, and the one that got on the longest ago. */
static void
look_at_some(uint64_t now)
{
	struct cow__tile *t = young, *next;

	for (int looks = 1; t && looks < LOOKS; t = next, looks++) {
		next = t->list_next;
		if (!t->busy)
			(void)look(t, now);
	}
	if (oldest && !oldest->busy)
		(void)look(oldest, now);
}

void
cow__commit_fresh(struct cow__tile *t, size_t there)
{
	uint64_t now = cow__now();
	size_t rest, want;

	if (!cow__commits() || cow__engine.placed)
		return;
	look_at_some(now);
	begin_at(t, there, true);
	rest = whole_chunks(t) - t->committed;
	want = cow__min(rest, cow__max(room(false, t->bytes), room_again(t)));
	want = cow__round_down(cow__min(want, ONCE), COW__HUGE);
	if (want) {
		t->busy = t->owed = true;
		t->committed += want;
		ahead += want;
	} else if (rest >= HELPER_PAYS) {
		cow__helper_want(true);
	}
}

void
cow__commit_unlock(struct cow__tile *t)
{
	size_t want, done;
	uintptr_t at;
	int r;

	if (!t || !t->owed) {
		cow__engine_unlock();
		return;
	}
	want = t->committed - t->touched;
	at = cow__mend_origin(t) + t->touched;
	cow__engine_unlock();
	r = cow__apart_collapse(t, at, want, &done);
	cow__engine_lock();
	cow__stat_add(bytes_collapsed, done);
	if (t->young) {
		t->missed += want - done;
		if (r < 0)
			refused(t, r);
		else if (whole_chunks(t) - t->committed + want - done >= HELPER_PAYS)
			cow__helper_want(true);
	}
	t->busy = t->owed = false;
	if (t->doomed)
		cow__extent_free(t);
	cow__engine_unlock();
}

void
cow__commit_from(struct cow__tile *t, size_t there)
{
	if (!cow__commits() || cow__engine.placed)
		return;
	begin_at(t, there, false);
	if (t->bytes - there >= HELPER_PAYS)
		cow__helper_want(true);
}

size_t
cow__commit_reached(struct cow__tile *t)
{
	if (!t->young || advance(t) < 0 || t->touched >= whole_chunks(t))
		return t->bytes;
	return cow__mend_origin(t) - cow__tile_start(t) + t->committed;
}

void
cow__commit_recycled(struct cow__tile *t)
{
	if (!cow__commits() || !cow__engine.use_helper)
		return;
	t->touched = whole_chunks(t);
	touched_more(t->touched);
	cow__mend_later(t);
	cow__helper_want(false);
}

static uintptr_t unit_ahead; /* the last unit committed, not seen touched yet; 0: none */
static unsigned passed_over; /* units since then */

void
cow__commit_unit(uintptr_t start, size_t bytes)
{
	size_t rest = COW__HUGE % bytes, done = 0;
	int r;

	if (!cow__commits() || cow__engine.placed || rest > COW__HUGE / 16)
		return;
	/* One at a time: when the program asks for the next unit, this one is
	 * used up. If it is still not touched PATIENCE units later, it was
	 * committed in vain. */
	if (unit_ahead && cow__pagemap_touched_page(unit_ahead) <= 0) {
		if (++passed_over < PATIENCE)
			return;
		cow__fill_history_learn(bytes, 0, COW__HUGE);
	}
	if (unit_ahead)
		ahead -= COW__HUGE;
	unit_ahead = 0;
	passed_over = 0;
	if (room(false, bytes) < COW__HUGE)
		return;
	r = cow__map_collapse(start, COW__HUGE, &done);
	(void)cow__map_zap(start, COW__HUGE);
	cow__stat_add(bytes_collapsed, done);
	if (r < 0) {
		cow__fallback(COW_FALLBACK_COLLAPSE);
		return;
	}
	unit_ahead = start;
	ahead += COW__HUGE;
}

void
cow__commit_forget(struct cow__tile *t)
{
	t->small |= t->mending || t->missed;
	young_remove(t);
	cow__mend_end(t);
	touched_total -= t->touched - t->warm;
	t->touched = t->committed = t->warm = 0;
}

/* What is ahead of it may be filled, or was, without a further look: it is no waste. */
static void
drop_ahead(struct cow__tile *t)
{
	ahead -= t->committed - t->touched;
	t->committed = t->touched;
}

void
cow__commit_forget_young(struct cow__tile *t)
{
	if (t->young) {
		(void)advance(t);
		drop_ahead(t);
	}
	young_remove(t);
	cow__mend_end(t);
}

void
cow__commit_frozen(struct cow__tile *t)
{
	if (!t->young)
		return;
	drop_ahead(t); /* its page table may be gone */
	grown_up(t);
}

static void
commit_batch(struct cow__tile *t, size_t bytes)
{
	size_t from = t->committed, done;
	int r;

	t->committed += bytes;
	ahead += bytes;
	r = cow__apart_remake(t, cow__mend_origin(t) + from, bytes, &done);
	t->missed += bytes - done;
	if (r < 0 && t->young)
		refused(t, r);
	if (t->doomed)
		cow__extent_free(t);
}

/* One round over young tiles. Unlocks the engine while it collapses. True if anything
 * moved. */
static bool
commit_step(uint64_t now)
{
	struct cow__tile *t, *next;
	bool moved = false;

	for (t = young; t; t = next) {
		size_t full = whole_chunks(t), want, most;

		next = t->list_next;
		if (t->busy)
			continue;
		moved |= look(t, now);
		if (!t->young)
			continue;
		/* The program may be writing the first chunk that is missing.
		 * Leave that one to it and go on behind. */
		if (t->committed == t->touched) {
			int n = cow__pagemap_touched_page(cow__mend_origin(t) + t->committed);

			if (n <= 0)
				continue;
			t->committed += COW__HUGE;
			t->missed += COW__HUGE;
			ahead += COW__HUGE;
		}
		if (cow__engine.placed)
			continue;
		/* Not much more of one block than the program has filled so
		 * far. */
		most = t->warm + AHEAD_HELPED + 2 * (t->touched - t->warm);
		if (t->committed >= most)
			continue;
		want = cow__min(full - t->committed, room(true, t->bytes));
		want = cow__min(want, cow__min(most - t->committed, BATCH));
		want = cow__round_down(want, COW__HUGE);
		if (want == 0)
			continue;
		commit_batch(t, want);
		return true; /* the list may have changed */
	}
	return moved;
}

void
cow__commit_child(void)
{
	while (young)
		young_remove(young);
	cow__mend_child();
	unit_ahead = 0;
	ahead = 0;
	touched_most = touched_total; /* so much it has itself */
}

uint64_t
cow__commit_job(uint64_t now)
{
	static uint64_t idle;

	if (!young && !cow__mend_pending())
		return UINT64_MAX;
	if (commit_step(now) || cow__mend_step(now))
		idle = LOOK_NS / 2;
	if (idle < LOOK_MOST_NS)
		idle *= 2;
	if (idle < LOOK_NS)
		idle = LOOK_NS;
	return idle;
}

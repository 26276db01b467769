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
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/wait.h"

#define LOOK_NS 40000u         /* while the program fills memory */
#define LOOK_MOST_NS 10000000u /* ... and does not get on */
#define AHEAD_LEAST (2 * MIB)   /* without a helper ... */
#define AHEAD_HELPED (4 * MIB)  /* ... and with one: it needs time to react */
#define HELPER_PAYS (16 * MIB)  /* missing bytes that are worth a thread */
#define ONCE (256 * MIB)        /* the most in one call of the program */
#define BATCH (8 * MIB)         /* committed in one go, without the lock */
/* A chunk that was filled before it was collapsed looks untouched, since the collapse
 * takes it out of the page table. Up to so many may be in a row. */
#define PASSED (BATCH / COW__HUGE)
#define PATIENCE 16
#define MEND_NS 100000000u /* mending waits: the program may clone the block at once */
#define YOUTH_NS 500000000u     /* no progress for so long: no longer young */

static struct cow__tile *young;
static size_t ahead;         /* committed, not known to be touched; all tiles */
static size_t touched_total; /* of live tiles */
static struct cow__tile *bench; /* addresses to collapse at */

/* `touched` and `committed` of a tile count from its first 2 MiB boundary on. */
static uintptr_t
origin(const struct cow__tile *t)
{
	return cow__round_up(cow__tile_start(t), COW__HUGE);
}

static size_t
whole_chunks(const struct cow__tile *t)
{
	uintptr_t end = cow__max(cow__round_down(cow__tile_end(t), COW__HUGE), origin(t));

	return end - origin(t);
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

static void
young_add(struct cow__tile *t)
{
	t->young = true;
	t->list_prev = NULL;
	t->list_next = young;
	if (young)
		young->list_prev = t;
	young = t;
}

static void
young_remove(struct cow__tile *t)
{
	if (!t->young)
		return;
	t->young = false;
	if (!t->mending) {
		ahead -= t->committed - t->touched;
		/* Nobody could touch what is owed. What was warm says nothing. */
		if (!t->owed)
			cow__fill_history_learn(t->bytes, t->touched - t->warm,
			                 t->committed - t->touched);
	}
	t->mending = false;
	t->committed = t->touched;
	if (t->list_prev)
		t->list_prev->list_next = t->list_next;
	else
		young = t->list_next;
	if (t->list_next)
		t->list_next->list_prev = t->list_prev;
	t->list_prev = t->list_next = NULL;
}

static void
mend_later(struct cow__tile *t)
{
	t->missed = 0;
	t->mending = true;
	t->committed = 0; /* how far it is mended */
	t->progress_at = cow__now();
	young_add(t);
}

/* The tile is no longer young. If it has small pages, it stays on the list until
 * the helper has mended them. */
static void
grown_up(struct cow__tile *t)
{
	bool mend = t->missed && t->segment && cow__engine.use_helper;

	young_remove(t);
	if (mend)
		mend_later(t);
}

/* How far has the program filled the tile? True if further than at the last
 * look. */
static bool
look(struct cow__tile *t, uint64_t now)
{
	size_t full = whole_chunks(t), before = t->touched;
	int n;

	n = cow__pagemap_touched(origin(t) + t->touched, COW__HUGE,
	                         (full - t->touched) / COW__HUGE, PASSED);
	if (n < 0) {
		cow__fallback(COW_FALLBACK_PAGEMAP);
		young_remove(t);
		return false;
	}
	if (n > 0) {
		size_t reached = t->touched + (size_t)n * COW__HUGE;

		ahead -= cow__min(reached, t->committed) - t->touched;
		t->touched = reached;
		if (t->committed < reached) {
			t->missed += reached - t->committed;
			t->committed = reached;
		}
		touched_total += reached - before;
		t->progress_at = now;
	}
	if (t->touched >= full || cow__elapsed(t->progress_at, now) > YOUTH_NS)
		grown_up(t);
	return t->touched != before;
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

/* Makes a tile young that has pages up to `there`. The program touched them, or they were
 * warm: that gives no credit. */
static void
begin_at(struct cow__tile *t, size_t there, bool warm)
{
	uintptr_t at = cow__round_down(cow__tile_start(t) + there, COW__HUGE);

	t->committed = t->touched = at > origin(t) ? at - origin(t) : 0;
	t->warm = warm ? t->touched : 0;
	touched_total += t->touched - t->warm;
	t->progress_at = cow__now();
	young_add(t);
}

void
cow__commit_fresh(struct cow__tile *t, size_t there)
{
	uint64_t now = cow__now();
	struct cow__tile *y, *next;
	size_t rest, want;

	if (!cow__commits() || cow__engine.placed)
		return;
	for (y = young; y; y = next) {
		next = y->list_next;
		if (!y->busy && !y->mending)
			(void)look(y, now);
	}
	begin_at(t, there, true);
	rest = whole_chunks(t) - t->committed;
	want = cow__min(rest, room(false, t->bytes));
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
	at = origin(t) + t->touched;
	cow__engine_unlock();
	r = cow__apart_collapse(t, at, want, &done);
	cow__engine_lock();
	cow__stat_add(bytes_collapsed, done);
	if (t->young && !t->mending) {
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
cow__commit_reached(const struct cow__tile *t)
{
	size_t full = whole_chunks(t);
	int n;

	if (!t->young || t->mending)
		return t->bytes;
	n = cow__pagemap_touched(origin(t) + t->touched, COW__HUGE,
	                         (full - t->touched) / COW__HUGE, PASSED);
	if (n < 0 || t->touched + (size_t)n * COW__HUGE >= full)
		return t->bytes;
	return origin(t) - cow__tile_start(t) +
	       cow__max(t->committed, t->touched + (size_t)n * COW__HUGE);
}

void
cow__commit_recycled(struct cow__tile *t)
{
	if (!cow__commits() || !cow__engine.use_helper)
		return;
	t->touched = whole_chunks(t);
	touched_total += t->touched;
	mend_later(t);
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
	touched_total -= t->touched - t->warm;
	t->touched = t->committed = t->warm = 0;
}

void
cow__commit_forget_young(struct cow__tile *t)
{
	young_remove(t);
}

void
cow__commit_frozen(struct cow__tile *t)
{
	if (t->young && !t->mending)
		grown_up(t);
}

bool
cow__commit_pending(void)
{
	return young != NULL;
}

static struct cow__tile *
workbench(void)
{
	if (!bench)
		bench = cow__tile_inner(BATCH, 0, COW__HUGE);
	return bench;
}

/* Collapses at addresses of the engine: the program may have changed the mapping
 * that it sees, or may be using it. Unlocks the engine meanwhile. */
static void
commit_batch(struct cow__tile *t, size_t bytes)
{
	struct cow__tile *b = workbench();
	struct cow__segment *s = t->segment;
	uint64_t offset = cow__segment_offset(origin(t)) + t->committed;
	size_t done = 0;
	int r;

	if (!b)
		return;
	t->busy = true;
	t->committed += bytes;
	if (!t->mending)
		ahead += bytes;
	cow__engine_unlock();
	r = cow__map_shared(cow__tile_start(b), bytes, &s->file, offset, false);
	if (r == 0)
		r = cow__map_collapse(cow__tile_start(b), bytes, &done);
	(void)cow__map_none(cow__tile_start(b), bytes);
	cow__helper_lock();
	t->busy = false;
	cow__stat_add(bytes_collapsed, done);
	if (!t->mending)
		t->missed += bytes - done;
	if (r < 0 && t->young && !t->mending)
		refused(t, r);
	if (t->mending && t->committed >= t->touched)
		young_remove(t);
	if (t->doomed)
		cow__extent_free(t);
}

/* File pages were given back, since copies or layers lie above them. Mending
 * would bring them back. */
static bool
has_holes(const struct cow__tile *t)
{
	return t->shadow || t->npieces;
}

/* Makes the next small pages huge, where seven of eight of them are there.
 * Where the program touched few pages, it keeps few. Unlocks the engine while
 * it looks. */
static void
mend_next(struct cow__tile *t)
{
	uintptr_t at = origin(t) + t->committed;
	size_t most = cow__min(BATCH, t->touched - t->committed), n = 0;

	if (has_holes(t)) {
		t->small = true;
		young_remove(t);
		return;
	}
	t->busy = true;
	cow__engine_unlock();
	while (n < most && cow__map_resident(at + n, COW__HUGE) >=
	                           (int)(COW__HUGE / cow__page / 8 * 7))
		n += COW__HUGE;
	cow__helper_lock();
	t->busy = false;
	if (t->doomed) {
		cow__extent_free(t);
		return;
	}
	if (!t->mending || has_holes(t))
		return;
	if (n) {
		commit_batch(t, n);
		return;
	}
	t->committed += COW__HUGE;
	if (t->committed >= t->touched)
		young_remove(t);
}

bool
cow__commit_step(uint64_t now)
{
	struct cow__tile *t, *next, *mend = NULL;
	bool moved = false;

	for (t = young; t; t = next) {
		size_t full = whole_chunks(t), want, most;

		next = t->list_next;
		if (t->busy)
			continue;
		if (t->mending) {
			if (cow__elapsed(t->progress_at, now) >= MEND_NS)
				mend = t;
			continue;
		}
		moved |= look(t, now);
		if (!t->young || t->mending)
			continue;
		/* The program may be writing the first chunk that is missing.
		 * Leave that one to it and go on behind. */
		if (t->committed == t->touched) {
			int n = cow__pagemap_touched_page(origin(t) + t->committed);

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
	if (!moved && mend)
		mend_next(mend);
	return moved || mend;
}

void
cow__commit_child(void)
{
	while (young)
		young_remove(young);
	bench = NULL;
	unit_ahead = 0;
	ahead = 0;
}

uint64_t
cow__commit_job(uint64_t now)
{
	static uint64_t idle;

	if (!cow__commit_pending())
		return UINT64_MAX;
	if (cow__commit_step(now))
		idle = LOOK_NS / 2;
	if (idle < LOOK_MOST_NS)
		idle *= 2;
	if (idle < LOOK_NS)
		idle = LOOK_NS;
	return idle;
}

/* SPDX-License-Identifier: MIT */
/*
 * Committing fresh memory ahead of the program, in huge pages. See the header.
 */
#include "core/memory/commit.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/apart.h"
#include "core/memory/budget.h"
#include "core/memory/commit_unit.h"
#include "core/memory/ends.h"
#include "core/memory/helper.h"
#include "core/memory/mend.h"
#include "core/memory/progress.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/wait.h"

enum { ADVICE_HUGEPAGE = 14 }; /* of <sys/mman.h>, which belongs to memfd/ */

static struct cow__tile *young, *oldest; /* a list, by their last progress */
static unsigned nyoung;

static void
young_add(struct cow__tile *t)
{
	t->filling.age = COW__AGE_YOUNG;
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
young_unlink(struct cow__tile *t)
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
	t->filling.age = COW__AGE_GROWN;
	nyoung--;
}

static void
young_remove(struct cow__tile *t)
{
	if (t->filling.age != COW__AGE_YOUNG)
		return;
	young_unlink(t);
	cow__budget_ahead_ends(cow__progress_ahead(t));
	/* Nobody could touch what is owed. What was warm says nothing. */
	if (t->work != COW__WORK_OWED)
		cow__budget_learn(t->bytes, t->filling.touched - t->filling.warm, cow__progress_ahead(t));
	t->filling.committed = t->filling.touched;
}

/* The tile is no longer young. If it has small pages, the helper mends them. */
static void
young_ends(struct cow__tile *t)
{
	bool mend = t->filling.missed && t->own.segment && cow__engine.use_helper;

	young_remove(t);
	if (mend)
		cow__mend_later(t);
}

/* True if the program got on since the last look. */
static bool
look_at_progress(struct cow__tile *t, uint64_t now)
{
	int n = cow__progress_look(t);

	if (n < 0) {
		cow__fallback(COW_FALLBACK_PAGEMAP);
		young_remove(t);
		return false;
	}
	if (n > 0) {
		t->filling.progress_at = now;
		young_unlink(t);
		young_add(t);
	}
	if (t->filling.touched >= cow__progress_chunks(t) ||
	    cow__elapsed(t->filling.progress_at, now) > COW__COMMIT_YOUTH_NS)
		young_ends(t);
	return n > 0;
}

static void
commit_refused(struct cow__tile *t, int error)
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
young_drop_oldest(void)
{
	struct cow__tile *t = oldest;

	while (t != young && (t->work || cow__progress_ahead(t)))
		t = t->list_prev;
	if (t != young)
		young_ends(t);
}

/* Makes a tile young that has pages up to `there`. The program touched them, or they were
 * warm: that gives no credit. */
static void
young_begin_at(struct cow__tile *t, size_t there, bool warm)
{
	uintptr_t at = cow__round_down(cow__tile_start(t) + there, COW__HUGE);

	t->filling.touched = at > cow__mend_origin(t) ? at - cow__mend_origin(t) : 0;
	t->filling.committed = t->filling.touched;
	t->filling.warm = warm ? t->filling.touched : 0;
	cow__budget_touched(t->filling.touched - t->filling.warm);
	t->filling.progress_at = cow__now();
	young_add(t);
	if (nyoung > COW__YOUNG_MOST)
		young_drop_oldest();
}

/* Those that got on last, and the one that got on the longest ago. */
static void
look_at_young(uint64_t now)
{
	struct cow__tile *t = young, *next;

	for (int looks = 1; t && looks < COW__YOUNG_LOOKS; t = next, looks++) {
		next = t->list_next;
		if (!t->work)
			(void)look_at_progress(t, now);
	}
	if (oldest && !oldest->work)
		(void)look_at_progress(oldest, now);
}

/* May huge pages be made ahead of it? For anonymous memory that is advice alone. */
static bool
may_commit(const struct cow__tile *t)
{
	if (cow__without(COMMIT))
		return false;
	return t->own.segment ? cow__commits() && !cow__engine.placed : cow__engine.use_collapse;
}

/* The kernel brings the huge pages when the program writes there. What the program only reads
 * takes none. */
static void
advise_huge(struct cow__tile *t, uintptr_t at, size_t bytes)
{
	cow__budget_ahead(bytes);
	if (cow__map_advise(at, bytes, ADVICE_HUGEPAGE) < 0)
		young_remove(t); /* this kernel has no huge pages */
}

void
cow__commit_fresh(struct cow__tile *t, size_t there)
{
	uint64_t now = cow__now();
	size_t rest, want;

	if (!may_commit(t))
		return;
	look_at_young(now);
	young_begin_at(t, there, true);
	rest = cow__progress_chunks(t) - t->filling.committed;
	want = cow__min(rest, cow__max(cow__budget_room(COW__COMMIT_LEAST, t->bytes),
	                               cow__budget_room_again(t)));
	want = cow__round_down(cow__min(want, COW__COMMIT_ONCE), COW__HUGE);
	if (want && t->own.segment) {
		t->work = COW__WORK_OWED;
		t->filling.committed += want;
		cow__budget_ahead(want);
		return;
	}
	if (want) {
		t->filling.committed += want;
		advise_huge(t, cow__mend_origin(t) + t->filling.committed - want, want);
	}
	if (t->filling.age == COW__AGE_YOUNG &&
	    cow__progress_chunks(t) - t->filling.committed >= COW__COMMIT_HELPER_LEAST)
		cow__helper_want(true);
}

void
cow__commit_owed(struct cow__tile *t)
{
	size_t want, done;
	uintptr_t at;
	int r;

	cow__engine_lock();
	want = t->filling.committed - t->filling.touched;
	at = cow__mend_origin(t) + t->filling.touched;
	cow__engine_unlock();
	r = cow__apart_collapse(t, at, want, &done);
	cow__engine_lock();
	cow__stat_add(bytes_collapsed, done);
	if (t->filling.age == COW__AGE_YOUNG) {
		t->filling.missed += want - done;
		if (r < 0)
			commit_refused(t, r);
		else if (cow__progress_chunks(t) - t->filling.committed + want - done >= COW__COMMIT_HELPER_LEAST)
			cow__helper_want(true);
	}
	cow__tile_work_ends(t);
	if (t->work == COW__WORK_DOOMED)
		cow__extent_free(t);
	cow__engine_unlock();
}

void
cow__commit_from(struct cow__tile *t, size_t there)
{
	if (!cow__commits() || cow__engine.placed)
		return;
	young_begin_at(t, there, false);
	if (t->bytes - there >= COW__COMMIT_HELPER_LEAST)
		cow__helper_want(true);
}

size_t
cow__commit_reached(struct cow__tile *t)
{
	if (t->filling.age != COW__AGE_YOUNG || cow__progress_look(t) < 0 ||
	    t->filling.touched >= cow__progress_chunks(t))
		return t->bytes;
	return cow__mend_origin(t) - cow__tile_start(t) + t->filling.committed;
}

void
cow__commit_recycled(struct cow__tile *t)
{
	if (!cow__commits() || !cow__engine.use_helper)
		return;
	t->filling.touched = cow__progress_chunks(t);
	cow__budget_touched(t->filling.touched);
	cow__mend_later(t);
	cow__helper_want(false);
}

void
cow__commit_forget(struct cow__tile *t)
{
	t->own.small_pages |= t->filling.age == COW__AGE_MENDED || t->filling.missed;
	young_remove(t);
	cow__mend_end(t);
	cow__budget_touched_ends(t->filling.touched - t->filling.warm);
	t->filling.touched = t->filling.committed = t->filling.warm = 0;
}

bool
cow__commit_wait(struct cow__tile **t, uintptr_t at)
{
	uint64_t until = cow__now() + COW__COMMIT_BUSY_MOST_NS;
	uint32_t nothing = 0;

	while (*t && (*t)->kind == COW__LIVE && (*t)->work) {
		if (cow__now() > until)
			return false;
		cow__commit_forget(*t);
		cow__engine_unlock();
		cow__wait(&nothing, 0, COW__COMMIT_BUSY_NS);
		cow__engine_lock();
		*t = cow__tile_find(at);
	}
	return true;
}

/* What is ahead of it may be filled, or was, without a further look: it is no waste. */
static void
drop_ahead(struct cow__tile *t)
{
	cow__budget_ahead_ends(cow__progress_ahead(t));
	t->filling.committed = t->filling.touched;
}

void
cow__commit_forget_young(struct cow__tile *t)
{
	if (t->filling.age == COW__AGE_YOUNG) {
		(void)cow__progress_look(t);
		drop_ahead(t);
	}
	young_remove(t);
	cow__mend_end(t);
}

void
cow__commit_stop(struct cow__tile *t)
{
	if (t->filling.age != COW__AGE_YOUNG)
		return;
	drop_ahead(t); /* its page table may be gone */
	young_ends(t);
}

/* Commits `bytes` bytes from `at` on, which are noted as committed. Unlocks the engine, but
 * for anonymous memory. */
static void
commit_batch(struct cow__tile *t, uintptr_t at, size_t bytes)
{
	size_t done;
	int r;

	if (!t->own.segment) {
		advise_huge(t, at, bytes);
		return;
	}
	cow__budget_ahead(bytes);
	r = cow__apart_remake(t, at, bytes, &done);
	t->filling.missed += bytes - done;
	if (r < 0 && t->filling.age == COW__AGE_YOUNG)
		commit_refused(t, r);
	if (t->work == COW__WORK_DOOMED)
		cow__extent_free(t);
}

/* How much of a tile is committed in one go: not much more than the program has filled. */
static size_t
batch_bytes(const struct cow__tile *t)
{
	size_t most = COW__COMMIT_HELPED + 2 * (t->filling.touched - t->filling.warm);
	size_t committed = t->filling.committed - t->filling.warm, want;

	if (committed >= most)
		return 0;
	want = cow__min(cow__progress_chunks(t) - t->filling.committed,
	                cow__budget_room(COW__COMMIT_HELPED, t->bytes));
	return cow__round_down(cow__min(want, cow__min(most - committed, COW__APART_MOST)), COW__HUGE);
}

/* True: something was committed, and the list may have changed. */
static bool
commit_next(struct cow__tile *t)
{
	size_t want;

	/* The program may be writing the first chunk that is missing. Leave that one to it
	 * and go on behind. */
	if (!cow__progress_ahead(t)) {
		if (t->filling.committed >= cow__progress_chunks(t) ||
		    cow__pagemap_touched_page(cow__mend_origin(t) + t->filling.committed) <= 0)
			return false;
		t->filling.committed += COW__HUGE;
		t->filling.missed += COW__HUGE;
		cow__budget_ahead(COW__HUGE);
	}
	want = may_commit(t) ? batch_bytes(t) : 0;
	if (!want)
		return false;
	t->filling.committed += want;
	commit_batch(t, cow__mend_origin(t) + t->filling.committed - want, want);
	return true;
}

/* One round over young tiles. Unlocks the engine while it collapses. True if anything
 * moved. */
static bool
commit_step(uint64_t now)
{
	struct cow__tile *t, *next;
	bool moved = false;

	for (t = young; t; t = next) {
		next = t->list_next;
		if (t->work)
			continue;
		moved |= look_at_progress(t, now);
		if (t->filling.age == COW__AGE_YOUNG && commit_next(t))
			return true;
	}
	return moved;
}

COW_FORK_CODE void
cow__commit_child(void)
{
	while (young)
		young_remove(young);
	cow__mend_child();
	cow__budget_child();
}

uint64_t
cow__commit_job(uint64_t now)
{
	static uint64_t idle;

	if (!young && !cow__mend_pending())
		return UINT64_MAX;
	if (commit_step(now) || cow__mend_step(now))
		idle = COW__COMMIT_LOOK_NS / 2;
	if (idle < COW__COMMIT_LOOK_MOST_NS)
		idle *= 2;
	if (idle < COW__COMMIT_LOOK_NS)
		idle = COW__COMMIT_LOOK_NS;
	return idle;
}

/* SPDX-License-Identifier: MIT */
/*
 * Mending: see the header.
 */
#include "core/memory/mend.h"
#include "core/base/base.h"
#include "core/memory/apart.h"
#include "core/memory/ends.h"
#include "core/memory/helper.h"
#include "core/memory/resident.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/wait.h"

static struct cow__tile *mended; /* a list */

void
cow__mend_later(struct cow__tile *t)
{
	if (cow__without(MENDING))
		return;
	t->filling.missed = 0;
	t->filling.age = COW__AGE_MENDED;
	t->filling.committed = 0;
	t->filling.progress_at = cow__now();
	t->list_prev = NULL;
	t->list_next = mended;
	if (mended)
		mended->list_prev = t;
	mended = t;
}

void
cow__mend_end(struct cow__tile *t)
{
	if (t->filling.age != COW__AGE_MENDED)
		return;
	t->filling.age = COW__AGE_GROWN;
	t->filling.committed = t->filling.touched;
	if (t->list_prev)
		t->list_prev->list_next = t->list_next;
	else
		mended = t->list_next;
	if (t->list_next)
		t->list_next->list_prev = t->list_prev;
	t->list_prev = t->list_next = NULL;
}

bool
cow__mend_pending(void)
{
	return mended != NULL;
}

COW_FORK_CODE void
cow__mend_child(void)
{
	while (mended)
		cow__mend_end(mended);
	cow__apart_child();
}

/* File pages were given back, since copies or layers lie above them. Mending would bring
 * them back. */
static bool
has_holes(const struct cow__tile *t)
{
	return t->own.shadow || t->map.npieces;
}

/* Of the next bytes, how many are in chunks of which most pages are there?
 * Where the program touched few pages, it keeps few. The engine is not locked. */
static size_t
dense_bytes(uintptr_t at, size_t most)
{
	size_t n = 0;

	while (n < most && cow__map_resident(at + n, COW__HUGE) >=
	                           (int)(COW__HUGE / cow__page / 8 * COW__MEND_EIGHTHS))
		n += COW__HUGE;
	return n;
}

/* Makes the next small pages huge. Unlocks the engine while it looks and works. */
static void
mend_next(struct cow__tile *t)
{
	uintptr_t at = cow__mend_origin(t) + t->filling.committed;
	size_t most = cow__min(COW__APART_MOST, t->filling.touched - t->filling.committed), n, done;

	if (has_holes(t)) {
		t->own.small_pages = true;
		cow__mend_end(t);
		return;
	}
	t->work = COW__WORK_PAGES;
	cow__engine_unlock();
	n = dense_bytes(at, most);
	cow__helper_lock();
	cow__tile_work_ends(t);
	/* It may have ended, and begun anew at another place. */
	if (t->work != COW__WORK_DOOMED && t->filling.age == COW__AGE_MENDED && !has_holes(t) &&
	    at == cow__mend_origin(t) + t->filling.committed &&
	    most <= t->filling.touched - t->filling.committed) {
		t->filling.committed += n ? n : COW__HUGE;
		if (n) { /* what can't be made huge stays small */
			(void)cow__apart_remake(t, at, n, &done);
			cow__resident_later(t, n);
		}
		if (t->filling.age == COW__AGE_MENDED && t->filling.committed >= t->filling.touched)
			cow__mend_end(t);
	}
	if (t->work == COW__WORK_DOOMED)
		cow__extent_free(t);
}

bool
cow__mend_step(uint64_t now)
{
	for (struct cow__tile *t = mended; t; t = t->list_next) {
		if (t->work || cow__elapsed(t->filling.progress_at, now) < COW__MEND_WAIT_NS)
			continue;
		mend_next(t);
		return true;
	}
	return false;
}

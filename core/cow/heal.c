/* SPDX-License-Identifier: MIT */
/*
 * Healing: see the header.
 */
#include "core/cow/heal.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/ahead.h"
#include "core/cow/thaw.h"
#include "core/memory/can.h"
#include "core/memory/helper.h"
#include "core/memory/quiet_window.h"
#include "core/memory/state.h"
#include "core/policy/decide.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/pins.h"
#include "memfd/signals.h"
#include "memfd/wait.h"
#include "quiet/quiet.h"
#include "quiet/stop.h"

static uint64_t ahead_at COW_FORK_DATA;   /* the helper last had chunks ready; 0: never */
static bool left_over COW_FORK_DATA;      /* the last slice passed chunks over */
static bool passed_over COW_FORK_DATA;    /* ... that another one right after it would pass over too */
static uintptr_t cursor COW_FORK_DATA;    /* where the next slice begins */
static uint64_t healed_at COW_FORK_DATA;  /* the last slice that did something */
static uint64_t vain_since COW_FORK_DATA; /* tries have failed since then; 0: the last did not */
static uint64_t due_at COW_FORK_DATA;     /* the next slice by the share */
static uint64_t pinned_at COW_FORK_DATA;  /* when memory was under I/O; 0: it was not */
static uint64_t look_ns = COW__HEAL_LOOK_NS;
static struct cow__credit credit COW_FORK_DATA = COW__CREDIT_FULL;
static uint64_t yields_at COW_FORK_DATA; /* the slice may end early from then on */
static bool stopped COW_FORK_DATA; /* for the last slice */

/* After a freeze, and when a child is gone, nearly all is clean. To map that costs
 * microseconds; once it is written, a fault and a copy for each page. So slices for which
 * threads are stopped map what is clean first, until all was looked at. */
static bool clean_first COW_FORK_DATA;
static uint64_t freezes COW_FORK_DATA; /* so many had been when it was set last */

/* Set when a slice had time for everything and finished without thawing anything: only chunks that
 * the kernel may still write for a parked thread are left, so trying again at once is pointless.
 * That holds until memory is frozen anew, or another tile becomes nobody else's. */
static struct {
	bool known;
	size_t tiles; /* that nobody else holds */
	uint64_t freezes, at;
} rest COW_FORK_DATA;
static bool failed COW_FORK_DATA; /* a step of the last slice */

COW_EXPORT bool
cow__heal_needed(void)
{
	return __atomic_load_n(&cow__engine.frozen, __ATOMIC_RELAXED) != 0;
}

static void
set_park_care(bool yes)
{
	if (yes)
		__atomic_fetch_or(&cow__park_word, COW__PARK_CARE,
		                  __ATOMIC_RELAXED);
	else if (__atomic_load_n(&cow__park_word, __ATOMIC_RELAXED) &
	         COW__PARK_CARE)
		__atomic_fetch_and(&cow__park_word, ~COW__PARK_CARE,
		                   __ATOMIC_RELAXED);
}

/* How long may threads take to stop now? 0: they may not be stopped. */
static uint64_t
may_stop_ns(uint64_t now)
{
	if (!cow__stop_used() || !cow__engine.heal_percent)
		return 0;
	cow__credit_grow(&credit, now, cow__engine.heal_percent);
	return cow__credit_stop_ns(&credit, clean_first);
}

static void
begin_clean_slices(void)
{
	clean_first = true;
	cursor = 0;
}

static void
look_at_freezes(void)
{
	uint64_t n = cow__stat_get(freezes);

	if (n != freezes && cow__stop_used())
		begin_clean_slices();
	freezes = n;
}

static bool
can_thaw(struct cow__tile *t, struct cow__census *c)
{
	return cow__can(t, COW__TO_THAW) && cow__exclusive(t, c);
}

static size_t
count_thawable(void)
{
	struct cow__census c = { .asked = 0 };
	size_t n = 0;

	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		n += can_thaw(t, &c);
	return n;
}

static void
note_rest(bool thawed_nothing)
{
	rest.known = thawed_nothing;
	rest.tiles = thawed_nothing ? count_thawable() : 0;
	rest.freezes = cow__stat_get(freezes);
	rest.at = cow__now();
}

static bool
anything_to_heal(void)
{
	struct cow__census c = { .asked = 0 };
	struct cow__tile *t;
	static bool was_held COW_FORK_DATA;
	bool held = false;

	if (!cow__engine.frozen || !cow__engine.heal_percent ||
	    (pinned_at && cow__now() - pinned_at < COW__HEAL_PINNED_NS))
		return false;
	for (t = cow__tile_first(); t; t = t->next) {
		if (t->kind != COW__LIVE || t->map.backing != COW__PRIVATE)
			continue;
		if (can_thaw(t, &c)) {
			was_held = false;
			return true;
		}
		held = true;
	}
	/* Once for each time that children take hold of the pages. */
	if (held && !was_held)
		cow__fallback(COW_FALLBACK_HELD);
	was_held = held;
	return false;
}

static bool
is_slice_over(uint64_t until)
{
	uint64_t now = cow__now();

	return now >= until || (now >= yields_at && cow__quiet_awaited());
}

/* Thaws `t` from *at on. True: time is up. */
static bool
thaw_in_slice(struct cow__tile *t, uintptr_t *at, uint64_t until, size_t most)
{
	while (*at < cow__tile_end(t)) {
		size_t copied;
		int r = cow__thaw_tile_step(t, at, cow__tile_end(t), most, &copied);

		if (r < 0) {
			failed = true;
			break;
		}
		if (r > 0)
			*(cow__ahead_passed(*at - 1) ? &passed_over : &left_over) = true;
		if (is_slice_over(until))
			return true;
	}
	return false;
}

/* Thaws what was copied ahead. True: time is up. */
static bool
thaw_ahead_chunks(uint64_t until)
{
	struct cow__census c = { .asked = 0 };
	struct cow__span chunk;

	while (cow__ahead_take(&chunk)) {
		struct cow__tile *t = cow__tile_find(chunk.start);
		/* The tile may have ended since, and a shorter one may be there. */
		uintptr_t at = chunk.start, end = t ? cow__min(chunk.end, cow__tile_end(t)) : at;
		uint64_t thawed = cow__stat_get(bytes_thawed);
		size_t copied;

		while (at < end && can_thaw(t, &c) &&
		       cow__thaw_tile_step(t, &at, cow__tile_end(t), 0, &copied) >= 0)
			;
		if (at > chunk.start && cow__stat_get(bytes_thawed) == thawed)
			cow__ahead_pass(chunk.start);
		if (is_slice_over(until))
			return true;
	}
	return false;
}

/* In a quiet moment. Chunks with more than `most` copied bytes are left for
 * cow__ahead_prepare(). True: there may be more to do. */
static bool
run_slice(uint64_t until, size_t most)
{
	struct cow__census c = { .asked = 0 };
	uintptr_t at = cursor;
	struct cow__tile *t = at ? cow__tile_find(at) : NULL, *last;

	if (most && thaw_ahead_chunks(until))
		return true;
	for (t = t ? t : cow__tile_first(); t; t = t->next) {
		if (!can_thaw(t, &c))
			continue;
		last = at <= cow__tile_start(t) ? cow__thaw_clean_tiles(t, &c) : NULL;
		if (last) {
			t = last;
			at = cow__tile_end(t);
			if (!is_slice_over(until))
				continue;
			cursor = at;
			return true;
		}
		at = cow__max(at, cow__tile_start(t));
		if (thaw_in_slice(t, &at, until, most)) {
			cursor = at;
			return true;
		}
	}
	at = cursor;
	cursor = 0;
	return at != 0; /* what lies before it was not looked at */
}

/* Does the helper copy ahead? It may be busy with something else. */
static bool
helper_copies_ahead(uint64_t now)
{
	return cow__ahead_usable() && ahead_at &&
	       cow__elapsed(ahead_at, now) < COW__HEAL_AHEAD_LATE_NS;
}

static void
note_io(uint64_t now)
{
	pinned_at = now;
	cow__fallback(COW_FALLBACK_PINNED);
}

/* In a quiet moment. The look for I/O takes longer with more descriptors. A slice may take as
 * long as that look, or all time would go into looks. */
static bool
run_slice_as_due(uint64_t looked_at, uint64_t ns, bool all, bool clean)
{
	uint64_t now = cow__now(), until = now + cow__max(ns, now - looked_at);
	size_t most = all || !helper_copies_ahead(now) ? SIZE_MAX : COW__AHEAD_LEAST;
	bool more;

	yields_at = now + COW__HEAL_YIELD_NS;
	if (stopped && clean) {
		clean_first = run_slice(until, 0);
		return true;
	}
	left_over = failed = false;
	more = run_slice(until, most);
	return more || left_over;
}

/* One slice of at most `ns`. `all`: it copies, too, where the helper could do that
 * ahead. */
enum outcome { DONE, MORE, REFUSED };

static enum outcome
try_heal_slice(uint64_t ns, bool all)
{
	uint64_t began = cow__now(), thawed = cow__stat_get(bytes_thawed), may, looked_at;
	bool more = false, clean;

	look_at_freezes();
	may = may_stop_ns(began);
	clean = may == COW__HEAL_STOP_CLEAN_NS;
	passed_over = false;
	if (!anything_to_heal())
		return DONE;
	if (!cow__engine_quiet(may)) {
		if (!vain_since)
			vain_since = began;
		/* Some may have stopped, and waited for one that did not. */
		if (may)
			credit.ns[clean] -= (int64_t)(cow__now() - began);
		return REFUSED;
	}
	stopped = cow__quiet_stopped();
	looked_at = cow__now();
	if (cow__pins_memory()) {
		note_io(began);
	} else {
		pinned_at = 0;
		more = run_slice_as_due(looked_at, ns, all, clean);
		vain_since = 0;
	}
	cow__quiet_end();
	if (stopped)
		credit.ns[clean] -= (int64_t)(cow__now() - began);
	if (cow__stat_get(bytes_thawed) != thawed) {
		healed_at = cow__now();
		cow__engine.prefer_anon = false;
	}
	note_rest(!more && !clean && !pinned_at && !failed && !passed_over &&
	          cow__stat_get(bytes_thawed) == thawed);
	cow__stat_set(heal_wait_ns_max, cow__park_longest());
	cow__stat_add(heal_ns_total, cow__now() - began);
	return more ? MORE : DONE;
}

void
cow__heal(uint64_t ns)
{
	uint64_t began = cow__now();

	while (try_heal_slice(cow__min(ns, COW__HEAL_SLICE_NS), ns == UINT64_MAX) == MORE &&
	       cow__now() - began < ns)
		;
}

void
cow__heal_before_fork(uint64_t ns)
{
	if (rest.known && cow__elapsed(rest.at, cow__now()) < COW__HEAL_REST_NS &&
	    rest.freezes == cow__stat_get(freezes) && rest.tiles == count_thawable())
		return;
	cow__heal(ns);
}

bool
cow__heal_slice(void)
{
	enum outcome r = REFUSED;

	for (int i = 0; i < COW__HEAL_TRIES && r == REFUSED && (i == 0 || clean_first); i++)
		r = try_heal_slice(COW__HEAL_SLICE_NS, true);
	/* Copies for which threads are stopped are left to the helper's share. */
	return r == MORE && (!stopped || (clean_first && credit.ns[1] > 0));
}

void
cow__heal_due(void)
{
	uint64_t began = cow__now();

	if (began < due_at || !cow__engine.heal_percent)
		return;
	(void)try_heal_slice(COW__HEAL_SLICE_NS, false);
	due_at = cow__now() +
	         (cow__now() - began) * (100 / cow__engine.heal_percent);
}

COW_EXPORT void
cow__heal_before_park(void)
{
	struct cow__signals signals;

	if (cow__now() < __atomic_load_n(&due_at, __ATOMIC_RELAXED))
		return;
	/* A handler could leave by longjmp(), with the lock. */
	(void)cow__signals_block(&signals);
	if (!cow__mutex_is_mine(&cow__engine.lock) &&
	    cow__mutex_try_lock(&cow__engine.lock)) {
		/* In a child that was forked a while ago, its first chance to get a helper. */
		if (cow__engine.frozen)
			cow__helper_want(false);
		cow__heal_due();
		cow__engine_unlock();
	}
	cow__signals_restore(&signals);
}

COW_FORK_CODE void
cow__heal_child(void)
{
	cursor = 0;
	cow__ahead_forget();
	healed_at = vain_since = pinned_at = ahead_at = 0;
	rest.known = false;
	look_ns = COW__HEAL_LOOK_NS;
	due_at = cow__now() + COW__HEAL_SETTLED_NS;
	set_park_care(cow__engine.frozen != 0);
}

bool
cow__heal_soon(uint64_t now)
{
	if (healed_at && cow__elapsed(healed_at, now) < COW__HEAL_HOPE_NS)
		return true;
	return vain_since && cow__elapsed(vain_since, now) < COW__HEAL_HOPE_NS;
}

void
cow__heal_child_reaped(void)
{
	look_ns = COW__HEAL_LOOK_NS;
	/* What that child alone had is clean now, and was passed over before. */
	if (cow__stop_used())
		begin_clean_slices();
	cow__helper_want(true);
}

static uint64_t
busy_look_ns(uint64_t now)
{
	return cow__elapsed(vain_since, now) < COW__HEAL_HOPE_NS ? COW__HEAL_LOOK_BUSY_NS
	                                                         : COW__HEAL_LOOK_VAIN_NS;
}

/* It has to be done anyway, and needs no rest. */
static void
copy_ahead(void)
{
	uint64_t began = cow__now();
	int ready;

	if (!anything_to_heal())
		return;
	ready = cow__ahead_prepare(COW__HEAL_AHEAD_NS);
	/* Where it gets nothing ready, for lack of memory or mappings, slices copy. */
	if (ready > 0)
		ahead_at = cow__now();
	else if (ready == -EBUSY)
		note_io(began);
	cow__stat_add(heal_ns_total, cow__now() - began);
}

uint64_t
cow__heal_job(uint64_t now)
{
	static uint64_t next;
	uint64_t most = COW__HEAL_LOOK_HELD_NS;

	if (!cow__engine.frozen) {
		set_park_care(false);
		return UINT64_MAX;
	}
	if (now < next)
		return next - now;
	copy_ahead();
	if (cow__park_used() && cow__park_running() &&
	    !cow__engine_sleepers_due(now) && !may_stop_ns(now)) {
		if (!vain_since)
			vain_since = now;
		most = busy_look_ns(now);
	} else {
		switch (try_heal_slice(COW__HEAL_SLICE_NS, false)) {
		case MORE:
			look_ns = COW__HEAL_LOOK_NS;
			return stopped ? COW__HEAL_SLICE_NS : COW__HEAL_GAP_NS;
		case DONE:
			most = passed_over ? COW__AHEAD_PASSED_NS : most;
			break;
		case REFUSED:
			most = busy_look_ns(now);
		}
	}
	set_park_care(vain_since && cow__elapsed(vain_since, now) > COW__HEAL_CARE_NS);
	next = cow__now() + look_ns;
	look_ns = cow__min(look_ns * 2, most);
	return next - now;
}

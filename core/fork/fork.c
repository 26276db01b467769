/* SPDX-License-Identifier: MIT */
/*
 * fork: see the header.
 *
 * What can't be frozen is copied for the child: memory that may be under I/O,
 * memory whose descriptor the program closed, and memory for which the kernel
 * refused the mapping (core/fork/copies.h).
 *
 * A process that filters its own system calls has retired the engine
 * (core/fork/retire.h). Its forks only lock, and copy what could not be frozen then.
 */
#include "core/fork/fork.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "core/base/stats.h"
#include "core/cow/forward.h"
#include "core/cow/freeze.h"
#include "core/cow/heal.h"
#include "core/cow/old_tables.h"
#include "core/cow/rewrite.h"
#include "core/cow/zeroed.h"
#include "core/fork/border.h"
#include "core/fork/copies.h"
#include "core/fork/eager.h"
#include "core/fork/feedback.h"
#include "core/fork/retire.h"
#include "core/memory/attribute.h"
#include "core/memory/commit.h"
#include "core/memory/copy_history.h"
#include "core/memory/decay.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/holders.h"
#include "core/memory/resident.h"
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "core/memory/window.h"
#include "core/policy/constants.h"
#include "core/program/advise.h"
#include "core/program/range.h"
#include "core/storage/allocation.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/pins.h"
#include "memfd/process.h"
#include "memfd/signals.h"
#include "memfd/wait.h"

static uint64_t began_at COW_FORK_DATA;
static bool taking_part COW_FORK_DATA; /* this fork concerns memory of ours */
static bool was_frozen COW_FORK_DATA;  /* memory that an earlier fork froze */
static _Thread_local int result; /* of this thread's last fork */

/* Freezes `*t` and what joins it, or copies it for the child. See cow__freeze_onward(). */
static int
freeze_or_copy(struct cow__tile **t, bool copy, uintptr_t *moved)
{
	int r;

	if (copy || cow__tile_is_pinned(*t))
		return cow__copies_make(*t, COW_FALLBACK_PINNED);
	r = cow__freeze_onward(t, moved);
	if (r >= 0)
		return r;
	return cow__copies_make(*t, r == -EBADF ? COW_FALLBACK_DESCRIPTOR : COW_FALLBACK_FREEZE);
}

/* Freezes everything, neighbours together, and makes the child a holder of it. `denied`: memory
 * that children are denied is in a file still. *ret_more: children don't inherit all of it yet. */
static int
freeze_for_child(bool pinned, bool denied, bool *ret_more)
{
	struct cow__tile *t, *done;
	uintptr_t moved = 0;
	int r = 0;

	*ret_more = cow__engine.frozen != 0;
	for (t = cow__tile_first(); t; t = t->next) {
		done = t;
		if (r >= 0 && cow__needs_freeze(t))
			r = freeze_or_copy(&t, pinned || denied, &moved);
		*ret_more |= r > 0;
		for (cow__holders_inherit(done); done != t; cow__holders_inherit(done))
			done = done->next;
	}
	return r >= 0 ? cow__copies_beside_shared(denied) : r;
}

static int
inherit_parts(const struct cow__tile *t, bool yes)
{
	uintptr_t at = cow__tile_start(t), end;
	int r = 0, one;

	for (; at < cow__tile_end(t); at = end) {
		end = cow__tile_end(t);
		if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS,
		                      at, &end) != COW__PLACE_OURS)
			continue;
		one = cow__map_inherit(at, end - at, yes);
		r = r ? r : one;
	}
	return r;
}

/* The last of the neighbours that can be inherited in one call. *ret_plain: nothing
 * else is noted of them. */
static struct cow__tile *
inherited_together(struct cow__tile *t, bool *ret_plain)
{
	*ret_plain = !t->map.attributes;
	while (!t->map.overlay && t->next && t->next->kind == COW__LIVE &&
	       t->next->map.backing == COW__PRIVATE && !t->next->map.overlay) {
		t = t->next;
		*ret_plain &= !t->map.attributes;
	}
	return t;
}

/* Lets children inherit the frozen mappings, or not, and counts them. They do only during forks
 * that the engine prepares. Another child would read pages that are thawed later. */
COW_FORK_CODE static int
inherit_mappings(bool yes)
{
	struct cow__tile *t, *last;
	bool plain;
	int r = 0, one;

	cow__feedback_forked(NULL);
	for (t = cow__tile_first(); t; t = t->next) {
		if (t->kind != COW__LIVE || t->map.backing != COW__PRIVATE)
			continue;
		last = inherited_together(t, &plain);
		one = t->map.overlay
		              ? inherit_parts(t, yes)
		              : cow__map_inherit(cow__tile_start(t),
		                                 cow__tile_end(last) -
		                                         cow__tile_start(t),
		                                 yes);
		if (plain && one == 0 && yes)
			t = last;
		for (;; t = t->next) {
			cow__feedback_forked(t);
			/* What can't be inherited is copied. */
			if (yes && one < 0 && r == 0 && t->mark != COW__MARK_COPIED)
				r = cow__copies_make(t, COW_FALLBACK_FREEZE);
			if (t->map.attributes)
				cow__attributes_withhold(t, cow__tile_start(t),
				                         cow__tile_end(t));
			if (t == last)
				break;
		}
	}
	return r;
}

/* Freezes what the child shall see, and copies what can't be frozen. */
static void
prepare_memory(void)
{
	bool pinned, more;
	int r;

	(void)cow__window_fit();
	cow__zeroed_before_fork();
	cow__forward_before_fork();
	cow__resident_before_freeze();
	cow__rewrites_freeze();
	cow__heal_before_fork(COW__FORK_HEAL_NS);
	was_frozen = cow__engine.frozen != 0;
	cow__feedback_learn();
	if (cow__holders_before_fork() < 0) {
		cow__fallback(COW_FALLBACK_SLOTS);
		cow__engine.no_locks = true; /* from now on without memfds */
	}
	pinned = cow__pins_memory();
	r = freeze_for_child(pinned, !pinned && cow__withhold_rest() < 0, &more);
	cow__engine.lends = true;
	if (r == 0 && more)
		r = inherit_mappings(true);
	if (r < 0) {
		cow__copies_free();
		cow__engine.fork_failed = r;
	}
	cow__segments_before_fork();
	cow__border_forked();
	cow__engine.forked_once = true;
}

static bool under_way COW_FORK_DATA; /* a fork has been prepared, and is not over */

COW_EXPORT bool
cow__fork_is_mine(void)
{
	return under_way && cow__mutex_is_mine(&cow__engine.lock);
}

static void
prepare_locked(void)
{
	began_at = cow__now();
	under_way = true;
	cow__engine.fork_failed = 0;
	was_frozen = false;
	taking_part = cow__engine.ready && !cow__engine.retired;
	/* Freezing takes from the pools; nobody else can now. */
	if (taking_part && cow__engine.live_bytes)
		prepare_memory();
	else if (cow__engine.retired)
		cow__engine.fork_failed = cow__retired_copies();
	cow__pools_lock();
	cow__stats_prepare(); /* after the gaps are closed, which count */
}

/* Read without the engine's lock, written under it. */
static const struct cow__fork_hooks *fork_hooks;

static const struct cow__fork_hooks *
hooks_now(void)
{
	return cow__retired() ? NULL : __atomic_load_n(&fork_hooks, __ATOMIC_ACQUIRE);
}

void
cow__fork_hook(const struct cow__fork_hooks *hooks)
{
	if (hooks_now() == hooks)
		return;
	cow__engine_lock();
	__atomic_store_n(&fork_hooks, hooks, __ATOMIC_RELEASE);
	cow__engine_unlock();
}

/* fork() was called in a signal handler that interrupted the engine in this
 * thread, which would wait for the lock for ever. The child lacks the engine's
 * memory; that is no loss to a child that execs or ends. Written under the
 * lock. */
static bool skipping;

void
cow__fork_prepare(void)
{
	const struct cow__fork_hooks *hooks;
	uint64_t until = cow__now() + COW__FORK_WAIT_NS;

	for (;;) {
		hooks = hooks_now();
		if (cow__mutex_is_mine(&cow__engine.lock) || cow__pools_mine() ||
		    (hooks && !hooks->prepare(false))) {
			skipping = true;
			cow__stats_prepare();
			return;
		}
		cow__engine_lock();
		if (hooks == hooks_now()) {
			if (!cow__border_waits() || cow__now() > until)
				break;
			/* Another thread is giving up privileges. */
			cow__engine_unlock();
			if (hooks)
				(void)hooks->parent();
			cow__yield();
			continue;
		}
		/* Another thread's first call of share/, or it retired the engine. */
		cow__engine_unlock();
		if (hooks)
			(void)hooks->parent();
	}
	prepare_locked();
}

COW_EXPORT bool
cow__fork_try_prepare(void)
{
	const struct cow__fork_hooks *hooks = hooks_now();
	uint64_t until = cow__now() + COW__FORK_TRY_NS;
	bool locked = false;

	if (cow__pools_mine() || (hooks && !hooks->prepare(true)))
		return false;
	do {
		if (locked) { /* another thread is giving up privileges */
			cow__engine_unlock();
			cow__yield();
		}
		locked = cow__engine_lock_within(COW__FORK_TRY_NS);
	} while (locked && cow__border_waits() && cow__now() < until);
	if (!locked || hooks != hooks_now() || cow__border_waits()) {
		if (locked)
			cow__engine_unlock();
		if (hooks)
			(void)hooks->parent();
		return false;
	}
	prepare_locked();
	return true;
}

static void
count_fork(void)
{
	uint64_t ns = cow__now() - began_at;

	cow__stat_add(forks, 1);
	cow__stat_set(fork_ns_last, ns);
	cow__stat_add(fork_ns_total, ns);
	if (ns > cow__stat_get(fork_ns_max))
		cow__stat_set(fork_ns_max, ns);
}

COW_EXPORT void
cow__fork_parent(void)
{
	const struct cow__fork_hooks *hooks;
	int r = 0;

	if (skipping) {
		skipping = false;
		result = 0;
		return;
	}
	result = cow__engine.fork_failed;
	cow__pools_unlock();
	if (taking_part) {
		(void)inherit_mappings(false);
		cow__engine.lends = false;
		cow__holders_parent();
		cow__segments_parent();
		cow__copies_free();
		/* Where forks alone don't heal it, the helper has to. */
		if (cow__old_tables_pending() || was_frozen)
			cow__helper_want(cow__old_tables_moved());
		count_fork();
	}
	if (cow__engine.retired)
		cow__copies_free();
	under_way = false;
	hooks = hooks_now(); /* the hooks of prepare, until this is unlocked */
	cow__engine_unlock();
	if (hooks)
		r = hooks->parent();
	result = result ? result : r;
}

COW_FORK_CODE static void
engine_child(void)
{
	if (cow__engine.fork_failed)
		cow__process_exit(127);
	cow__engine_lock();
	cow__engine.generation++;
	/* First what an address that is free in the child, or a list of the parent's, could spoil. */
	cow__advise_child_early(); /* before a mapping of ours takes such an address, or a lock */
	cow__commit_child();       /* before a tile ends, which leaves the helper's lists */
	cow__copy_history_child(); /* before a tile ends, which would be looked at */
	cow__holders_child();      /* before anybody asks who else has pages */
	/* Then what the parent alone has. */
	cow__spares_child();       /* before copies of blocks take their places */
	cow__rewrites_child();     /* before pages that nobody shows count as free */
	cow__copies_child();
	cow__old_tables_child();
	cow__decay_child();
	/* Then what the child has. */
	cow__segments_child();     /* before tiles are sorted by whose file they lie in */
	cow__extents_child();      /* after the copies, which are live memory here */
	(void)inherit_mappings(false); /* of those that are left */
	cow__advise_child();       /* the ranges that were reserved become holes */
	cow__allocations_child();  /* may end a tile */
	cow__segments_sweep(false); /* after the last tile ended */
	/* The counts of what is frozen hold from here on. */
	cow__feedback_child();
	cow__heal_child();
	cow__engine_unlock();
}

/* The kernel has done all that a fork of private memory needs. */
static void
retired_child(void)
{
	if (cow__engine.fork_failed)
		cow__process_exit(127);
	cow__engine.lock.state = 0;
	cow__pools_unlock();
	cow__copies_child();
}

COW_FORK_CODE COW_EXPORT void
cow__fork_child(void)
{
	/* Also where nothing else may be touched: the counters are read at exit. */
	cow__stats_child();
	if (skipping) {
		cow__border_missed();
		return;
	}
	under_way = cow__engine.lends = false;
	if (cow__engine.retired) {
		retired_child();
		return;
	}
	if (hooks_now())
		hooks_now()->early();
	cow__engine.lock.state = 0;
	cow__engine.process = cow__process_id();
	cow__pools_unlock();
	cow__helper_child();
	cow__border_child();
	if (taking_part)
		engine_child();
	if (hooks_now())
		hooks_now()->child();
	if (taking_part && cow__border_at_birth())
		cow__border_born();
}

COW_FORK_CODE COW_EXPORT int
cow__fork_result(void)
{
	return result;
}

/* True: there is more to heal at once. Who waited for the child is not in a hurry: it may
 * be the only thread. */
static bool
heal_after_wait(bool blocked)
{
	bool more = blocked && cow__heal_slice();

	if (!blocked)
		cow__heal(COW__FORK_HEAL_NS);
	if (!more && cow__engine.frozen)
		cow__heal_child_reaped();
	if (!more)
		(void)cow__extent_poll_limbo();
	cow__engine_unlock();
	return more;
}

COW_EXPORT bool
cow__fork_after_wait(bool blocked)
{
	struct cow__signals signals;
	bool more;

	cow__holders_child_ended();
	if (!cow__heal_needed())
		return false;
	/* A handler could leave by longjmp(), with the lock. */
	(void)cow__signals_block(&signals);
	more = cow__engine_lock_within(COW__REAPED_TRY_NS) && heal_after_wait(blocked);
	cow__signals_restore(&signals);
	return more;
}

COW_EXPORT void
cow__fork_settled(void)
{
	if (!cow__heal_needed())
		return;
	cow__engine_lock();
	cow__helper_want(false);
	cow__engine_unlock();
}

int
cow__fork_init(void)
{
	return cow__process_atfork(cow__fork_prepare, cow__fork_parent,
	                           cow__fork_child);
}

/* SPDX-License-Identifier: MIT */
/*
 * The border: see the header.
 */
#include "core/fork/border.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/ahead.h"
#include "core/cow/old_tables.h"
#include "core/cow/rewrite.h"
#include "core/fork/eager.h"
#include "core/memory/attribute.h"
#include "core/memory/holders.h"
#include "core/memory/spare.h"
#include "core/memory/quiet_window.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/signals.h"
#include "memfd/wait.h"
#include "memfd/watch.h"
#include "quiet/quiet.h"

static COW_FORK_DATA uint32_t relatives; /* forks since the last border */
static COW_FORK_DATA bool soft;          /* files were left without a seal */
static COW_FORK_DATA bool at_birth;      /* the next child is a stranger from birth */

/* When each call that gives up privileges began, 0: none. The last bits are the place in this table,
 * so that a call ends its own entry alone. */
static COW_FORK_DATA uint64_t calls[COW__BORDER_CALLS_MOST];

void
cow__border_forked(void)
{
	__atomic_store_n(&relatives, relatives + 1 ? relatives + 1 : 1, __ATOMIC_RELAXED);
	/* Where a parent may not trace its child, every fork is a border. The parent asks,
	 * because the answer is the child's, too. */
	at_birth = cow__engine.border == COW__BORDER_FORK ||
	           (cow__engine.border != COW__BORDER_CALLS && !cow__process_traces_relatives());
}

COW_EXPORT uint32_t
cow__border_relatives(void)
{
	return __atomic_load_n(&relatives, __ATOMIC_RELAXED);
}

COW_EXPORT bool
cow__border_due(void)
{
	return cow__border_relatives() && cow__engine.process == cow__process_id();
}

COW_EXPORT bool
cow__border_soft(void)
{
	return soft && cow__engine.process == cow__process_id();
}

static bool
is_call_over(uint64_t call, uint64_t now)
{
	return cow__elapsed(call - call % COW__BORDER_CALLS_MOST, now) >= COW__BORDER_CALL_NS;
}

COW_EXPORT uint64_t
cow__border_call_begins(void)
{
	uint64_t now = cow__now();

	for (unsigned i = 0; i < COW__BORDER_CALLS_MOST; i++) {
		uint64_t old = __atomic_load_n(&calls[i], __ATOMIC_SEQ_CST);
		uint64_t call = now - now % COW__BORDER_CALLS_MOST + i;

		if ((!old || is_call_over(old, now)) &&
		    __atomic_compare_exchange_n(&calls[i], &old, call, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return call;
	}
	return 0;
}

COW_EXPORT void
cow__border_call_ends(uint64_t call)
{
	/* Another one may have its place, if it took long. In a child of a handler it was forgotten. */
	if (call)
		(void)__atomic_compare_exchange_n(&calls[call % COW__BORDER_CALLS_MOST], &call, 0,
		                                  false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

COW_EXPORT void
cow__border_fence(void)
{
	if (cow__engine.process == cow__process_id() && cow__engine_lock_in_handler())
		cow__engine_unlock();
}

bool
cow__border_waits(void)
{
	for (unsigned i = 0; i < COW__BORDER_CALLS_MOST; i++) {
		uint64_t call = __atomic_load_n(&calls[i], __ATOMIC_SEQ_CST);

		if (call && !is_call_over(call, cow__now()))
			return true;
	}
	return false;
}

COW_FORK_CODE void
cow__border_child(void)
{
	for (unsigned i = 0; i < COW__BORDER_CALLS_MOST; i++)
		if (calls[i])
			calls[i] = 0;
}

COW_FORK_CODE bool
cow__border_at_birth(void)
{
	return at_birth;
}

/* What was refused is replaced by copies. */
static int
leave_by_copies(const struct cow__segment *s)
{
	int r;

	if (!cow__engine_quiet(0))
		return -EAGAIN;
	r = cow__eager_leave(s);
	cow__quiet_end();
	return r;
}

int
cow__border_seal(struct cow__segment *s)
{
	int r = cow__segment_seal(s);

	if (r == 0)
		return 0;
	r = leave_by_copies(s);
	if (r == 0)
		cow__segment_unlock(s);
	return r;
}

/* What can fail. Nothing is given up yet that the process needs. A private mapping can be grown over
 * its whole file, and its copied pages dropped. Behind them are the bytes that this process
 * overwrote, which relatives still read: only copies of everything leave them. */
static int
prepare_files(bool hard, bool keeps)
{
	struct cow__census c = { .asked = 0 };
	struct cow__segment *s;
	int r = 0;

	for (s = cow__engine.segments; r == 0 && s; s = s->next) {
		s->leaving = !s->gone && !cow__holders_apart(s, &c);
		if (s->gone) { /* by an earlier call, which was to take the capabilities away */
			r = hard ? cow__border_seal(s) : 0;
			continue;
		}
		if (s->leaving ? keeps && cow__segment_give_up(s, hard) == 0
		               : cow__segment_forget_left(s) == 0)
			continue;
		/* Its words are the relatives' still: it is left as the others are, after nothing
		 * of this process shows its pages any more. */
		r = s->leaving ? leave_by_copies(s) : -ENOMEM;
	}
	return r;
}

static int
leave_family(bool hard, bool keeps)
{
	struct cow__segment *s;
	uint64_t marked = 0;
	int r;

	cow__ahead_forget();
	cow__old_tables_release();
	(void)cow__spares_release(cow__now(), true);
	r = prepare_files(hard, keeps);
	if (r == 0)
		r = cow__rewrites_unmap();
	for (s = cow__engine.segments; r == 0 && s; s = s->next) {
		if (s->leaving)
			r = cow__segment_gone(s);
		else if (!s->gone)
			cow__holders_reset(s);
		marked += s->leaving;
	}
	cow__segments_sweep(false);
	if (r < 0)
		return r;
	cow__slots_leave();
	__atomic_store_n(&relatives, 0, __ATOMIC_RELAXED);
	soft = !hard && (soft || marked);
	cow__stat_add(strangers, marked != 0);
	return 0;
}

COW_EXPORT int
cow__border_make(bool hard, bool late)
{
	bool keeps = cow__engine.border != COW__BORDER_COPIES;
	struct cow__signals signals;
	int r = -EAGAIN;

	if (!cow__border_due() && !(hard && cow__border_soft()))
		return 0;
	/* A handler could leave by longjmp(), with the lock. */
	(void)cow__signals_block(&signals);
	if (cow__engine_lock_in_handler()) {
		r = leave_family(hard, keeps);
		/* Other threads run, or there is no memory for copies. */
		if (r < 0 && late)
			r = leave_family(true, true);
		cow__engine_unlock();
	}
	cow__signals_restore(&signals);
	/* The kernel's own words would seem to be about the call. */
	return r < 0 && r != -EAGAIN ? -ENOMEM : r;
}

/* The pages that the child of another thread's fork was to get, but not what the program has mapped
 * over them. The tiles are whole: that thread has the lock, and changes none while it lends. */
static void
unmap_lent(void)
{
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		uintptr_t at = cow__tile_start(t), end;

		if (t->kind != COW__LIVE || t->map.backing != COW__PRIVATE)
			continue;
		for (; at < cow__tile_end(t); at = end) {
			end = cow__tile_end(t);
			if (cow__attribute_at(t, COW__ATTRIBUTE_PLACE, COW__PLACE_OURS, at, &end) ==
			    COW__PLACE_OURS)
				(void)cow__map_release(at, end - at);
		}
	}
}

COW_EXPORT void
cow__border_missed(void)
{
	if (cow__engine.retired) /* it has left all files, and may make no call */
		return;
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next) {
		cow__descriptor_close(&s->file);
		/* Not by cow__segment_control_end(): the tiles may be in the middle of a change. */
		if (s->control_tile)
			(void)cow__map_release((uintptr_t)s->words, s->control_tile->bytes);
		if (s->page)
			(void)cow__map_release(s->page, cow__page);
		s->words = NULL;
	}
	/* Nobody counts this child as a holder of these, so it must not see what is written there. */
	if (cow__engine.lends)
		unmap_lent();
	cow__slots_leave();
	cow__watch_forget();
}

COW_EXPORT COW_FORK_CODE void
cow__border_born(void)
{
	if (cow__border_make(cow__process_opens_mapped(), false) < 0)
		cow__process_exit(127);
}

COW_EXPORT int
cow_family_leave(void)
{
	cow_threads_end();
	return cow__border_make(cow__process_opens_mapped(), false);
}

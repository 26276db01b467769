/* SPDX-License-Identifier: MIT */
/*
 * Small decisions: each is a function of a few numbers
 *
 * Pure. Structs belong to the caller, who locks them.
 */
#ifndef COW_CORE_POLICY_DECIDE_H
#define COW_CORE_POLICY_DECIDE_H

#include "core/policy/constants.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- Stops of threads (core/cow/heal.c) ------------------------------------------------------ */

/* Threads are stopped for no more than a share of the time, which the option `heal` says; for what
 * is clean once more as long, so that neither takes the other's time. */
struct cow__credit {
	int64_t ns[2]; /* that is left. 1: for what is clean */
	uint64_t at;   /* it has grown up to then */
};

#define COW__CREDIT_FULL { { COW__HEAL_CREDIT_NS, COW__HEAL_CREDIT_NS }, 0 }

static inline void
cow__credit_grow(struct cow__credit *c, uint64_t now, unsigned percent)
{
	uint64_t gone = now > c->at ? cow__min(now - c->at, COW__HEAL_CREDIT_NS * (uint64_t)100) : 0;

	c->at = now;
	for (int clean = 0; clean < 2; clean++) {
		c->ns[clean] += (int64_t)(gone * percent / 100);
		if (c->ns[clean] > COW__HEAL_CREDIT_NS)
			c->ns[clean] = COW__HEAL_CREDIT_NS;
	}
}

/* How long may threads take to stop now? 0: they may not be stopped. */
static inline uint64_t
cow__credit_stop_ns(const struct cow__credit *c, bool clean)
{
	if (clean && c->ns[1] > 0)
		return COW__HEAL_STOP_CLEAN_NS;
	return c->ns[0] > 0 ? COW__HEAL_STOP_NS : 0;
}

/* ---- Page tables that come back at a thaw (core/cow/old_tables.c) ---------------------------- */

/*
 * Tables that come back are moved again at the next fork. That is in vain where the program
 * doesn't touch its memory between forks. Nothing tells whether it does, while they come back.
 * So after some forks they don't. If the next fork finds many entries all the same, they come
 * back at more forks than the last time.
 */
struct cow__returns {
	uint8_t left; /* forks after which the tables come back */
	uint8_t last; /* so many were left at first, the last time */
	bool thawed, returned; /* something was, since the last fork that moved tables */
};

#define COW__RETURNS_NEW { 0, COW__TABLES_RETURNS_FIRST / 2, true, false }

/* A fork moves tables: it has found many entries. */
static inline void
cow__returns_moved(struct cow__returns *r)
{
	if (!r->thawed)
		return;
	if (r->returned)
		r->left -= r->left > 0;
	else
		r->left = r->last = (uint8_t)cow__min(2 * r->last, COW__TABLES_RETURNS_MOST);
	r->thawed = r->returned = false;
}

/* A fork has found few. */
static inline void
cow__returns_few(struct cow__returns *r)
{
	if (r->thawed && !r->returned)
		r->last = COW__TABLES_RETURNS_FIRST / 2;
}

/* ---- Spare pages of a rewrite (core/memory/spare.c) ------------------------------------------ */

/* How long they are kept, if the rewrite before this one is `gone` ago. Where they would not live
 * until the next one, they are kept as after the first. */
static inline uint64_t
cow__spare_keep_ns(uint64_t gone, uint64_t decay_ns)
{
	uint64_t ns = gone > COW__SPARE_KEEP_MOST_NS ? COW__SPARE_KEEP_FIRST_NS
	                                             : cow__min(2 * gone, COW__SPARE_KEEP_MOST_NS);

	return cow__max(ns, decay_ns);
}

/* ---- Feedback of copies (core/fork/feedback.c) ----------------------------------------------- */

/* Did freezing cost the program more than it brings? `copied`: of `frozen` bytes, since the last
 * fork, and without a thaw. */
static inline bool
cow__copies_too_much(size_t copied, size_t frozen)
{
	return copied > frozen / COW__COPIED_SHARE;
}

/* ---- A write into a shared storage (core/storage/materialize.c) ------------------------------ */

/* Is a view of `pages` pages cheaper than a copy, if `written` of them will be written? Twice: this
 * storage's writes, and as many of its sibling's. */
static inline bool
cow__by_page_is_cheaper(uint64_t pages, uint64_t written)
{
	return COW__COST_VIEW_NS + 2 * written * COW__COST_PAGE_WRITE_NS <
	       COW__COST_COPY_NS + pages * COW__COST_PAGE_COPY_NS;
}

#endif

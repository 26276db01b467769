/* SPDX-License-Identifier: MIT */
/*
 * Which code's copies may be lazy: docs/design/lazy-copies.md
 *
 * A lazy copy pays if neither side is written afterwards. Nobody can tell that beforehand. But a
 * program does the same thing again: earlier copies by the same code, of about the same size,
 * predict the next one.
 *
 *                   two were not written
 *        eager  --------------------------->  lazy: no more of them at a time
 *          ^                                   |    than were found right so far
 *          +-----------------------------------+
 *            one was written; it takes twice as many next time
 *
 * Code whose copies are written is looked at ever more seldom.
 *
 * Pure: the caller owns and locks the table. One of zeros has learned nothing. It holds code
 * addresses and counts.
 */
#ifndef COW_CORE_POLICY_SITES_H
#define COW_CORE_POLICY_SITES_H

#include "core/policy/constants.h"

#include <stdbool.h>
#include <stdint.h>

struct cow__site {
	uintptr_t code;     /* 0: the place is free */
	unsigned size_log;
	uint32_t right;     /* copies in a row that were not written */
	uint32_t needed;    /* so many make it lazy */
	uint32_t lazy;      /* alive now */
	uint32_t skip;      /* so many coming copies are not looked at ... */
	uint32_t skips_log; /* ... and 1 << skips_log the next time */
};

struct cow__sites {
	struct cow__site all[COW__SITES];
};

enum cow__verdict {
	COW__EAGER, /* copy, and that is all */
	COW__WATCH, /* copy, and see whether it is written */
	COW__LAZY,
};

/* The place for copies of `bytes` bytes by this code; a new one if need be. NULL: no place is
 * left for it. */
struct cow__site *cow__site_of(struct cow__sites *s, uintptr_t code, size_t bytes);

/* What to do with the next copy. `s` may be NULL. */
enum cow__verdict cow__site_ask(struct cow__site *s);

/* Of a copy both sides are over. `wrong`: it should have been the other kind. */
void cow__site_learn(struct cow__site *s, bool lazy, bool wrong);

#endif

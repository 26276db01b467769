/* SPDX-License-Identifier: MIT */
/*
 * Whether the next huge page that several blocks share is committed at once
 *
 * The program should have filled the huge pages before it. After one that was committed in vain
 * many have to be filled first. Pages of zeros in a committed unit tell nothing: the program may
 * have written them, or not. Where it is known to fill memory with zeros, some units are
 * committed on trust. Then one unit is left in small pages as a probe. If the program writes it,
 * the allowance doubles.
 *
 * Pure: the caller owns and locks the struct. One of zeros has learned nothing.
 */
#ifndef COW_CORE_POLICY_UNITS_H
#define COW_CORE_POLICY_UNITS_H

#include <stdbool.h>

enum cow__filled {
	COW__FILLED_NO,
	COW__FILLED_UNCLEAR, /* committed, and zeros */
	COW__FILLED_ZEROS,   /* touched, and zeros */
	COW__FILLED_YES
};

struct cow__units {
	unsigned debt;   /* so many units have to be filled before the next one is committed */
	unsigned proofs; /* units of zeros in a row */
	unsigned left, last; /* units on trust: that are left, that there were at first */
};

/* A unit was committed, and not filled. */
void cow__units_in_vain(struct cow__units *u);

/* Is the next unit due, if the one before it is filled so? */
bool cow__units_due(struct cow__units *u, enum cow__filled before);

#endif

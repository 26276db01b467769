/* SPDX-License-Identifier: MIT */
/*
 * Test support: one storage or block in every state there is
 *
 * What a fork, a kill or another thread must not disturb is not one storage
 * but all kinds of them at once. A *herd* has one animal of each kind: owned,
 * lazy, view and copied ones, transparent ones that were cloned or not, large
 * and small, blocks, memory from elsewhere, and some that nobody ever touched.
 * Each knows the seed of the pattern that it should hold, so that a whole herd
 * can be rewritten and checked, in any process, at any time.
 */
#ifndef COWSHED_TESTS_HERD_H
#define COWSHED_TESTS_HERD_H

#include "tests/support/support.h"

enum herd_kind {
	HERD_OWNED,
	HERD_SMALL,
	HERD_TINY,
	HERD_LAZY_A, /* two that share everything */
	HERD_LAZY_B,
	HERD_VIEWED, /* looked at by the next */
	HERD_VIEW,
	HERD_COPY,
	HERD_ZERO, /* never written */
	HERD_TRANSPARENT,
	HERD_TRANSPARENT_SMALL,
	HERD_CLONED, /* transparent, and the source of the next */
	HERD_CLONE,
	HERD_EXPOSED_VIEW,
	HERD_HELD, /* a block that only its storage keeps */
	HERD_EXTERNAL,
	HERD_BLOCK,
	HERD_BLOCK_LARGE,
	HERD_BLOCK_ZERO,
	HERD_KINDS,
};

struct animal {
	struct cow_storage *storage; /* or: */
	unsigned char *block;
	unsigned char *exposed; /* where a transparent one is written */
	size_t bytes;
	uint64_t seed; /* 0: all zero bytes */
};

struct herd {
	struct animal animals[HERD_KINDS];
};

/* Makes all of them, with patterns after `seed`. */
void herd_make(struct herd *herd, uint64_t seed);

/* Asserts that each holds every byte of its pattern. */
void herd_check(const struct herd *herd);

/* Writes a new pattern into each whose number modulo `step` is 0; how, depends
 * on what it is. `step` 1: all. */
void herd_rewrite(struct herd *herd, uint64_t seed, int step);

/* Writes one page in sixteen of the large ones, with what was there: makes the
 * pages private without changing a byte. */
void herd_touch(struct herd *herd);

/* Frees all, or those whose number modulo 2 is `half`. */
void herd_free(struct herd *herd);
void herd_free_half(struct herd *herd, int half);

#endif

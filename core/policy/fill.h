/* SPDX-License-Identifier: MIT */
/*
 * Does the program fill what it asks for?
 *
 * The answer decides how much memory is committed ahead of it (core/memory/commit.h). It is kept
 * for the program as a whole and for each size of extents, because most programs have one size
 * that they never fill. docs/design/commit-ahead.md has the measurements behind the shares.
 *
 * Pure: the caller owns and locks the history. One of zeros has learned nothing.
 */
#ifndef COW_CORE_POLICY_FILL_H
#define COW_CORE_POLICY_FILL_H

#include <stdbool.h>
#include <stddef.h>

struct cow__fill_count {
	size_t filled, wasted; /* bytes that were committed, and then touched or not */
};

struct cow__fill {
	struct cow__fill_count all, sizes[128]; /* two for each power of two */
};

/* Of an extent of `bytes` bytes, `filled` bytes were committed and then touched.
 * `wasted` bytes were committed and not touched. */
void cow__fill_learn(struct cow__fill *f, size_t bytes, size_t filled, size_t wasted);

/* For an extent of `bytes` bytes: the share 1/n of what the program has touched
 * so far that may be committed ahead. Returns n. */
size_t cow__fill_share(const struct cow__fill *f, size_t bytes);

/* Has the program filled at least one extent of about this size, and nearly all that was
 * committed for them? */
bool cow__fill_is_usual(const struct cow__fill *f, size_t bytes);

#endif

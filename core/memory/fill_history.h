/* SPDX-License-Identifier: MIT */
/*
 * Fill history: has the program filled what it asked for so far?
 *
 * It decides how much memory is committed ahead of a program
 * (core/memory/commit.h). It is kept for the program as a whole and for each size
 * of extents, since most programs have one size that they never fill. Engine
 * locked throughout.
 */
#ifndef COW_CORE_MEMORY_FILL_HISTORY_H
#define COW_CORE_MEMORY_FILL_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

/* Of an extent of `bytes` bytes, `filled` bytes were committed and then touched.
 * `wasted` bytes were committed and not touched. */
void cow__fill_history_learn(size_t bytes, size_t filled, size_t wasted);

/* For an extent of `bytes` bytes: the share 1/n of what the program has touched
 * so far that may be committed ahead. Returns n. */
size_t cow__fill_history_share(size_t bytes);

/* Has the program filled at least one extent of about this size, and nearly all that was
 * committed for them? */
bool cow__fill_history_fills(size_t bytes);

#endif

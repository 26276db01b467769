/* SPDX-License-Identifier: MIT */
/*
 * Trust: has the program filled what it asked for so far?
 *
 * How much memory is committed ahead of a program (core/memory/commit.h) depends on it.
 * Judged for the program as a whole and for each size of extents, since most
 * programs have one size that they never fill.
 */
#ifndef COW_CORE_MEMORY_FILL_HISTORY_H
#define COW_CORE_MEMORY_FILL_HISTORY_H

#include <stddef.h>

/* All of these want the engine locked. */

/* Of an extent of `bytes` so much was committed and then touched (`filled`) or
 * not (`wasted`). */
void cow__fill_history_learn(size_t bytes, size_t filled, size_t wasted);

/* For an extent of `bytes`: what share (1/n) of what the program has touched so
 * far may be committed ahead. */
size_t cow__fill_history_share(size_t bytes);

#endif

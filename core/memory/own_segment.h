/* SPDX-License-Identifier: MIT */
/*
 * Segments of one block each
 *
 * A segment usually holds many blocks, so its descriptor can't be sent to others.
 * A large block that may be sent gets a segment of its own when it is born.
 * Sending it is then a freeze and a seal (core/cow/seal.h): no byte is copied.
 *
 * This file holds the policy alone: from which size on, and how many at a time.
 * Any thread may call all of it, without a lock.
 */
#ifndef COW_CORE_MEMORY_OWN_SEGMENT_H
#define COW_CORE_MEMORY_OWN_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Blocks from COW__OWN_LEAST on get segments of their own from now on. */
void cow__own_segments_expect(void);

/* The option `share`: blocks from 4 MiB on get one, with or without channels, and
 * there may be more of them at a time. */
void cow__own_segments_ask(bool yes);

bool cow__own_segment_asked(size_t bytes);

/* Will this block have one? */
bool cow__own_segment_wants(size_t bytes);

/* How many there may be at a time, and how many where they were asked for. */
unsigned cow__own_segments_most(void);
unsigned cow__own_segments_most_asked(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Which blocks get a segment of their own: see the header.
 */
#include "core/memory/own_segment.h"
#include "core/base/base.h"
#include "core/policy/constants.h"
#include "memfd/descriptor.h"

static bool expected, asked;

void
cow__own_segments_expect(void)
{
	__atomic_store_n(&expected, true, __ATOMIC_RELAXED);
}

bool
cow__own_segment_asked(size_t bytes)
{
	return bytes >= COW__OWN_ASKED_LEAST && __atomic_load_n(&asked, __ATOMIC_RELAXED);
}

bool
cow__own_segment_wants(size_t bytes)
{
	return cow__own_segment_asked(bytes) ||
	       (bytes >= COW__OWN_LEAST &&
	        __atomic_load_n(&expected, __ATOMIC_RELAXED));
}

void
cow__own_segments_ask(bool yes)
{
	__atomic_store_n(&asked, yes, __ATOMIC_RELAXED);
}

unsigned
cow__own_segments_most_asked(void)
{
	uint64_t room = cow__descriptor_limit() / COW__OWN_DESCRIPTORS_SHARE;

	return (unsigned)cow__max(COW__OWN_SEGMENTS_MOST, cow__min(room, COW__OWN_SEGMENTS_ASKED_MOST));
}

unsigned
cow__own_segments_most(void)
{
	return __atomic_load_n(&asked, __ATOMIC_RELAXED) ? cow__own_segments_most_asked()
	                                                 : COW__OWN_SEGMENTS_MOST;
}

/* SPDX-License-Identifier: MIT */
/*
 * A segment as its tiles refer to it: see the header.
 */
#include "core/memory/segment_ref.h"
#include "core/memory/engine.h"

uint64_t
cow__segment_offset(uintptr_t addr)
{
	return addr - cow__engine.start;
}

void
cow__segment_ref(struct cow__segment *s)
{
	s->tiles++;
}

void
cow__segment_unref(struct cow__segment *s)
{
	s->tiles--;
	cow__engine.single_ended |= s->single && s->tiles == 0;
}

bool
cow__segment_usable(const struct cow__segment *s)
{
	return !s || (s->owner && !s->forked);
}

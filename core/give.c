/* SPDX-License-Identifier: MIT */
/*
 * Giving: a block's pages to other processes, as they lie. See the header.
 */
#include "core/give.h"
#include "core/base.h"
#include "core/engine.h"
#include "core/segment.h"
#include "core/spare.h"
#include "core/thaw.h"
#include "core/view.h"
#include "memfd/memfd.h"

#define ASKED_LEAST (4 * MIB) /* a tie at half of that: bench/give.c */

/* Each costs a descriptor and a kernel mapping. */
#define MOST 8u
#define ASKED_MOST 1024u

static bool expected, asked;

void
cow__give_expect(void)
{
	__atomic_store_n(&expected, true, __ATOMIC_RELAXED);
}

bool
cow__give_asked(size_t bytes)
{
	return bytes >= ASKED_LEAST && __atomic_load_n(&asked, __ATOMIC_RELAXED);
}

bool
cow__give_wants(size_t bytes)
{
	return cow__give_asked(bytes) ||
	       (bytes >= COW__GIVE_LEAST &&
	        __atomic_load_n(&expected, __ATOMIC_RELAXED));
}

void
cow__give_ask(bool yes)
{
	__atomic_store_n(&asked, yes, __ATOMIC_RELAXED);
}

unsigned
cow__give_most(void)
{
	uint64_t room;

	if (!__atomic_load_n(&asked, __ATOMIC_RELAXED))
		return MOST;
	/* Most of the table is the program's. */
	room = cow__descriptor_limit() / 4;
	return (unsigned)cow__max(MOST, cow__min(room, ASKED_MOST));
}

bool
cow__give_may(const struct cow__tile *t)
{
	return t->segment && t->segment->single;
}

/* Nothing but its own pages, mapped as they were at birth or frozen since. */
static bool
plain(const struct cow__tile *t)
{
	return t->kind == COW__LIVE && t->segment && !t->npieces &&
	       !t->nkept && !t->attributes && !t->overlaid && !t->slow &&
	       !t->bound && !t->punching && !t->lazy;
}

/* Is there nothing else in the file, not even behind the last byte? */
static bool
holds_nothing_else(const struct cow__tile *t, size_t bytes)
{
	const struct cow__descriptor *file = &t->segment->file;
	uint64_t from = cow__segment_offset(cow__tile_start(t));
	uint64_t start, end;
	unsigned char tail[256];

	if (cow__memfd_data(file, 0, from, &start, &end) != 0 ||
	    cow__memfd_data(file, from + t->bytes, (uint64_t)INT64_MAX, &start,
	                    &end) != 0)
		return false;
	for (size_t at = bytes; at < t->bytes;) {
		size_t n = cow__min(sizeof(tail), t->bytes - at);

		if (cow__memfd_read(file->fd, from + at, tail, n) != 0)
			return false;
		for (size_t i = 0; i < n; i++)
			if (tail[i])
				return false;
		at += n;
	}
	return true;
}

static bool
alone_in_file(const struct cow__tile *t)
{
	return !(t->prev && t->prev->segment == t->segment) &&
	       !(t->next && t->next->segment == t->segment);
}

/* No way back: nobody here writes these file pages any more. */
static int
seal(struct cow__tile *t, size_t bytes)
{
	struct cow__segment *s = t->segment;
	int r = 0;

	if (!s->single || !s->owner)
		return -ENOTSUP;
	/* What is free beside it is mapped for writing, too, and stays so. */
	if (!alone_in_file(t))
		return -ENOTSUP;
	if (t->backing == COW__SHARED)
		r = cow__freeze(t);
	else if (cow__copied_bytes(t) != 0)
		r = -ENOTSUP;
	if (r < 0)
		return r;
	/* Page tables that were moved away are a mapping for writing. */
	cow__spares_release();
	r = cow__memfd_seal(&s->file, COW__SEALED_WRITE);
	if (r < 0)
		return r;
	s->owner = false;
	t->inherited = t->uncounted = true;
	if (holds_nothing_else(t, bytes))
		s->given = cow__tile_start(t);
	return 0;
}

int
cow__give(struct cow__tile *t, size_t bytes, struct cow__descriptor *ret,
          uint64_t *ret_offset)
{
	int r = 0;

	if (!plain(t) || t->backing == COW__ANON || bytes > t->bytes ||
	    t->bytes - bytes >= cow__page)
		return -ENOTSUP;
	if (!t->segment->given)
		r = seal(t, bytes);
	/* Given before: what was written since is in no file. */
	else if (cow__copied_bytes(t) != 0)
		return -ENOTSUP;
	/* A neighbour in the file may have been empty then: its descriptor would have
	 * the other one's bytes, too. */
	if (r == 0 && t->segment->given != cow__tile_start(t))
		r = -ENOTSUP;
	if (r == 0)
		r = cow__descriptor_dup(&t->segment->file, ret);
	if (r == 0)
		*ret_offset = cow__segment_offset(cow__tile_start(t));
	return r;
}

/* SPDX-License-Identifier: MIT */
/*
 * Strangers: what a process leaves behind in a file that others have
 *
 * A process that gives up privileges keeps its private mappings of the files of its
 * relatives, and nothing else of them (core/fork/border.h). For its relatives it leaves
 *
 *   a mark    a bit in the file's first word, which it can't reach any more. Nobody writes
 *             these pages in place again. The bit is never cleared.
 *   a lock    on the file's first byte, by a description that is open for reading alone. A
 *             mapping keeps it, also over forks, until the last descendant ends or execs.
 *             While it is held nobody gives pages back that strangers may read. A stranger
 *             that drops it harms itself alone.
 *   a seal    only if the process could open the file again by its mapping, for which the
 *             kernel wants a capability: F_SEAL_FUTURE_WRITE. It forbids to give pages back,
 *             too, so such a file goes as a whole. Then there is no lock.
 *
 * Nobody can open the file for writing who is not its owner: it has the mode 0600.
 */
#include "core/memory/segment.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/control.h"
#include "core/memory/holders.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/wait.h"

#define LOCK_AT 0 /* no other lock is taken on a segment */

COW_FORK_CODE void
cow__segment_note_left(struct cow__segment *s, uintptr_t at, size_t bytes)
{
	uint64_t from = cow__segment_offset(at);
	struct cow__span *last;

	if (!s || !bytes)
		return;
	last = s->nleft ? &s->left[s->nleft - 1] : NULL;
	if (last && last->end == from) {
		last->end += bytes;
		return;
	}
	if (cow__array_reserve((void **)&s->left, &s->left_cap, sizeof(*s->left),
	                       s->nleft + 1) < 0) {
		s->left_more = true;
		return;
	}
	s->left[s->nleft++] = (struct cow__span){ from, from + bytes };
}

void
cow__segments_before_fork(void)
{
	for (struct cow__tile *t = cow__engine.warm_first; t; t = t->list_next)
		if (t->own.segment && t->own.segment->forked)
			cow__segment_note_left(t->own.segment, cow__tile_start(t), t->bytes);
}

void
cow__segments_parent(void)
{
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		if (s->owner) {
			s->nleft = 0;
			s->left_more = false;
		}
}

bool
cow__segment_left(const struct cow__segment *s)
{
	if (!s->words || !(__atomic_load_n(&s->words[0], __ATOMIC_ACQUIRE) & COW__MARKED))
		return true;
	return cow__memfd_lock_taken(&s->file, LOCK_AT) == 0;
}

static int
punch_file(const struct cow__segment *s, uint64_t from, uint64_t bytes)
{
	int r = cow__memfd_punch(&s->file, from, bytes);

	if (r == 0)
		cow__stat_add(bytes_border_returned, bytes);
	return r;
}

static void
forget_left(struct cow__segment *s)
{
	cow__array_free(s->left, s->left_cap, sizeof(*s->left));
	s->left = NULL;
	s->nleft = s->left_cap = 0;
}

/* The parts of the file that are no tile's. Nobody's memory lies there. */
static int
punch_gaps(const struct cow__segment *s)
{
	uint64_t from = 0, start, end = cow__engine.end - cow__engine.start;
	int r = 0;

	for (struct cow__tile *t = cow__tile_first(); r == 0 && t; t = t->next) {
		if (t->own.segment != s || t->kind == COW__INNER)
			continue;
		start = cow__segment_offset(cow__tile_start(t));
		if (start > from)
			r = cow__memfd_punch(&s->file, from, start - from);
		from = start + t->bytes;
	}
	return r < 0 || from >= end ? r : cow__memfd_punch(&s->file, from, end - from);
}

void
cow__segments_return_filled(uint64_t now, bool all)
{
	static uint64_t last;
	uint64_t has, had;
	int r;

	if (!all && cow__elapsed(last, now) < COW__STRANGER_LOOK_NS)
		return;
	last = now;
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next) {
		if (!s->owner || s->single || !s->words ||
		    !(__atomic_load_n(&s->words[0], __ATOMIC_ACQUIRE) & COW__MARKED) ||
		    cow__memfd_has(&s->file, &has) < 0)
			continue;
		/* Its owner makes no new page outside of its tiles any more. */
		had = has;
		if (has > s->had + COW__STRANGER_LEAST) {
			r = punch_gaps(s);
			(void)cow__memfd_has(&s->file, &has);
			cow__stat_add(bytes_border_returned, had - cow__min(had, has));
			if (r < 0 && r != -EPERM) /* a sealed file goes as a whole */
				continue;
		}
		s->had = has;
	}
}

/* Not all of it could be noted: then the process can't stay in the file. */
int
cow__segment_forget_left(struct cow__segment *s)
{
	int r = s->left_more ? -ENOMEM : 0;

	for (uint32_t i = 0; r == 0 && i < s->nleft; i++)
		r = punch_file(s, s->left[i].start, s->left[i].end - s->left[i].start);
	if (r == 0)
		forget_left(s);
	return r;
}

/* Of a child, what was noted at the fork. Of the parent, what is free now. */
static int
punch_free(struct cow__segment *s)
{
	uint64_t bytes;
	int r;

	if (s->sealed || cow__memfd_check(s->file.fd, COW__SEALED_FUTURE, &bytes) == 0)
		return 0; /* the stranger that sealed it gave back the same */
	r = cow__segment_forget_left(s);
	for (struct cow__tile *t = cow__tile_first(); r == 0 && t; t = t->next)
		if (t->kind == COW__FREE && t->own.segment == s && cow__tile_heat(t) == COW__WARM)
			r = punch_file(s, cow__segment_offset(cow__tile_start(t)), t->bytes);
	return r;
}

/* Locks the file for those who would give its pages back. */
static int
lock_file(struct cow__segment *s)
{
	struct cow__descriptor d;
	int r = cow__memfd_reopen_to_read(&s->file, &d);

	if (r < 0)
		return r;
	r = cow__memfd_lock_take(&d, LOCK_AT, true);
	if (r == 0)
		r = cow__memfd_lock_keep(&d, &s->lock_at);
	cow__descriptor_close(&d);
	return r;
}

/* The program closed the descriptor. The mapping of the control part leads to the file, if the
 * process may use that way; only such a process needs it. */
static void
find_file_again(struct cow__segment *s)
{
	struct cow__descriptor d;

	if (!cow__descriptor_ok(&s->file) && s->control_tile &&
	    cow__memfd_reopen_mapped(cow__tile_start(s->control_tile),
	                             s->control_tile->bytes, &s->file, &d) == 0)
		s->file = d;
}

int
cow__segment_give_up(struct cow__segment *s, bool hard)
{
	int r;

	find_file_again(s);
	r = punch_free(s);
	/* Relatives that could not count this process never give back what it has. */
	if (r == 0 && !hard && s->words && lock_file(s) < 0)
		hard = true;
	if (r == 0 && hard && !s->sealed)
		r = cow__memfd_seal(&s->file, COW__SEALED_FUTURE);
	return r;
}

void
cow__segment_unlock(struct cow__segment *s)
{
	if (s->lock_at)
		(void)cow__map_release(s->lock_at, cow__page);
	s->lock_at = 0;
}

int
cow__segment_seal(struct cow__segment *s)
{
	struct cow__descriptor d;
	int r;

	if (!s->gone) {
		find_file_again(s);
		return s->sealed ? 0 : cow__memfd_seal(&s->file, COW__SEALED_FUTURE);
	}
	if (!s->lock_at)
		return 0;
	r = cow__memfd_reopen_mapped(s->lock_at, cow__page, &s->file, &d);
	if (r < 0)
		return r;
	r = cow__memfd_seal(&d, COW__SEALED_FUTURE);
	cow__descriptor_close(&d);
	if (r == 0) /* nobody can give its pages back any more */
		cow__segment_unlock(s);
	return r;
}

/* Unmaps what is mapped shared of the file besides live memory: free memory, and pages that only
 * other tiles show. Of pages with an open rewrite the caller has done it. A shared mapping could be
 * grown over the rest of the file, too. */
static int
unmap_shared(struct cow__segment *s)
{
	struct cow__tile *t;
	int r = 0;

	for (t = cow__tile_first(); r == 0 && t; t = t->next) {
		bool is_free = t->kind == COW__FREE;

		if (t->own.segment != s || t->map.backing != COW__SHARED ||
		    (!is_free && (t->kind != COW__LIMBO || t->own.open)))
			continue;
		if (is_free)
			cow__tile_unlist(t);
		cow__tile_change_begin(t);
		r = cow__map_none(cow__tile_start(t), t->bytes);
		t->map.backing = r == 0 ? COW__NONE : t->map.backing;
		if (r == 0 && is_free) {
			cow__segment_unref(s);
			t->own.segment = NULL;
			t->own.freed_at = 0;
			t->own.hollow = 0;
		}
		cow__tile_change_end(t);
		if (is_free)
			t = cow__tile_put(t);
	}
	return r;
}

int
cow__segment_gone(struct cow__segment *s)
{
	struct cow__descriptor file = s->file;
	int r = unmap_shared(s);

	if (r < 0)
		return r;

	if (s->words)
		__atomic_fetch_or(&s->words[0], COW__MARKED, __ATOMIC_RELEASE);
	r = cow__segment_control_end(s);
	if (r < 0)
		return r;
	cow__descriptor_close(&s->file);
	s->file.dev = file.dev; /* it may be found again, to be sealed */
	s->file.ino = file.ino;
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next)
		if (t->kind == COW__LIVE && t->own.segment == s)
			cow__stat_add(bytes_marked, t->bytes);
	s->owner = false;
	s->forked = s->marked = s->gone = true;
	forget_left(s);
	if (cow__engine.current == s)
		cow__engine.current = NULL;
	return 0;
}

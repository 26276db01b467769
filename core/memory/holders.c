/* SPDX-License-Identifier: MIT */
/*
 * Holders: which processes still map a tile's pages. See the header.
 */
#include "core/memory/holders.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/control.h"
#include "core/memory/engine.h"
#include "core/memory/tile.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/wait.h"

void
cow__words_forget(uint64_t bit)
{
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		for (uint32_t i = 0; s->words && i < s->nwords; i++)
			if (__atomic_load_n(&s->words[i], __ATOMIC_RELAXED) &
			    bit)
				__atomic_fetch_and(&s->words[i], ~bit,
				                   __ATOMIC_RELAXED);
}

static uint64_t *
word_of(const struct cow__tile *t)
{
	return t->own.word && t->own.segment && t->own.segment->words
	               ? &t->own.segment->words[t->own.word - 1]
	               : NULL;
}

static bool
is_holding_pages(const struct cow__tile *t)
{
	return t->own.segment && t->own.refs > 0 &&
	       (t->kind == COW__LIVE || t->kind == COW__LIMBO);
}

void
cow__words_add(uint64_t bit)
{
	uint64_t *word;

	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		if (s->words)
			__atomic_fetch_or(&s->words[0], bit, __ATOMIC_RELEASE);
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		word = is_holding_pages(t) ? word_of(t) : NULL;
		if (word)
			__atomic_fetch_or(word, bit, __ATOMIC_RELEASE);
	}
}

/* The bits of the processes that hold what is inherited in this fork. */
static uint64_t
holders_after_fork(void)
{
	return cow__slot_mine() | cow__slot_childs();
}

int
cow__holders_before_fork(void)
{
	int r;

	cow__slots_settle();
	r = cow__slots_before_fork();
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next) {
		if (r == 0 && s->owner && cow__segment_control(s) < 0)
			cow__fallback(COW_FALLBACK_SLOTS);
	}
	cow__engine.current = NULL;
	return r;
}

void
cow__holders_parent(void)
{
	cow__slots_parent();
}

COW_FORK_CODE void
cow__holders_child(void)
{
	cow__slots_child();
	if (cow__slot_mine())
		return;
	/* No slot in this family. The next fork founds another one, whose
	 * bits mean other processes: never use these words with them. */
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		s->words = NULL;
}

/* The child keeps the file. It closes all others in its first step, before code of the
 * program runs in it. */
static void
inherit_file(struct cow__segment *s)
{
	if (s->words)
		__atomic_fetch_or(&s->words[0], holders_after_fork(), __ATOMIC_RELEASE);
	s->forked = true;
}

static void
inherit_tile(struct cow__tile *t)
{
	uint64_t *word;

	inherit_file(t->own.segment);

	/* Inherited without a word: the segment's word has the earlier
	 * holders. */
	if (!t->own.word && !t->own.held)
		t->own.word = cow__segment_word_new(t->own.segment);
	t->own.held = cow__max(t->own.held, COW__HELD_COUNTED);
	word = word_of(t);
	if (word)
		__atomic_fetch_or(word, holders_after_fork(), __ATOMIC_RELEASE);
	else
		t->own.word = 0;
	if (cow__slot_childs() == COW__UNCOUNTED || (!word && !t->own.segment->words))
		t->own.held = COW__HELD_UNCOUNTED;
}

void
cow__holders_inherit(struct cow__tile *t)
{
	/* Spare pages are not for the child, nor what a rewrite has begun to
	 * write. A child that is slow to start would keep the parent from them. */
	if (is_holding_pages(t) && t->own.refs > t->own.open)
		inherit_tile(t);
}

/* Other living holders of a word; forgets the dead ones. */
static uint64_t
others_alive(uint64_t *word, struct cow__census *c)
{
	uint64_t bits, alive, dead;

	/* A holder that died meanwhile may have forked before. The slots of the
	 * dead are kept locked now, so the second look is final. */
	do {
		bits = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		alive = cow__slots_living(bits, c);
	} while (!alive && (__atomic_load_n(word, __ATOMIC_ACQUIRE) & ~bits));
	dead = bits & c->asked & ~c->alive & ~cow__slot_mine();

	if (dead)
		__atomic_fetch_and(word, ~dead, __ATOMIC_RELAXED);
	return alive;
}

bool
cow__holders_apart(struct cow__segment *s, struct cow__census *c)
{
	if (!s->forked)
		return true;
	/* The mark comes second. A process sets it before it lets go of its slot, so
	 * whoever finds the slot free finds the mark, too. */
	if (s->marked || !s->words || others_alive(&s->words[0], c))
		return false;
	s->marked = __atomic_load_n(&s->words[0], __ATOMIC_ACQUIRE) & COW__MARKED;
	s->forked = s->marked;
	return !s->marked;
}

bool
cow__holders_alone(const struct cow__tile *t, struct cow__census *c)
{
	if (!t->own.segment)
		return !t->own.held;
	return t->own.held != COW__HELD_UNCOUNTED && cow__holders_apart(t->own.segment, c);
}

bool
cow__holders_unread(const struct cow__tile *t, struct cow__census *c)
{
	uint64_t *word = word_of(t);

	if (t->own.held == COW__HELD_UNCOUNTED)
		return false;
	if (!t->own.segment || !t->own.segment->forked)
		return true;
	/* Without a word of its own: the file's. */
	if (!word && t->own.held)
		word = t->own.segment->words;
	if (word ? others_alive(word, c) != 0 : t->own.held)
		return false;
	/* Asked after the slots, and anew for each tile: a process that leaves its family locks the
	 * file before it lets go of its slot. */
	return cow__segment_left(t->own.segment);
}

bool
cow__holders_drop(struct cow__tile *t, struct cow__census *c,
                  int (*punch)(struct cow__tile *t))
{
	uint64_t *word = word_of(t);
	bool unread = cow__holders_unread(t, c);

	if (unread && punch && punch(t) < 0)
		cow__stat_add(bytes_limbo, t->bytes);
	if (!word) {
		if (unread)
			t->own.held = COW__HELD_NEVER;
		return unread;
	}
	/* A shared bit stays, for the others. */
	__atomic_fetch_and(word, ~cow__slot_mine() | COW__SHARED_BIT, __ATOMIC_RELEASE);
	if (unread && t->own.segment->owner) {
		cow__segment_word_free(t->own.segment, t->own.word);
		t->own.word = 0;
		t->own.held = COW__HELD_NEVER;
	}
	return unread;
}

void
cow__holders_reset(struct cow__segment *s)
{
	for (struct cow__tile *t = cow__tile_first(); t; t = t->next) {
		if (t->own.segment != s)
			continue;
		if (t->own.word && s->owner && s->words)
			cow__segment_word_free(s, t->own.word);
		t->own.word = 0;
		t->own.held = COW__HELD_NEVER;
	}
	if (s->words)
		__atomic_store_n(&s->words[0], 0, __ATOMIC_RELAXED);
}

void
cow__holders_refresh(void)
{
	struct cow__census c = { .asked = 0 };

	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		if (s->owner)
			(void)cow__holders_apart(s, &c);
}

static COW_FORK_DATA uint64_t refreshed_at; /* 0: a child was reaped since */

void
cow__holders_refresh_due(void)
{
	uint64_t now;

	if (!cow__engine.forked_once)
		return;
	now = cow__now();
	if (now - __atomic_load_n(&refreshed_at, __ATOMIC_RELAXED) < COW__HOLDERS_REFRESH_NS)
		return;
	__atomic_store_n(&refreshed_at, now, __ATOMIC_RELAXED);
	cow__holders_refresh();
}

void
cow__holders_child_ended(void)
{
	__atomic_store_n(&refreshed_at, 0, __ATOMIC_RELAXED);
}

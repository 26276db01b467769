/* SPDX-License-Identifier: MIT */
/*
 * Holders: which processes still map a tile's pages. See the header.
 */
#include "core/memory/holders.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/memfd.h"

#define SLOTS 62
#define SHARED_SLOT 63 /* of all holders beyond the first 62 */
#define SHARED_BIT (1ull << SHARED_SLOT)
#define UNCOUNTED (1ull << 62) /* for processes that got no slot: never cleared */

struct slot {
	struct cow__descriptor file; /* the family's memfd, own description */
	uint64_t bit;                /* 0: no slot */
	uintptr_t anchor;            /* the mapping that keeps the lock */
};

static struct slot mine = { .file = { .fd = -1 } };
static struct slot childs = { .file = { .fd = -1 } };
static uint64_t used_slots; /* ever, as far as this process knows */
static uint64_t dead_slots; /* locked by us, so that they stay dead */

static void
slot_close(struct slot *s)
{
	if (s->anchor)
		(void)cow__map_release(s->anchor, cow__page);
	cow__descriptor_close(&s->file);
	*s = (struct slot){ .file = COW__NO_DESCRIPTOR };
}

/* Forgets a dead holder's bit before its slot gets a new owner. */
static void
sweep_bit(uint64_t bit)
{
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		for (uint32_t i = 0; s->words && i < s->nwords; i++)
			if (__atomic_load_n(&s->words[i], __ATOMIC_RELAXED) &
			    bit)
				__atomic_fetch_and(&s->words[i], ~bit,
				                   __ATOMIC_RELAXED);
}

static int
slot_lock(struct slot *s)
{
	/* Fresh numbers first. A number that was used may have left bits in
	 * segments of relatives, and would seem to hold them again. */
	for (int pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < SLOTS; i++) {
			uint64_t bit = 1ull << i;
			int r;

			if (((used_slots & bit) != 0) != pass)
				continue;
			r = cow__memfd_lock_take(&s->file, i, false);
			if (r == -EAGAIN || r == -EACCES) {
				used_slots |= bit;
				continue;
			}
			if (r < 0)
				return r;
			s->bit = bit;
			if (used_slots & bit)
				sweep_bit(bit);
			used_slots |= bit;
			return 0;
		}
	cow__fallback(COW_FALLBACK_SLOTS);
	s->bit = SHARED_BIT;
	return cow__memfd_lock_take(&s->file, SHARED_SLOT, true);
}

/* A slot on the memfd `of`, which may be the caller's own descriptor. */
static int
slot_open(const struct cow__descriptor *of, struct slot *ret)
{
	struct slot s = { .file = COW__NO_DESCRIPTOR };
	int r = cow__memfd_reopen(of, &s.file);

	if (r == 0)
		r = slot_lock(&s);
	if (r == 0)
		r = cow__map_reserve(cow__page, cow__page, &s.anchor);
	if (r == 0)
		r = cow__map_shared(s.anchor, cow__page, &s.file, 0, true);
	if (r < 0) {
		slot_close(&s);
		return r;
	}
	*ret = s;
	return 0;
}

static int
family_found(void)
{
	struct cow__descriptor family;
	int r = cow__memfd_new("cowshed-family", cow__page, &family);

	if (r < 0)
		return r;
	r = slot_open(&family, &mine);
	cow__descriptor_close(&family);
	/* If that is refused, children keep our lock alive after our death: pages
	 * are kept for longer than need be. */
	if (r == 0)
		(void)cow__map_inherit(mine.anchor, cow__page, false);
	return r;
}

/* The bits of the processes that hold what is inherited in this fork. */
static uint64_t
after_fork(void)
{
	return mine.bit | (childs.bit ? childs.bit : UNCOUNTED);
}

int
cow__holders_before_fork(void)
{
	int r = 0;

	cow__holders_settle();
	if (!mine.bit)
		r = family_found();
	if (r == 0)
		r = slot_open(&mine.file, &childs);
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next) {
		if (r == 0 && s->owner && cow__segment_control(s) < 0)
			cow__fallback(COW_FALLBACK_SLOTS);
		if (s->words)
			__atomic_fetch_or(&s->words[0], after_fork(),
			                  __ATOMIC_RELEASE);
		s->forked = true;
	}
	cow__engine.current = NULL;
	return r;
}

void
cow__holders_parent(void)
{
	if (childs.bit)
		slot_close(&childs);
}

void
cow__holders_child(void)
{
	/* The parent's descriptor would keep the parent's lock alive. Its
	 * anchor was not inherited. */
	cow__descriptor_close(&mine.file);
	mine = childs;
	childs = (struct slot){ .file = COW__NO_DESCRIPTOR };
	if (mine.bit) {
		(void)cow__map_inherit(mine.anchor, cow__page, false);
		return;
	}
	/* No slot in this family. The next fork founds another one, whose
	 * bits mean other processes: never use these words with them. */
	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		s->words = NULL;
}

static uint64_t *
word_of(const struct cow__tile *t)
{
	return t->word && t->segment && t->segment->words
	               ? &t->segment->words[t->word - 1]
	               : NULL;
}

void
cow__holders_inherit(struct cow__tile *t)
{
	uint64_t *word;

	/* Inherited without a word: the segment's word has the earlier
	 * holders. */
	if (!t->word && !t->inherited)
		t->word = cow__segment_word_new(t->segment);
	t->inherited = true;
	word = word_of(t);
	if (word)
		__atomic_fetch_or(word, after_fork(), __ATOMIC_RELEASE);
	else
		t->word = 0;
	t->uncounted |= !childs.bit || (!word && !t->segment->words);
}

/* Which of these bits belong to living holders other than this process? Slots of
 * dead holders are kept locked until the engine is unlocked. Otherwise a
 * relative's new child could get one meanwhile, and would be taken for dead. Any
 * number of processes take the shared slot, so it can't be kept. It is asked
 * last, and each time. The holders whose children may be in it are known to be
 * gone by then. This process may be in it, too. */
static uint64_t
living(uint64_t bits, struct cow__census *c)
{
	uint64_t alive;

	bits &= ~mine.bit | SHARED_BIT;
	while (bits & ~c->asked & ~(UNCOUNTED | SHARED_BIT)) {
		uint64_t bit = bits & ~c->asked & ~(UNCOUNTED | SHARED_BIT);
		int r;

		bit &= -bit;
		c->asked |= bit;
		r = cow__memfd_lock_take(&mine.file,
		                         (uint64_t)__builtin_ctzll(bit), false);
		if (r == 0)
			dead_slots |= bit;
		else /* also when it can't be asked */
			c->alive |= bit;
	}
	alive = bits & (c->alive | UNCOUNTED);
	if (!alive && (bits & SHARED_BIT) &&
	    cow__memfd_lock_taken(&mine.file, SHARED_SLOT) != 0)
		alive = SHARED_BIT;
	return alive;
}

/* Other living holders of a word; forgets the dead ones. */
static uint64_t
others(uint64_t *word, struct cow__census *c)
{
	uint64_t bits, alive, dead;

	/* A holder that died meanwhile may have forked before. The slots of the
	 * dead are kept locked now, so the second look is final. */
	do {
		bits = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		alive = living(bits, c);
	} while (!alive && (__atomic_load_n(word, __ATOMIC_ACQUIRE) & ~bits));
	dead = bits & c->asked & ~c->alive;

	if (dead)
		__atomic_fetch_and(word, ~dead, __ATOMIC_RELAXED);
	return alive;
}

bool
cow__holders_alone(const struct cow__tile *t, struct cow__census *c)
{
	uint64_t *word = word_of(t);

	if (t->uncounted)
		return false;
	if (word)
		return others(word, c) == 0;
	if (!t->inherited)
		return true;
	/* There were no words left: ask for the whole segment. */
	return t->segment->words && others(&t->segment->words[0], c) == 0;
}

bool
cow__holders_drop(struct cow__tile *t, struct cow__census *c,
                  int (*punch)(struct cow__tile *t))
{
	uint64_t *word = word_of(t);
	bool alone = cow__holders_alone(t, c);

	if (!word) {
		t->inherited &= !alone;
		return alone;
	}
	if (alone && punch && punch(t) < 0)
		cow__stat_add(bytes_limbo, t->bytes);
	/* A shared bit stays, for the others. */
	__atomic_fetch_and(word, ~mine.bit | SHARED_BIT, __ATOMIC_RELEASE);
	if (alone && t->segment->owner) {
		cow__segment_word_free(t->segment, t->word);
		t->word = 0;
		t->inherited = false;
	}
	return alone;
}

void
cow__holders_settle(void)
{
	for (; dead_slots; dead_slots &= dead_slots - 1)
		(void)cow__memfd_lock_drop(
		        &mine.file, (uint64_t)__builtin_ctzll(dead_slots));
}

void
cow__holders_refresh(void)
{
	struct cow__census c = { 0, 0 };

	for (struct cow__segment *s = cow__engine.segments; s; s = s->next)
		if (s->owner && s->forked && s->words &&
		    others(&s->words[0], &c) == 0)
			s->forked = false;
}

/* SPDX-License-Identifier: MIT */
/*
 * Slots: which processes of a family live. See the header.
 */
#include "core/memory/slots.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/wait.h"

#define SLOTS 61
#define ALL (((uint64_t)1 << SLOTS) - 1)
#define SHARED_SLOT 63

struct slot {
	struct cow__descriptor file; /* the family's memfd, own description */
	uint64_t bit;                /* 0: no slot */
	uintptr_t anchor;            /* the mapping that keeps the lock */
};

#define NO_SLOT ((struct slot){ .file = { .fd = -1 } })

static struct slot mine = { .file = { .fd = -1 } };
static struct slot childs = { .file = { .fd = -1 } };
static struct slot lent = { .file = { .fd = -1 } }; /* for many children */
static bool borrowed COW_FORK_DATA; /* relatives have the description of `mine`, too */
static bool lending COW_FORK_DATA; /* the coming child gets `lent` */

static unsigned forks_lent COW_FORK_DATA; /* children that got the one that is open */
static uint64_t lent_at COW_FORK_DATA; /* since when it is open */
static unsigned closed COW_FORK_DATA; /* ones before it that may have living holders */

static uint64_t used_slots COW_FORK_DATA; /* ever, as far as this process knows */
static uint64_t dead_slots COW_FORK_DATA; /* locked by us, so that they stay dead */
static uint64_t last_alive COW_FORK_DATA; /* the bit to ask first */
static unsigned next_slot COW_FORK_DATA; /* where the search among used ones goes on */
static unsigned skips COW_FORK_DATA; /* forks for which there is no search */

static void
slot_close(struct slot *s)
{
	if (s->anchor)
		(void)cow__map_release(s->anchor, cow__page);
	cow__descriptor_close(&s->file);
	*s = NO_SLOT;
}

/* 1: locked, 0: somebody has it, or -errno. */
static int
slot_try_lock(struct slot *s, unsigned i)
{
	uint64_t bit = 1ull << i;
	int r = cow__memfd_lock_take(&s->file, i, false);

	if (r == 0) {
		s->bit = bit;
		if (used_slots & bit)
			cow__words_forget(bit);
	} else if (r != -EAGAIN && r != -EACCES) {
		return r;
	}
	used_slots |= bit;
	return r == 0;
}

/* Takes a slot of one holder. Fresh numbers first. A number that was used may have
 * left bits in segments of relatives, and would seem to hold them again. */
static int
slot_search(struct slot *s)
{
	int r = 0;

	while (r == 0 && (~used_slots & ALL))
		r = slot_try_lock(s, (unsigned)__builtin_ctzll(~used_slots & ALL));
	for (unsigned i = 0; r == 0 && i < SLOTS; i++) {
		r = slot_try_lock(s, next_slot);
		next_slot = (next_slot + 1) % SLOTS;
	}
	if (r == 0)
		skips = COW__SLOT_SKIPS;
	return r;
}

static int
slot_lock(struct slot *s, bool search)
{
	int r = search ? slot_search(s) : 0;

	if (r != 0)
		return r < 0 ? r : 0;
	s->bit = COW__SHARED_BIT;
	return cow__memfd_lock_take(&s->file, SHARED_SLOT, true);
}

/* A slot on the memfd `of`, which may be the caller's own descriptor. */
static int
slot_open(const struct cow__descriptor *of, bool search, struct slot *ret)
{
	struct slot s = NO_SLOT;
	int r = cow__memfd_reopen(of, &s.file);

	if (r == 0)
		r = slot_lock(&s, search);
	if (r == 0)
		r = cow__map_somewhere(cow__page, &s.file, &s.anchor);
	if (r < 0) {
		slot_close(&s);
		return r;
	}
	*ret = s;
	return 0;
}

/* If that is refused, children keep our lock alive after our death: pages are kept
 * for longer than need be. */
static void
slot_keep_for_me(const struct slot *s)
{
	(void)cow__map_inherit(s->anchor, cow__page, false);
}

static int
family_new(void)
{
	struct cow__descriptor family;
	int r = cow__memfd_new("cowshed-family", cow__page, &family);

	if (r < 0)
		return r;
	r = slot_open(&family, true, &mine);
	cow__descriptor_close(&family);
	if (r == 0)
		slot_keep_for_me(&mine);
	return r;
}

/* The child gets the description that earlier ones have. */
static int
slot_lend(void)
{
	int r = 0;

	if (!lent.bit) {
		r = slot_open(&mine.file, false, &lent);
		lent_at = cow__now();
		forks_lent = 0;
	} else {
		r = cow__map_inherit(lent.anchor, cow__page, true);
	}
	if (r < 0)
		return r;
	cow__fallback(COW_FALLBACK_SLOTS);
	forks_lent++;
	lending = true;
	return 0;
}

int
cow__slots_before_fork(void)
{
	int r = 0;

	if (!mine.bit)
		r = family_new();
	if (r < 0)
		return r;
	if (skips > 0) {
		skips--;
		return slot_lend();
	}
	r = slot_open(&mine.file, true, &childs);
	if (r < 0 || childs.bit != COW__SHARED_BIT)
		return r;
	if (lent.bit) {
		slot_close(&childs);
		return slot_lend();
	}
	lent = childs;
	childs = NO_SLOT;
	lent_at = cow__now();
	forks_lent = 0;
	return slot_lend();
}

COW_FORK_CODE uint64_t
cow__slot_mine(void)
{
	return mine.bit;
}

COW_FORK_CODE uint64_t
cow__slot_childs(void)
{
	if (lending)
		return COW__SHARED_BIT;
	return childs.bit ? childs.bit : COW__UNCOUNTED;
}

void
cow__slots_parent(void)
{
	if (lending)
		slot_keep_for_me(&lent);
	lending = false;
	if (childs.bit)
		slot_close(&childs);
}

COW_FORK_CODE void
cow__slots_child(void)
{
	/* The parent's descriptors would keep the locks alive. The anchors of those
	 * that are not for this child were not inherited. */
	cow__descriptor_close(&mine.file);
	mine = lending ? lent : childs;
	borrowed = lending;
	if (!lending)
		cow__descriptor_close(&lent.file);
	lent = childs = NO_SLOT;
	lending = false;
	closed = skips = 0;
	if (mine.bit)
		slot_keep_for_me(&mine);
}

/* Gets a description, and if possible a slot, that no relative has. */
static bool
slot_own(void)
{
	struct slot s;

	if (slot_open(&mine.file, skips == 0, &s) < 0)
		return false;
	slot_keep_for_me(&s);
	/* Whoever finds the old lock free looks at the words again. */
	cow__words_add(s.bit);
	slot_close(&mine);
	mine = s;
	borrowed = false;
	return true;
}

/* A borrowed description has locks that are not this process's alone. So it takes
 * none: it asks, and gets one of its own if nobody has the lock. */
static bool
slot_seems_free(unsigned slot)
{
	return !borrowed ||
	       (cow__memfd_lock_taken(&mine.file, slot) == 0 && slot_own());
}

static bool
slot_lives(uint64_t bit)
{
	unsigned slot = (unsigned)__builtin_ctzll(bit);

	if (!slot_seems_free(slot))
		return true;
	if (bit == mine.bit) /* since slot_seems_free() */
		return false;
	if (cow__memfd_lock_take(&mine.file, slot, false) != 0)
		return true; /* also when it can't be asked */
	dead_slots |= bit;
	skips = 0;
	return false;
}

/* May the description that this process lends be closed? */
static bool
slot_lent_enough(void)
{
	return closed < COW__SLOTS_CLOSED_AT_ONCE || forks_lent >= closed ||
	       cow__now() - lent_at >= (uint64_t)closed * COW__SLOT_LENT_NS;
}

/* Any number of processes take the shared slot, so it can't be kept locked. It is
 * asked last, and each time. The holders whose children may be in it are known to be
 * gone by then. This process may be in it, too. */
static bool
shared_slot_lives(void)
{
	if (!slot_seems_free(SHARED_SLOT))
		return true;
	if (lent.bit) {
		if (!slot_lent_enough())
			return true;
		slot_close(&lent);
		closed++;
	}
	if (cow__memfd_lock_taken(&mine.file, SHARED_SLOT) != 0)
		return true;
	closed = 0;
	return false;
}

COW_FORK_CODE uint64_t
cow__slots_living(uint64_t bits, struct cow__census *c)
{
	uint64_t left, bit;

	bits &= ~mine.bit | COW__SHARED_BIT;
	if (bits & (c->alive | COW__UNCOUNTED))
		return bits & (c->alive | COW__UNCOUNTED);
	while ((left = bits & ~c->asked & ~mine.bit & ALL)) {
		bit = left & last_alive ? last_alive : left & -left;
		c->asked |= bit;
		if (slot_lives(bit)) {
			c->alive |= bit;
			last_alive = bit;
			return bit;
		}
	}
	if ((bits & COW__SHARED_BIT) && shared_slot_lives()) {
		c->alive |= COW__SHARED_BIT;
		return COW__SHARED_BIT;
	}
	return 0;
}

void
cow__slots_leave(void)
{
	slot_close(&mine);
	slot_close(&lent);
	slot_close(&childs);
	borrowed = lending = false;
	used_slots = dead_slots = last_alive = 0;
	forks_lent = closed = next_slot = skips = 0;
}

void
cow__slots_settle(void)
{
	for (; dead_slots; dead_slots &= dead_slots - 1)
		(void)cow__memfd_lock_drop(
		        &mine.file, (uint64_t)__builtin_ctzll(dead_slots));
}

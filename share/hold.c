/* SPDX-License-Identifier: MIT */
/*
 * Who holds what: rows of bits. See share/pack.h.
 *
 * Row n belongs to who has slot n. Nobody else writes it, but for the receiver of
 * a message, who takes the message's bits over and then clears them.
 */
#include "core/base/base.h"
#include "memfd/map.h"
#include "memfd/wait.h"
#include "share/layout.h"

#define TRIES 1000 /* some hundred microseconds */

static uint64_t *
word(const struct cow__pack *p, uint32_t row, bool leaving, uint32_t page)
{
	return (uint64_t *)(p->rows + cow__row_offset(p->pages, row, leaving)) +
	       page / 64;
}

static uint64_t
bit(uint32_t page)
{
	return 1ull << (page % 64);
}

static uint32_t *
row_epoch(const struct cow__pack *p, uint32_t row)
{
	return &p->head->row_epoch[row];
}

/* Bits of earlier owners of the slot go, and the row begins to count. */
static void
row_begin(struct cow__pack *p, const struct cow__slot *s)
{
	uint32_t *epoch = row_epoch(p, s->number);
	uint32_t now = __atomic_load_n(epoch, __ATOMIC_RELAXED);

	if (now == s->epoch)
		return;
	if (now != 0)
		for (int leaving = 0; leaving < 2; leaving++) {
			char *row = p->rows + cow__row_offset(p->pages,
			                                      s->number,
			                                      leaving);

			if (cow__map_punch((uintptr_t)row,
			                   cow__row_bytes(p->pages)) < 0)
				memset(row, 0, cow__row_bytes(p->pages));
		}
	__atomic_store_n(epoch, s->epoch, __ATOMIC_RELEASE);
}

/* Does what row `n` says count? */
static bool
row_counts(const struct cow__pack *p, uint32_t n, struct cow__roll *r)
{
	uint32_t epoch = __atomic_load_n(row_epoch(p, n), __ATOMIC_ACQUIRE);
	struct cow_group *g = p->group;

	if (epoch == 0 || n == COW__CROWD)
		return epoch != 0;
	if (epoch != cow__slot_epoch(g, n) || epoch == g->dead[n])
		return false;
	if (r->alive[n / 64] & bit(n))
		return true;
	/* Who takes the slot next has another epoch. */
	if (!cow__slot_alive(g, n)) {
		g->dead[n] = epoch;
		return false;
	}
	r->alive[n / 64] |= bit(n);
	return true;
}

void
cow__hold_set(struct cow__pack *p, const struct cow__slot *s, uint32_t page)
{
	row_begin(p, s);
	__atomic_fetch_or(word(p, s->number, false, page), bit(page),
	                  __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->head->moves, 1, __ATOMIC_SEQ_CST);
}

bool
cow__hold_has(const struct cow__pack *p, const struct cow__slot *s,
              uint32_t page)
{
	return __atomic_load_n(row_epoch(p, s->number), __ATOMIC_ACQUIRE) ==
	               s->epoch &&
	       (__atomic_load_n(word(p, s->number, false, page),
	                        __ATOMIC_ACQUIRE) &
	        bit(page));
}

void
cow__hold_clear(struct cow__pack *p, const struct cow__slot *s, uint32_t page)
{
	if (s->number != COW__CROWD)
		__atomic_fetch_and(word(p, s->number, false, page), ~bit(page),
		                   __ATOMIC_SEQ_CST);
}

void
cow__hold_landed(struct cow__pack *p, const struct cow__slot *s)
{
	uint32_t epoch = s->epoch;

	/* Clean again: its next owner need not sweep it. */
	(void)__atomic_compare_exchange_n(row_epoch(p, s->number), &epoch, 0,
	                                  false, __ATOMIC_RELEASE,
	                                  __ATOMIC_RELAXED);
}

enum rest {
	NOBODY,   /* else holds it */
	FOLLOWED, /* by who leaves, too, and has a higher slot */
	LEAVING,  /* who is about to go, and has a lower slot */
	STAYING,
};

static enum rest
look(struct cow__pack *p, uint32_t page, struct cow__roll *r, bool leaving)
{
	uint32_t mine = p->group->mine.number;
	enum rest rest = NOBODY;

	for (uint32_t n = 0; n < COW__ROWS; n++) {
		bool goes;

		if ((n == mine && n != COW__CROWD) ||
		    !__atomic_load_n(row_epoch(p, n), __ATOMIC_RELAXED) ||
		    !(__atomic_load_n(word(p, n, false, page),
		                      __ATOMIC_SEQ_CST) & bit(page)))
			continue;
		goes = leaving && (__atomic_load_n(word(p, n, true, page),
		                                   __ATOMIC_SEQ_CST) &
		                   bit(page));
		/* Or gone since: the one bit is cleared after the other. */
		if (leaving && !goes &&
		    !(__atomic_load_n(word(p, n, false, page),
		                      __ATOMIC_SEQ_CST) & bit(page)))
			continue;
		if (!row_counts(p, n, r))
			continue;
		if (!goes)
			return STAYING;
		if (n < mine)
			rest = LEAVING;
		else if (rest == NOBODY)
			rest = FOLLOWED;
	}
	return rest;
}

/* Who else holds it and counts? While leaving, who leaves with a higher slot does
 * not: it waits for us.
 *
 * Rows are looked at one after the other, and a hold may move meanwhile from a row
 * not yet seen to one that was: from a message to its receiver. The new bit is set
 * first, then the move is counted, then the old bit cleared. So if no bit was seen
 * and no move counted, there was none. */
static enum rest
others(struct cow__pack *p, uint32_t page, struct cow__roll *r, bool leaving)
{
	uint64_t before, after;
	enum rest rest;

	after = __atomic_load_n(&p->head->moves, __ATOMIC_SEQ_CST);
	do {
		before = after;
		rest = look(p, page, r, leaving);
		after = __atomic_load_n(&p->head->moves, __ATOMIC_SEQ_CST);
	} while (rest <= FOLLOWED && before != after);
	return rest;
}

bool
cow__hold_alone(struct cow__pack *p, uint32_t page, struct cow__roll *r)
{
	return others(p, page, r, false) == NOBODY;
}

/* Of two that leave at once each may have looked before the other said so. The
 * one with the higher slot waits until the lower one knows: then it is alone, or
 * the pages are gone already, and giving them back twice does no harm - unless the
 * owner was the lower one and had used them again in between: so it does that only
 * when the other one is gone, too. A stopped process is not waited for: its pages
 * wait for the owner. */
bool
cow__hold_last(struct cow__pack *p, uint32_t page, struct cow__roll *r,
               bool *ret_only)
{
	const struct cow__slot *s = &p->group->mine;
	struct cow__roll again;
	enum rest rest;

	*ret_only = false;
	if (s->number == COW__CROWD)
		return false; /* nobody leaves a crowd: who is left is not known */
	row_begin(p, s);
	__atomic_fetch_or(word(p, s->number, true, page), bit(page),
	                  __ATOMIC_SEQ_CST);
	rest = others(p, page, r, true);
	for (int i = 0; rest == LEAVING && i < TRIES; i++) {
		cow__yield();
		again = (struct cow__roll){ { 0 } };
		rest = others(p, page, &again, true);
	}
	*ret_only = rest == NOBODY;
	return rest <= FOLLOWED;
}

void
cow__hold_left(struct cow__pack *p, uint32_t page)
{
	const struct cow__slot *s = &p->group->mine;

	if (s->number == COW__CROWD)
		return;
	cow__hold_clear(p, s, page);
	__atomic_fetch_and(word(p, s->number, true, page), ~bit(page),
	                   __ATOMIC_RELEASE);
}

void
cow__hold_inherit(struct cow__pack *p, const struct cow__slot *child)
{
	const struct cow__slot *mine = &p->group->mine;
	const uint64_t *from = word(p, mine->number, false, 0);
	uint64_t *to = word(p, child->number, false, 0);

	if (__atomic_load_n(row_epoch(p, mine->number), __ATOMIC_RELAXED) !=
	    mine->epoch)
		return; /* we hold nothing */
	row_begin(p, child);
	for (uint32_t i = 0; i <= p->highest / 64; i++)
		if (from[i])
			__atomic_fetch_or(&to[i], from[i], __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->head->moves, 1, __ATOMIC_SEQ_CST);
}

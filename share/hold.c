/* SPDX-License-Identifier: MIT */
/*
 * Rows of bits that say who holds what. See the header.
 *
 * The owner of slot n alone writes row n. The one exception is a message's row: the
 * receiver sets its own bits, then clears the message's.
 */
#include "share/hold.h"
#include "core/base/base.h"
#include "memfd/map.h"
#include "memfd/wait.h"

#define TRIES 1000 /* of one yield each: some hundred microseconds */

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

/* Clears the bits of earlier owners of the slot; then the row counts. */
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

/* Does row `n` count: is its slot's owner alive, and did that owner write it? */
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
	/* The next owner of the slot has another epoch. */
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

	/* Clean again: the slot's next owner need not clear it. */
	(void)__atomic_compare_exchange_n(row_epoch(p, s->number), &epoch, 0,
	                                  false, __ATOMIC_RELEASE,
	                                  __ATOMIC_RELAXED);
}

enum rest {
	NOBODY,   /* no other slot holds it */
	FOLLOWED, /* only slots that are leaving, too, all higher than ours */
	LEAVING,  /* only slots that are leaving, too, at least one lower than ours */
	STAYING,  /* a slot that is not leaving */
};

static enum rest
scan_rows(struct cow__pack *p, uint32_t page, struct cow__roll *r, bool leaving)
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
		/* It may have left meanwhile: it clears one bit after the other. */
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

/* Which other slots hold it? `leaving`: we are leaving, and higher slots that are leaving,
 * too, wait for us.
 *
 * Rows are read one after the other. Meanwhile a hold may move from a message's row to
 * its receiver's: from a row that was not read yet to one that was. The receiver sets its
 * bit, then counts the move, then clears the message's bit. So if no bit was seen and no
 * move was counted, there was none. */
static enum rest
others(struct cow__pack *p, uint32_t page, struct cow__roll *r, bool leaving)
{
	uint64_t before, after;
	enum rest rest;

	after = __atomic_load_n(&p->head->moves, __ATOMIC_SEQ_CST);
	do {
		before = after;
		rest = scan_rows(p, page, r, leaving);
		after = __atomic_load_n(&p->head->moves, __ATOMIC_SEQ_CST);
	} while (rest <= FOLLOWED && before != after);
	return rest;
}

bool
cow__hold_alone(struct cow__pack *p, uint32_t page, struct cow__roll *r)
{
	return others(p, page, r, false) == NOBODY;
}

/* Two slots that leave at once may each look before the other has set its leaving bit.
 * The higher slot waits until the lower one has gone or stays. Then it is alone, or the
 * lower one gave the pages back already. To give them back twice does no harm, unless the
 * lower one is the owner and used the pages again in between. So the owner uses them again
 * only when no other slot holds them (*ret_only). After TRIES nobody waits for a stopped
 * process any more: the pages wait for the pack's owner. */
bool
cow__hold_last(struct cow__pack *p, uint32_t page, struct cow__roll *r,
               bool *ret_only)
{
	const struct cow__slot *s = &p->group->mine;
	struct cow__roll again;
	enum rest rest;

	*ret_only = false;
	if (s->number == COW__CROWD)
		return false; /* the crowd's row does not tell how many are left */
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

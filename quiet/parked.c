/* SPDX-License-Identifier: MIT */
/*
 * What the records of parked threads say: questions of a prover that has the floor (quiet/floor.h)
 */
#include "memfd/sys.h"
#include "quiet/floor.h"

bool
cow__park_all_live(void)
{
	bool all = true;

	for (struct cow__park_thread *t = cow__park_threads(); t; t = t->next)
		if (t->in_use && cow__park_counts(t) && cow__park_has_ended(t->id))
			all = t->in_use = false;
	return all;
}

bool
cow__park_knows(uint32_t id)
{
	for (struct cow__park_thread *t = cow__park_threads(); t; t = t->next)
		if (t->in_use && t->id == id)
			return cow__park_counts(t);
	return false;
}

bool
cow__park_may_wake(uintptr_t word)
{
	struct cow__park_range r;

	return cow__park_written(word, word + 1, &r);
}

/* pthread_self() is the address of libc's struct, which is of 2 KiB or more. */
bool
cow__park_joins(uintptr_t word)
{
	uint32_t self = (uint32_t)sys_gettid();

	for (struct cow__park_thread *t = cow__park_threads(); t; t = t->next)
		if (t->in_use && (t->now || t->id == self) &&
		    word - t->self < 2048)
			return true;
	return false;
}

static void
lowest(struct cow__park_range r, uintptr_t at, uintptr_t to,
       struct cow__park_range *ret)
{
	if (r.from < to && r.to > at && (!ret->to || r.from < ret->from))
		*ret = r;
}

bool
cow__park_written(uintptr_t at, uintptr_t to, struct cow__park_range *ret)
{
	*ret = (struct cow__park_range){ 0, 0 };
	for (struct cow__park_thread *t = cow__park_threads(); t; t = t->next) {
		const struct cow__park_call *call = (void *)(t->now & ~1ul);

		if (!t->in_use)
			continue;
		lowest(t->alternate, at, to, ret);
		for (uint32_t i = 0; call && i < call->n; i++)
			lowest(call->written[i], at, to, ret);
	}
	return ret->to != 0;
}

bool
cow__park_always_written(uintptr_t at, uintptr_t to, struct cow__park_range *ret)
{
	*ret = (struct cow__park_range){ 0, 0 };
	for (struct cow__park_thread *t = cow__park_threads(); t; t = t->next)
		if (t->in_use && t->sequences.to && !cow__park_has_ended(t->id))
			lowest(t->sequences, at, to, ret);
	return ret->to != 0;
}

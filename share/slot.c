/* SPDX-License-Identifier: MIT */
/*
 * Slots of a group. See the header.
 */
#include "share/slot.h"
#include "core/base/base.h"
#include "memfd/map.h"
#include "memfd/memfd.h"

COW_EXPORT struct cow__mutex cow__share_lock;

void
cow__slot_close(struct cow__slot *s)
{
	if (s->anchor)
		(void)cow__map_release(s->anchor, cow__page);
	cow__descriptor_close(&s->file);
	*s = COW__SLOT_NONE;
}

static int
slot_lock(struct cow_group *g, uint32_t limit, struct cow__slot *s)
{
	uint32_t from = __atomic_fetch_add(&g->page->hint, 1, __ATOMIC_RELAXED);

	for (uint32_t i = 0; i < limit; i++) {
		uint32_t n = (from + i) % limit;
		int r = cow__memfd_lock_take(&s->file, n, false);

		if (r == -EAGAIN || r == -EACCES)
			continue;
		if (r < 0)
			return r;
		s->number = n;
		/* Only the owner of the lock writes it. No owner has the epoch 0. */
		s->epoch = g->page->epoch[n] + 1;
		s->epoch += s->epoch == 0;
		__atomic_store_n(&g->page->epoch[n], s->epoch,
		                 __ATOMIC_RELEASE);
		return 0;
	}
	return -EAGAIN;
}

int
cow__slot_take(struct cow_group *g, uint32_t limit, struct cow__slot *ret)
{
	struct cow__slot s = COW__SLOT_NONE;
	int r = cow__memfd_reopen(&g->door, &s.file);

	if (r == 0)
		r = slot_lock(g, limit, &s);
	if (r < 0) {
		cow__slot_close(&s);
		return r;
	}
	*ret = s;
	return 0;
}

int
cow__slot_anchor(struct cow__slot *s)
{
	int r = cow__map_reserve(cow__page, cow__page, &s->anchor);

	return r < 0 ? r
	             : cow__map_shared(s->anchor, cow__page, &s->file, 0, true);
}

uint32_t
cow__slot_epoch(const struct cow_group *g, uint32_t number)
{
	return __atomic_load_n(&g->page->epoch[number], __ATOMIC_ACQUIRE);
}

bool
cow__slot_alive(struct cow_group *g, uint32_t number)
{
	/* If the kernel does not tell, it counts as alive: a page is kept too long. */
	return cow__memfd_lock_taken(&g->mine.file, number) != 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * fork, for memory that is shared with other processes. See the header.
 */
#include "share/fork.h"
#include "core/base/base.h"
#include "core/fork/fork.h"
#include "core/base/stats.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/ring.h"
#include "share/broker.h"
#include "share/channel.h"
#include "share/group.h"
#include "share/home.h"
#include "share/layout.h"

/* -errno: a pack could neither be made private nor be copied. The child must end. */
static int failed;

/* The pack stays shared in the parent. The child gets copies at its addresses. */
static int
copy_for_child(struct cow__pack *p, int reason)
{
	size_t bytes;
	int r = cow__homes_copy(p, &bytes);

	if (r == 0)
		cow__fallback_copied(reason == -EBADF ? COW_FALLBACK_DESCRIPTOR
		                                      : COW_FALLBACK_FREEZE,
		                     bytes);
	return r;
}

/* Puts the copies where the pack was. Until then the addresses stay reserved. */
static void
put_in_place(struct cow__pack *p)
{
	uintptr_t at = (uintptr_t)p->data;

	if (cow__map_none(at, p->bytes - cow__data_offset(p->pages)) < 0 ||
	    (p->copy && cow__map_move((uintptr_t)p->copy, p->copied, at) < 0))
		cow__process_exit(127);
	p->copy = NULL;
	p->retired = true;
}

static void
prepare_group(struct cow_group *g)
{
	int r = cow__slot_take(g, COW__SLOTS, &g->childs);

	if (r == 0)
		r = cow__slot_anchor(&g->childs);
	if (r < 0) {
		/* The crowd's row holds it, for ever. */
		cow__slot_close(&g->childs);
		g->childs.number = COW__CROWD;
		g->childs.epoch = COW__CROWD_EPOCH;
		cow__fallback(COW_FALLBACK_SLOTS);
	}
	for (struct cow__pack *p = g->packs; p; p = p->next) {
		cow__hold_inherit(p, &g->childs);
		r = cow__pack_retire(p);
		if (r < 0)
			r = copy_for_child(p, r);
		failed = failed ? failed : r;
	}
}

static bool
prepare_fork(bool try_only)
{
	/* A signal handler may have interrupted us here, too. */
	if (cow__mutex_is_mine(&cow__share_lock))
		return false;
	if (!try_only)
		cow__mutex_lock(&cow__share_lock);
	else if (!cow__mutex_try_lock(&cow__share_lock))
		return false;
	failed = 0;
	cow__homes_fork();
	for (struct cow_group *g = cow__groups; g; g = g->next)
		prepare_group(g);
	return true;
}

static int
parent(void)
{
	int r = failed;

	for (struct cow_group *g = cow__groups; g; g = g->next) {
		cow__slot_close(&g->childs);
		for (struct cow__pack *p = g->packs; p; p = p->next) {
			if (p->copy)
				(void)cow__map_release((uintptr_t)p->copy,
				                       p->copied);
			p->copy = NULL;
			p->severed &= p->retired;
		}
	}
	cow__share_leave();
	return r;
}

static void
child_early(void)
{
	if (failed)
		cow__process_exit(127);
	for (struct cow_group *g = cow__groups; g; g = g->next)
		for (struct cow__pack *p = g->packs; p; p = p->next)
			if (p->severed && !p->retired)
				put_in_place(p);
}

static void
child(void)
{
	for (struct cow_group *g = cow__groups; g; g = g->next) {
		/* The parent's anchor was not inherited; its descriptor would
		 * keep its lock. */
		cow__descriptor_close(&g->mine.file);
		g->mine = g->childs;
		g->childs = COW__SLOT_NONE;
		if (g->mine.anchor)
			(void)cow__map_inherit(g->mine.anchor, cow__page, false);
		cow__packs_child(g);
	}
	cow__homes_child();
	cow__channels_child();
	cow__brokers_child();
	cow__rings_child();
	cow__share_lock.state = 0;
}

void
cow__share_fork_init(void)
{
	static const struct cow__fork_hooks hooks = { prepare_fork, parent, child_early,
		                                     child };

	cow__fork_hook(&hooks);
	__atomic_store_n(&cow__storage_shared, cow__home_describe, __ATOMIC_RELEASE);
}

void
cow__share_enter(void)
{
	cow__share_fork_init();
	cow__mutex_lock(&cow__share_lock);
}

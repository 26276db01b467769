/* SPDX-License-Identifier: MIT */
/*
 * fork. See the header.
 */
#include "share/fork.h"
#include "core/base.h"
#include "core/fork.h"
#include "core/stats.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "memfd/ring.h"
#include "share/broker.h"
#include "share/channel.h"
#include "share/home.h"
#include "share/layout.h"

/* A pack could not be made private: the child must not go on. */
static bool failed;

static void
prepare_group(struct cow_group *g)
{
	int r = cow__slot_take(g, &g->childs);

	if (r == 0)
		r = cow__slot_anchor(&g->childs);
	if (r < 0) {
		/* Held for ever, then, by nobody in particular. */
		cow__slot_close(&g->childs);
		g->childs.number = COW__CROWD;
		g->childs.epoch = COW__CROWD_EPOCH;
		cow__fallback(COW_FALLBACK_SLOTS);
	}
	for (struct cow__pack *p = g->packs; p; p = p->next) {
		cow__hold_inherit(p, &g->childs);
		if (cow__pack_retire(p) < 0)
			failed = true;
	}
}

static bool
prepare(bool try_only)
{
	/* A signal handler may have interrupted us here, too. */
	if (cow__mutex_is_mine(&cow__share_lock))
		return false;
	if (!try_only)
		cow__mutex_lock(&cow__share_lock);
	else if (!cow__mutex_try_lock(&cow__share_lock))
		return false;
	failed = false;
	cow__homes_fork();
	for (struct cow_group *g = cow__groups; g; g = g->next)
		prepare_group(g);
	return true;
}

static void
parent(void)
{
	for (struct cow_group *g = cow__groups; g; g = g->next)
		cow__slot_close(&g->childs);
	cow__share_leave();
}

static void
child(void)
{
	if (failed)
		cow__process_exit(127);
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
	static const struct cow__fork_hooks hooks = { prepare, parent, child };

	cow__fork_hook(&hooks);
}

void
cow__share_enter(void)
{
	cow__share_fork_init();
	cow__mutex_lock(&cow__share_lock);
}

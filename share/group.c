/* SPDX-License-Identifier: MIT */
/*
 * Trust groups. See the header.
 */
#include "share/group.h"
#include "core/base/base.h"
#include "core/memory/state.h"
#include "core/base/error.h"
#include "core/cow/seal.h"
#include "core/memory/own_segment.h"
#include "core/base/pool.h"
#include "cowshed-share.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/process.h"
#include "memfd/probe.h"
#include "share/pack.h"

#define MAGIC 0x70756f7267776f63u /* "cowgroup" */
#define VERSION 1u

struct cow_group *cow__groups;

static struct cow__pool groups = { .object_bytes = sizeof(struct cow_group) };

struct cow_group *
cow__group_find(const struct cow__id *id)
{
	struct cow_group *g = cow__groups;

	while (g && (g->id.a != id->a || g->id.b != id->b))
		g = g->next;
	return g;
}

static void
group_free(struct cow_group *g)
{
	for (struct cow_group **p = &cow__groups; *p; p = &(*p)->next)
		if (*p == g) {
			*p = g->next;
			break;
		}
	cow__packs_free(g);
	cow__slot_close(&g->mine);
	cow__descriptor_close(&g->door);
	if (g->page)
		(void)cow__map_release((uintptr_t)g->page, cow__page);
	cow__pool_give(&groups, g);
}

void
cow__group_unref(struct cow_group *g)
{
	if (--g->refs == 0)
		group_free(g);
}

/* What a dead member held is free at once. Its pages stay until a process looks. */
static void
sweep_all(void)
{
	cow__share_enter();
	for (struct cow_group *g = cow__groups; g; g = g->next)
		cow__packs_sweep(g);
	cow__share_leave();
}

/* Maps the group's page; of a new group (`fresh`: its id) fills it. -EBADMSG: it is not a
 * group's. */
static int
map_page(struct cow_group *g, const struct cow__descriptor *file,
         const struct cow__id *fresh)
{
	struct cow__group_page *page;
	uintptr_t at;
	int r = cow__map_reserve(cow__page, cow__page, &at);

	if (r < 0)
		return r;
	g->page = page = (struct cow__group_page *)at;
	r = cow__map_shared(at, cow__page, file, 0, true);
	if (r < 0)
		return r;
	if (fresh) {
		page->magic = MAGIC;
		page->version = VERSION;
		page->bytes = sizeof(*page);
		page->id = *fresh;
	}
	return page->magic != MAGIC || page->version != VERSION ||
	                       page->bytes != sizeof(*page)
	               ? -EBADMSG
	               : 0;
}

/* Becomes a member: maps the page, takes a slot. `file` stays the caller's. */
static int
become_member(const struct cow__descriptor *file, const struct cow__id *fresh,
              struct cow_group **ret)
{
	struct cow_group *g = cow__pool_take(&groups);
	int r;

	if (!g)
		return -ENOMEM;
	*g = (struct cow_group){
		.refs = 1,
		.door = COW__NO_DESCRIPTOR,
		.mine = COW__SLOT_NONE,
		.childs = COW__SLOT_NONE,
	};
	r = cow__descriptor_dup(file, &g->door);
	if (r == 0)
		r = map_page(g, file, fresh);
	if (r == 0) {
		g->id = g->page->id;
		if (cow__group_find(&g->id))
			r = -EEXIST;
	}
	if (r == 0)
		r = cow__slot_take(g, COW__SLOTS, &g->mine);
	if (r == 0)
		r = cow__slot_anchor(&g->mine);
	/* A child of a raw fork must not keep our lock. */
	if (r == 0)
		(void)cow__map_inherit(g->mine.anchor, cow__page, false);
	if (r < 0) {
		group_free(g);
		return r;
	}
	g->next = cow__groups;
	cow__groups = g;
	/* Pairs with the load in cow_trim(). */
	__atomic_store_n(&cow__trim_others, sweep_all, __ATOMIC_RELEASE);
	*ret = g;
	return 0;
}

int
cow__group_join(int fd, struct cow_group **ret)
{
	struct cow__descriptor file;
	struct cow_group *g;
	struct cow__id id;
	uint64_t bytes;
	int r;

	r = cow__memfd_check(fd, COW__SEALED_SIZE, &bytes);
	if (r < 0 || bytes != cow__page)
		return -EBADMSG;
	r = cow__memfd_read(fd, offsetof(struct cow__group_page, id), &id,
	                    sizeof(id));
	if (r < 0)
		return r;
	g = cow__group_find(&id);
	if (g) {
		/* A peer can copy the id, but not the file. */
		file = cow__descriptor_of(fd);
		if (file.dev != g->door.dev || file.ino != g->door.ino)
			return -EBADMSG;
		g->refs++;
		*ret = g;
		return 0;
	}
	file = cow__descriptor_of(fd);
	return become_member(&file, NULL, ret);
}

COW_EXPORT int
cow_group_new(struct cow_group **ret)
{
	struct cow__descriptor file;
	struct cow__id id;
	int r;

	if (!ret)
		return cow__error(-EINVAL, "cow_group_new: ret is NULL");
	r = cow__random(&id, sizeof(id));
	if (r == 0)
		r = cow__memfd_new("cowshed-group", cow__page, &file);
	if (r < 0)
		return cow__error_from(r, "cow_group_new");
	cow__share_enter();
	r = become_member(&file, &id, ret);
	cow__share_leave();
	cow__descriptor_close(&file);
	if (r == 0)
		cow__own_segments_expect(); /* channels come later, blocks before them */
	if (r == -ENOENT || r == -EACCES)
		return cow__error(r, "cow_group_new: needs /proc/self/fd");
	if (r == -EINVAL && !cow__probe_locks())
		return cow__error(-EOPNOTSUPP, "cow_group_new: needs locks of open files "
		                               "(F_OFD_SETLK), which this kernel lacks");
	return r < 0 ? cow__error_from(r, "cow_group_new") : 0;
}

COW_EXPORT int
cow_group_join(int fd, struct cow_group **ret)
{
	int r;

	if (!ret)
		return cow__error(-EINVAL, "cow_group_join: ret is NULL");
	cow__share_enter();
	r = cow__group_join(fd, ret);
	cow__share_leave();
	if (r == -EBADMSG)
		return cow__error(r, "cow_group_join: the descriptor is not a "
		                     "group's");
	if (r == -EAGAIN)
		return cow__error_number(r, "cow_group_join: all # slots of "
		                            "the group are taken", COW__SLOTS);
	return r < 0 ? cow__error_from(r, "cow_group_join") : 0;
}

COW_EXPORT int
cow_group_fd(struct cow_group *g, int *ret)
{
	int r;

	if (!g || !ret)
		return cow__error(-EINVAL, "cow_group_fd: NULL");
	r = cow__descriptor_give(&g->door, ret);
	return r < 0 ? cow__error_from(r, "cow_group_fd") : 0;
}

COW_EXPORT struct cow_group *
cow_group_ref(struct cow_group *g)
{
	if (!g)
		return NULL;
	cow__share_enter();
	g->refs++;
	cow__share_leave();
	return g;
}

COW_EXPORT struct cow_group *
cow_group_unref(struct cow_group *g)
{
	if (!g)
		return NULL;
	cow__share_enter();
	cow__group_unref(g);
	cow__share_leave();
	return NULL;
}

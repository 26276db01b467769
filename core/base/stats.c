/* SPDX-License-Identifier: MIT */
/*
 * Counters: see the header.
 *
 * The page begins with a magic word and the process number. A forked child
 * inherits its parent's descriptor until it makes its own. The process number
 * keeps it from passing for its parent.
 */
#include "core/base/stats.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/process.h"

#define NAME "cowshed-stats"
#define MAGIC 0x3174617473776f63ull /* "cowstat1" */

struct page {
	uint64_t magic;
	int64_t pid;
	struct cow_stats stats;
};

/* The same for the settings, which only a shared page has. */
struct whole {
	union {
		struct page page;
		unsigned char room[2048]; /* for more counters, so that the rest stays in place */
	};
	struct cow_settings settings;
};

_Static_assert(sizeof(struct page) <= 2048 && sizeof(struct whole) <= 4096, "a page");

static struct page before COW_FORK_DATA; /* until there is a page to share */
static struct page *page = &before;
static struct cow__descriptor file = { .fd = -1 };
static bool tried COW_FORK_DATA;
COW_EXPORT struct cow_stats *cow__stats = &before.stats;

bool
cow__stats_published(void)
{
	return tried;
}

void
cow__stats_publish(void (*fill)(struct cow_settings *))
{
	size_t bytes = cow__round_up(sizeof(struct whole), cow__page);
	uintptr_t at;

	tried = true;
	if (cow__memfd_new(NAME, bytes, &file) < 0)
		return;
	if (cow__map_reserve(bytes, cow__page, &at) < 0) {
		cow__descriptor_close(&file);
		return;
	}
	if (cow__map_shared(at, bytes, &file, 0, false) < 0) {
		(void)cow__map_release(at, bytes);
		cow__descriptor_close(&file);
		return;
	}
	memcpy((void *)at, page, sizeof(*page));
	page = (struct page *)at;
	page->pid = cow__process_id();
	page->stats.size = sizeof(page->stats);
	fill(cow__stats_settings());
	__atomic_store_n(&cow__stats, &page->stats, __ATOMIC_RELEASE);
	__atomic_store_n(&page->magic, MAGIC, __ATOMIC_RELEASE);
}

struct cow_settings *
cow__stats_settings(void)
{
	return page == &before ? NULL : &((struct whole *)page)->settings;
}

void
cow__stats_hide(void)
{
	struct page *shown = page;

	if (shown == &before)
		return;
	memcpy(&before, shown, sizeof(before));
	page = &before;
	__atomic_store_n(&cow__stats, &before.stats, __ATOMIC_RELEASE);
	cow__descriptor_close(&file);
	tried = false;
	/* Other threads may count in the old page for a moment: it stays mapped. */
}

static struct {
	uint64_t bytes_live, blocks_live, storages_live, segments;
} at_fork COW_FORK_DATA;

void
cow__stats_prepare(void)
{
	/* Other threads go on counting, some without the engine's lock. */
	at_fork.bytes_live = cow__stat_get(bytes_live);
	at_fork.blocks_live = cow__stat_get(blocks_live);
	at_fork.storages_live = cow__stat_get(storages_live);
	at_fork.segments = cow__stat_get(segments);
}

/* The parent's page was not inherited. */
COW_FORK_CODE void
cow__stats_child(void)
{
	page = &before;
	memset(page, 0, sizeof(*page));
	page->stats.bytes_live = at_fork.bytes_live;
	page->stats.bytes_peak = at_fork.bytes_live;
	page->stats.bytes_served = at_fork.bytes_live;
	page->stats.bytes_inherited = at_fork.bytes_live;
	page->stats.blocks_live = at_fork.blocks_live;
	page->stats.blocks_served = at_fork.blocks_live;
	page->stats.blocks_inherited = at_fork.blocks_live;
	page->stats.storages_live = at_fork.storages_live;
	page->stats.segments = at_fork.segments;
	__atomic_store_n(&cow__stats, &page->stats, __ATOMIC_RELEASE);
	cow__descriptor_close(&file);
	tried = false;
}

COW_EXPORT int
cow_stats_get(struct cow_stats *ret)
{
	struct cow_stats now;
	size_t size;

	if (!ret || ret->size < sizeof(ret->size))
		return cow__error(-EINVAL, "cow_stats: size is not set");
	size = cow__min(ret->size, sizeof(now));
	for (size_t i = 0; i < sizeof(now) / 8; i++)
		((uint64_t *)&now)[i] = __atomic_load_n(
		        (uint64_t *)cow__stats + i, __ATOMIC_RELAXED);
	now.size = size;
	memcpy(ret, &now, size);
	return 0;
}

static int
read_whole(pid_t pid, struct whole *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	r = cow__process_read_memfd(pid, NAME, ret, sizeof(*ret));
	if (r == 0 && (ret->page.magic != MAGIC || ret->page.pid != pid))
		r = -ENOENT;
	if (r == -ENOENT)
		return cow__error_number(
		        r, "process # has no statistics: it does not use "
		           "cowshed, or has nothing large yet", (uint64_t)pid);
	return r < 0 ? cow__error_from(r, "cow_stats_read") : 0;
}

COW_EXPORT int
cow_stats_read(pid_t pid, struct cow_stats *ret)
{
	struct whole w;
	size_t size;
	int r;

	if (!ret || ret->size < sizeof(ret->size))
		return cow__error(-EINVAL, "cow_stats: size is not set");
	r = read_whole(pid, &w);
	if (r < 0)
		return r;
	size = cow__min(ret->size, sizeof(w.page.stats));
	w.page.stats.size = size;
	memcpy(ret, &w.page.stats, size);
	return 0;
}

int
cow__stats_read_settings(pid_t pid, struct cow_settings *ret)
{
	struct whole w;
	int r = read_whole(pid, &w);

	if (r == 0)
		*ret = w.settings;
	return r;
}

COW_EXPORT const char *
cow_fallback_name(enum cow_fallback reason)
{
	static const char *const names[] = {
		[COW_FALLBACK_MEMFD] = "memfd",
		[COW_FALLBACK_WINDOW] = "window",
		[COW_FALLBACK_COLLAPSE] = "collapse",
		[COW_FALLBACK_PAGEMAP] = "pagemap",
		[COW_FALLBACK_THREAD] = "thread",
		[COW_FALLBACK_DESCRIPTOR] = "descriptor",
		[COW_FALLBACK_MAPPINGS] = "mappings",
		[COW_FALLBACK_SEGMENTS] = "segments",
		[COW_FALLBACK_FREEZE] = "freeze",
		[COW_FALLBACK_PINNED] = "pinned",
		[COW_FALLBACK_SLOTS] = "slots",
		[COW_FALLBACK_FOREIGN] = "foreign",
		[COW_FALLBACK_SMALL] = "small",
		[COW_FALLBACK_ELEMENTS] = "elements",
		[COW_FALLBACK_BUSY] = "busy",
		[COW_FALLBACK_HELD] = "held",
		[COW_FALLBACK_BACKING] = "backing",
		[COW_FALLBACK_REMAPPED] = "remapped",
		[COW_FALLBACK_REWRITTEN] = "rewritten",
		[COW_FALLBACK_BLOCKED] = "blocked",
		[COW_FALLBACK_HANDLER] = "handler",
		[COW_FALLBACK_STACK] = "stack",
		[COW_FALLBACK_CANCEL] = "cancel",
		[COW_FALLBACK_PROCESS] = "process",
	};

	if ((unsigned)reason >= sizeof(names) / sizeof(names[0]))
		return NULL;
	return names[reason];
}

/* SPDX-License-Identifier: MIT */
/*
 * Copy history: was it right to copy? See the header.
 */
#include "core/memory/copy_history.h"
#include "core/base/base.h"
#include "core/policy/constants.h"
#include "core/policy/sites.h"
#include "memfd/forked.h"

/* A copy of which at least one side is still as it was made, or nearly so. */
struct watch {
	struct cow__site *site; /* NULL: free */
	struct cow__tile *to, *from; /* from NULL: ended before */
	size_t offset, bytes;        /* of the source */
	size_t before; /* lazy: bytes of the source copied at that time */
	bool lazy, wrong;
	uint32_t hashes[COW__WATCHED_PAGES];
};

static struct cow__sites sites;
static struct watch watches[COW__WATCHED_COPIES];
static unsigned turn;
static bool used; /* there may be copies that are watched, or lazy */

enum cow__verdict
cow__copy_history_ask(uintptr_t code, size_t bytes)
{
	return cow__site_ask(cow__site_of(&sites, code, bytes));
}

/* A place for one more: a free one, or that of an old eager copy. */
static struct watch *
watch_new(void)
{
	for (unsigned i = 0; i < COW__WATCHED_COPIES; i++) {
		struct watch *w = &watches[turn++ % COW__WATCHED_COPIES];

		if (!w->site || !w->lazy)
			return w;
	}
	return NULL;
}

static unsigned
sample_count(size_t bytes)
{
	return (unsigned)cow__min(COW__WATCHED_PAGES, bytes / COW__WATCHED_PAGE_OF + 1);
}

static uint32_t
hash_page(const void *page)
{
	const uint64_t *words = page;
	uint64_t h[4] = { 1, 2, 3, 4 };

	for (size_t i = 0; i < cow__page / sizeof(*words); i += 4)
		for (unsigned k = 0; k < 4; k++)
			h[k] = (h[k] ^ words[i + k]) * 0x9e3779b97f4a7c15u;
	h[0] ^= (h[1] >> 17) ^ (h[2] >> 29) ^ (h[3] >> 41);
	return (uint32_t)(h[0] >> 32);
}

/* The i-th sampled page; somewhere in its share. */
static const void *
sampled_page(uintptr_t start, size_t bytes, unsigned i)
{
	size_t share = bytes / sample_count(bytes);
	size_t at = i * share + (i * 0x9e3779b9u) % share;

	return (const void *)(start + cow__round_down(at, cow__page));
}

void
cow__copy_history_add(struct cow__tile *to, struct cow__tile *from, size_t offset,
                  size_t bytes, uintptr_t code, bool lazy)
{
	struct cow__site *s = cow__site_of(&sites, code, bytes);
	struct watch *w = s ? watch_new() : NULL;

	if (!w)
		return;
	used = true;
	*w = (struct watch){ .site = s,
		             .to = to,
		             .from = from,
		             .offset = offset,
		             .bytes = bytes,
		             .lazy = lazy };
	if (lazy) {
		ssize_t n = cow__copied_bytes(from);

		w->before = n > 0 ? (size_t)n : 0;
		s->lazy++;
	} else {
		for (unsigned i = 0; i < sample_count(bytes); i++)
			w->hashes[i] = hash_page(
			        sampled_page(cow__tile_start(to), bytes, i));
	}
}

/* Of an eager copy: was more than a sample or two of this side written? */
static bool
is_side_changed(const struct watch *w, const struct cow__tile *t, size_t offset)
{
	unsigned n = sample_count(w->bytes), wrong = 0;

	if (t->map.attributes || t->map.overlay || offset + w->bytes > t->bytes)
		return true;
	for (unsigned i = 0; i < n; i++)
		wrong += hash_page(sampled_page(cow__tile_start(t) + offset,
		                                w->bytes, i)) != w->hashes[i];
	return wrong > n / COW__WATCHED_WRONG_SHARE;
}

/* Of a lazy one: were more pages copied than is worth it? */
static bool
is_side_copied(const struct watch *w, const struct cow__tile *t, size_t before)
{
	ssize_t n;

	if (t->map.backing != COW__PRIVATE)
		return false;
	n = cow__copied_bytes(t);
	return n < 0 || (size_t)n > before + w->bytes / COW__WATCHED_WRONG_SHARE;
}

static void
side_ends(struct watch *w, const struct cow__tile *t, size_t offset,
          size_t before)
{
	if (!w->wrong)
		w->wrong = w->lazy ? is_side_copied(w, t, before)
		                   : is_side_changed(w, t, offset);
}

bool
cow__copy_history_watches(const struct cow__tile *t)
{
	for (const struct watch *w = watches; used && w < watches + COW__WATCHED_COPIES; w++)
		if (w->site && (w->to == t || w->from == t))
			return true;
	return false;
}

void
cow__copy_history_end(struct cow__tile *t)
{
	if (!used)
		return;
	for (struct watch *w = watches; w < watches + COW__WATCHED_COPIES; w++) {
		if (!w->site || (w->to != t && w->from != t))
			continue;
		if (w->from) {
			side_ends(w, w->from, w->offset, w->before);
			if (w->from == t) {
				w->from = NULL;
				continue;
			}
		}
		side_ends(w, w->to, 0, 0);
		w->site->lazy -= w->lazy;
		cow__site_learn(w->site, w->lazy, w->wrong);
		w->site = NULL;
	}
}

COW_FORK_CODE void
cow__copy_history_child(void)
{
	/* Most programs have no such copies: a child of theirs needs no pages for them. */
	if (!used)
		return;
	memset(watches, 0, sizeof(watches));
	for (unsigned i = 0; i < COW__SITES; i++)
		sites.all[i].lazy = 0;
	used = false;
}

/* SPDX-License-Identifier: MIT */
/*
 * Thawing: see the header. write_back_chunk() copies written pages back into the
 * file.
 */
#include "core/cow/thaw.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/freeze.h"
#include "core/cow/view.h"
#include "core/memory/attribute.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/state.h"
#include "memfd/map.h"
#include "memfd/pagemap.h"
#include "memfd/process.h"
#include "memfd/quiet.h"
#include "memfd/wait.h"

/* Of a 2 MiB chunk: to write more than this back costs more than it brings. */
#define DENSE_BYTES (512 * KIB)
#define PINNED_NS 1000000000u /* no new look so soon after memory was under I/O */
#define SHADOW_NS 500000000u /* shadows are looked for this often */
/* About so many copied pages are in one part of a thaw. A chunk is not
 * divided. */
#define STEP_COPIED (256 * KIB)
#define RUNS_IN_CHUNK 257  /* every other of 512 pages, and one more */

/* Maps the file pages under a tile shared, at other addresses, for a while. There
 * they can be written or given back, and the program does not notice. */
static struct cow__tile *
alias_new(struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	struct cow__tile *a; /* huge pages fit in it where they fit in `t` */
	int r = 0;

	a = cow__tile_inner(t->bytes, at, COW__HUGE);
	if (!a)
		return NULL;
	while (r == 0 && at < cow__tile_end(t)) {
		size_t offset, bytes;
		struct cow__tile *p = cow__view_source(t, at, &offset, &bytes);

		r = cow__map_shared(
		        cow__tile_start(a) + (at - cow__tile_start(t)), bytes,
		        &p->segment->file,
		        cow__segment_offset(cow__tile_start(p)) + offset,
		        false);
		at += bytes;
	}
	if (r == 0)
		return a;
	(void)cow__map_none(cow__tile_start(a), a->bytes);
	(void)cow__tile_put(a);
	return NULL;
}

static void
alias_free(struct cow__tile *a)
{
	(void)cow__map_none(cow__tile_start(a), a->bytes);
	(void)cow__tile_put(a);
}

static size_t
bytes_of(const struct cow__run *runs, int n)
{
	size_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += runs[i].end - runs[i].start;
	return bytes;
}

/* Copies the private pages of a chunk back into the file. `delta` leads from the
 * tile's addresses to the shared mapping of the file. */
static void
write_back_chunk(const struct cow__run *runs, int n, uintptr_t delta)
{
	for (int i = 0; i < n; i++)
		memcpy((void *)(runs[i].start + delta),
		       (const void *)runs[i].start,
		       runs[i].end - runs[i].start);
	cow__stat_add(pages_written_back, bytes_of(runs, n) / cow__page);
}

/* Frees the file pages under private ones. */
static void
punch_runs(const struct cow__run *runs, int n, uintptr_t delta)
{
	for (int i = 0; i < n; i++) {
		size_t len = runs[i].end - runs[i].start;

		if (cow__map_punch(runs[i].start + delta, len) == 0)
			cow__stat_add(bytes_shadow_returned, len);
	}
}

/* Deals with the copied pages of one chunk. True: the chunk may be shared
 * again; false: it stays private. */
static bool
thaw_chunk(struct cow__tile *t, struct cow__tile *alias,
           const struct cow__run *runs, int n)
{
	uintptr_t delta = cow__tile_start(alias) - cow__tile_start(t);
	bool dense = bytes_of(runs, n) > DENSE_BYTES;

	if (dense)
		punch_runs(runs, n, delta);
	else
		write_back_chunk(runs, n, delta);
	return !dense;
}

/* The parts of a tile that a thaw leaves private, in order. */
struct parts {
	struct cow__span *list;
	uint32_t n, cap;
};

static int
keep(struct parts *kept, uintptr_t start, uintptr_t end)
{
	int r;

	if (kept->n && kept->list[kept->n - 1].end == start) {
		kept->list[kept->n - 1].end = end;
		return 0;
	}
	r = cow__array_reserve((void **)&kept->list, &kept->cap,
	                       sizeof(*kept->list), kept->n + 1);
	if (r == 0)
		kept->list[kept->n++] = (struct cow__span){ start, end };
	return r;
}

/* Where a thaw has to begin: an earlier one may have stopped half-way. */
static uintptr_t
begin_at(const struct cow__tile *t)
{
	return t->thaw_at ? t->thaw_at : cow__tile_start(t);
}

/* Looks at one chunk with copied pages, and notes it in `kept` if it stays
 * private. The first call makes *alias. -EBUSY: a device may use the pages. */
static int
look_at_chunk(struct cow__tile *t, struct cow__tile **alias, uintptr_t chunk,
              uintptr_t end, struct parts *kept, size_t *ret_copied)
{
	struct cow__run runs[RUNS_IN_CHUNK];
	uintptr_t next;
	int n;

	/* A copied page may be under I/O: it has to stay in place. */
	if (!*alias && cow__process_pins_memory()) {
		cow__fallback(COW_FALLBACK_PINNED);
		return -EBUSY;
	}
	if (!*alias)
		*alias = alias_new(t);
	if (!*alias)
		return -ENOMEM;
	n = cow__pagemap_copied(chunk, end, runs, RUNS_IN_CHUNK, &next);
	*ret_copied = bytes_of(runs, n);
	if (n <= 0)
		return n;
	return thaw_chunk(t, *alias, runs, n) ? 0 : keep(kept, chunk, end);
}

/* Looks at every chunk with copied pages, from *at on and as far as `most` bytes
 * go. Fills the list of what stays private. The rest that was not looked at is
 * in that list, too; *at is where it begins. */
static int
thaw_look(struct cow__tile *t, size_t most, struct parts *kept, uintptr_t *at)
{
	uintptr_t end = cow__tile_end(t), stop = end, next;
	struct cow__tile *alias = NULL;
	struct cow__run run;
	size_t left = most < t->bytes / 2 ? STEP_COPIED : SIZE_MAX;
	int r = 0;

	if (most < end - *at && left != SIZE_MAX)
		stop = cow__round_up(*at + most, COW__HUGE);
	stop = cow__min(stop, end);
	for (uint32_t i = 0; r == 0 && i < t->nkept; i++)
		if (t->kept[i].start < *at)
			r = keep(kept, t->kept[i].start,
			         cow__min(t->kept[i].end, *at));
	while (r == 0 && *at < stop) {
		uintptr_t chunk, chunk_end;
		size_t copied = 0;

		r = cow__pagemap_copied(*at, stop, &run, 1, &next);
		if (r < 0)
			break;
		if (r == 0) {
			*at = stop;
			break;
		}
		chunk = cow__round_down(run.start, COW__HUGE);
		chunk_end = cow__min(chunk + COW__HUGE, end);
		chunk = cow__max(chunk, *at);
		r = look_at_chunk(t, &alias, chunk, chunk_end, kept, &copied);
		if (r < 0)
			break;
		*at = chunk_end;
		if (copied >= left)
			break;
		left -= copied;
	}
	if (alias)
		alias_free(alias);
	if (r == 0 && *at < end)
		r = keep(kept, *at, end);
	return r;
}

static void
thawed(struct cow__tile *t, const struct parts *kept, uintptr_t at)
{
	const struct cow__span *list = kept->list;

	cow__tile_change_begin(t);
	cow__array_free(t->kept, t->kept_cap, sizeof(*t->kept));
	t->kept = kept->list;
	t->nkept = kept->n;
	t->kept_cap = kept->cap;
	t->thaw_at = at < cow__tile_end(t) ? at : 0;
	t->shadow = 0;
	for (uint32_t i = 0; i < kept->n; i++)
		if (list[i].start < at)
			t->shadow += cow__min(list[i].end, at) - list[i].start;
	if (kept->n == 0) {
		cow__array_free(kept->list, kept->cap, sizeof(*list));
		t->kept = NULL;
		t->kept_cap = 0;
		cow__tile_set_backing(t, COW__SHARED);
	}
	cow__tile_change_end(t);
	if (t->thaw_at)
		return;
	cow__stat_add(thaws, 1);
	cow__stat_add(bytes_thawed, t->bytes);
}

int
cow__thaw_some(struct cow__tile *t, size_t most)
{
	uintptr_t from = begin_at(t), at = from, end;
	struct parts kept = { NULL, 0, 0 };
	uint32_t i;
	int r;

	/* What a finished thaw left private stays private. */
	if (t->nkept && !t->thaw_at)
		return 0;
	cow__attributes_reveal(t, cow__tile_start(t), cow__tile_end(t));
	r = thaw_look(t, most, &kept, &at);
	cow__attributes_apply(t, cow__tile_start(t), cow__tile_end(t));
	/* One place more, for the part that a failure below leaves private. */
	if (r == 0)
		r = cow__array_reserve((void **)&kept.list, &kept.cap,
		                       sizeof(*kept.list), kept.n + 1);
	if (r < 0) {
		cow__array_free(kept.list, kept.cap, sizeof(*kept.list));
		return r;
	}
	/* From here on the file is right everywhere but under `kept`, and what
	 * lies before `from` is mapped as it should be. */
	for (i = 0; r == 0 && i <= kept.n; i++) {
		end = i < kept.n ? kept.list[i].start : cow__tile_end(t);
		if (end > from)
			r = cow__view_map(t, from, end, true, &from);
		if (r == 0 && i < kept.n)
			from = cow__max(from, kept.list[i].end);
	}
	if (r < 0) {
		kept.list[i - 1] =
		        (struct cow__span){ from, cow__tile_end(t) };
		kept.n = i;
		at = from;
	}
	thawed(t, &kept, at);
	return r;
}

int
cow__thaw(struct cow__tile *t)
{
	return cow__thaw_some(t, SIZE_MAX);
}

static bool
plain(const struct cow__tile *t)
{
	return t->kind == COW__LIVE && t->backing == COW__PRIVATE &&
	       !t->npieces && !t->nkept && !t->attributes && t->refs == 1;
}

/* Neighbours that are frozen alike and clean are thawed with one call. Returns
 * the last tile dealt with. */
static struct cow__tile *
thaw_from(struct cow__tile *t, struct cow__census *c, int *ret_r)
{
	const struct parts none = { NULL, 0, 0 };
	struct cow__tile *last = t;
	struct cow__run run;
	uintptr_t next;

	if (!cow__exclusive(t, c)) {
		cow__fallback(COW_FALLBACK_HELD);
		return t;
	}
	if (plain(t))
		while (last->next && plain(last->next) &&
		       last->next->segment == t->segment &&
		       cow__exclusive(last->next, c))
			last = last->next;
	if (last != t &&
	    cow__pagemap_copied(cow__tile_start(t), cow__tile_end(last), &run,
	                        1, &next) == 0 &&
	    cow__map_shared(cow__tile_start(t),
	                    cow__tile_end(last) - cow__tile_start(t),
	                    &t->segment->file,
	                    cow__segment_offset(cow__tile_start(t)),
	                    false) == 0) {
		for (;; t = t->next) {
			thawed(t, &none, cow__tile_end(t));
			if (t == last)
				return last;
		}
	}
	*ret_r = cow__thaw(t);
	return t;
}

/* Is it frozen, all of it or from where a thaw stopped? */
static bool
has_shadows(const struct cow__tile *t)
{
	return cow__is_frozen(t) || (t->backing == COW__PRIVATE && t->thaw_at);
}

/*
 * Gives the file pages under copied ones back. Nobody needs them if nobody else
 * reads the tile. Copied pages stay copied, so this needs no quiet moment.
 *
 * The kernel's work needs no lock: a child that is forked meanwhile has these
 * copies, too. But the child lacks what is copied after that fork. So each batch
 * is looked up under the lock, and each time the tile must still be exclusive.
 *
 * Ends the tile if it was freed meanwhile.
 */
static void
release_shadow(struct cow__tile *t, bool unlocked)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	ssize_t copied = cow__copied_bytes(t);
	struct cow__run runs[128];
	struct cow__tile *alias;
	int n;

	if (copied < 0 || ((size_t)copied == t->shadow && !t->reshadowed))
		return;
	alias = alias_new(t);
	if (!alias)
		return;
	t->shadow = 0; /* if a fork ends this early, the rest goes later */
	t->reshadowed = false;
	while (at < end) {
		struct cow__census c = { 0, 0 };
		uintptr_t delta = cow__tile_start(alias) - cow__tile_start(t);

		if (!has_shadows(t) || !cow__exclusive(t, &c))
			break;
		at = cow__max(at, t->thaw_at);
		n = cow__pagemap_copied(at, end, runs, 128, &at);
		if (n <= 0)
			break;
		t->shadow += bytes_of(runs, n);
		if (!unlocked) {
			punch_runs(runs, n, delta);
			continue;
		}
		t->busy = t->punching = true;
		cow__engine_unlock();
		punch_runs(runs, n, delta);
		cow__helper_lock();
		t->busy = t->punching = false;
		if (t->doomed) {
			alias_free(alias);
			cow__extent_free(t);
			return;
		}
	}
	alias_free(alias);
}

void
cow__shadows_release(uint64_t now, bool unlocked)
{
	static uint64_t last;
	struct cow__census c = { 0, 0 };
	struct cow__tile *t, *next;
	uintptr_t end;

	if (!cow__engine.frozen || cow__elapsed(last, now) < SHADOW_NS)
		return;
	last = now;
	for (t = cow__tile_first(); t; t = next) {
		next = t->next;
		end = cow__tile_end(t);
		if (t->kind != COW__LIVE || t->busy || !has_shadows(t) ||
		    !cow__exclusive(t, &c))
			continue;
		/* A thaw that is under way still needs these pages. */
		if (t->thaw_at != t->thaw_seen) {
			t->thaw_seen = t->thaw_at;
			continue;
		}
		release_shadow(t, unlocked);
		if (!unlocked)
			continue;
		next = cow__tile_find(end);
		c = (struct cow__census){ 0, 0 };
	}
}

void
cow__thaw_all(void)
{
	static uint64_t pinned_at; /* when memory was under I/O; 0: it was not */
	struct cow__census c = { 0, 0 };
	bool any = false;
	struct cow__tile *t;
	int r = 0;

	if (!cow__engine.frozen ||
	    (pinned_at && cow__now() - pinned_at < PINNED_NS))
		return;
	for (t = cow__tile_first(); t && !any; t = t->next)
		any = t->kind == COW__LIVE && t->backing == COW__PRIVATE &&
		      cow__exclusive(t, &c);
	if (!any)
		return;
	if (!cow__engine_quiet()) {
		cow__fallback(COW_FALLBACK_BUSY);
		return;
	}
	for (t = cow__tile_first(); t && r != -EBUSY; t = t->next)
		if (t->kind == COW__LIVE && t->backing == COW__PRIVATE)
			t = thaw_from(t, &c, &r);
	cow__quiet_end();
	pinned_at = r == -EBUSY ? cow__now() : 0;
}

uint64_t
cow__shadows_job(uint64_t now)
{
	cow__shadows_release(now, true);
	return UINT64_MAX;
}

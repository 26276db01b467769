/* SPDX-License-Identifier: MIT */
/*
 * Views: see the header.
 */
#include "core/cow/view.h"
#include "core/base/array.h"
#include "core/base/base.h"
#include "core/base/stats.h"
#include "core/cow/ahead.h"
#include "core/cow/part.h"
#include "core/memory/attribute.h"
#include "core/memory/bulk.h"
#include "core/memory/can.h"
#include "core/memory/extent.h"
#include "core/memory/helper.h"
#include "core/memory/quiet_window.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"
#include "memfd/moment.h"
#include "memfd/pagemap.h"
#include "quiet/quiet.h"

struct runs {
	struct cow__run *run;
	uint32_t n, cap;
	size_t bytes;
	struct cow__moment *moment; /* whose bytes they are to have; NULL: those of now */
};

/* The pages that a private tile has copied. */
struct written {
	struct runs layered; /* become file pages, for the view and the source */
	struct runs patched; /* are copied into the view, page by page */
};

static int
add_run(struct runs *to, const struct cow__run *run)
{
	int r = cow__array_reserve((void **)&to->run, &to->cap,
	                           sizeof(*to->run), to->n + 1);

	if (r < 0)
		return r;
	to->run[to->n++] = *run;
	to->bytes += run->end - run->start;
	return 0;
}

static void
free_runs(struct runs *runs)
{
	cow__array_free(runs->run, runs->cap, sizeof(*runs->run));
	*runs = (struct runs){ NULL, 0, 0, 0, NULL };
}

/* Is a copy of the whole cheaper? To copy a page costs a quarter of the fault
 * that copies it. */
static bool
is_copy_cheaper(const struct cow__tile *t, const struct written *w)
{
	return w->layered.n > COW__LAYER_RUNS_MOST || w->patched.bytes > COW__PATCHED_MOST ||
	       w->layered.bytes + 2 * w->patched.bytes > t->bytes / COW__LAYER_MOST_SHARE;
}

/* All runs of copied pages of a private tile. -E2BIG: a copy is cheaper. */
static int
find_runs(const struct cow__tile *t, size_t layered_least, struct written *w)
{
	uintptr_t at = cow__tile_start(t), end = cow__tile_end(t);
	struct cow__run found[128];

	w->layered.n = w->patched.n = 0;
	w->layered.bytes = w->patched.bytes = 0;
	while (at < end) {
		int r = 0, n = cow__pagemap_copied(at, end, found, 128, &at);

		if (n < 0)
			return n;
		for (int i = 0; r == 0 && i < n; i++)
			r = add_run(found[i].end - found[i].start <
			                            layered_least
			                    ? &w->patched
			                    : &w->layered,
			            &found[i]);
		if (r < 0)
			return r;
		if (is_copy_cheaper(t, w))
			return -E2BIG;
	}
	return 0;
}

static int
find_written(const struct cow__tile *t, size_t layered_least, struct written *w)
{
	int r = find_runs(t, layered_least, w), all;

	if (r == -E2BIG ||
	    (r == 0 && w->patched.bytes > t->bytes / COW__PATCHED_SHARE)) {
		all = find_runs(t, 0, w);
		r = all == -E2BIG && r == 0 ? find_runs(t, layered_least, w) : all;
	}
	if (r == -E2BIG)
		cow__fallback(COW_FALLBACK_REWRITTEN);
	return r;
}

/* The written pages as file pages, one run after the other. */
static int
layer_new(const struct runs *p, struct cow__tile **ret)
{
	struct cow__tile *t;
	size_t at = 0;
	size_t dirty;
	int r;

	r = cow__extent_new(p->bytes, 0,
	                    COW__EXTENT_MEMFD | COW__EXTENT_WHOLE, &t, &dirty);
	if (r < 0)
		return r;
	if (t->map.backing != COW__SHARED) {
		cow__extent_free(t);
		return -ENOTSUP;
	}
	if (p->moment)
		r = cow__moment_read(p->moment, p->run, p->n, (char *)cow__tile_start(t), 0);
	for (uint32_t i = 0; !p->moment && i < p->n; i++) {
		size_t n = p->run[i].end - p->run[i].start;

		cow__bulk_copy_to(t, at, (void *)p->run[i].start, n,
		                  dirty == 0);
		at += n;
	}
	if (r < 0) {
		cow__extent_free(t);
		return r;
	}
	cow__stat_add(bytes_copied, p->bytes);
	*ret = t;
	return 0;
}

static int
piece_add(struct cow__piece **pieces, uint32_t *n, uint32_t *cap,
          struct cow__tile *pages, size_t offset, size_t bytes)
{
	int r = cow__array_reserve((void **)pieces, cap, sizeof(**pieces),
	                           *n + 1);

	if (r < 0)
		return r;
	(*pieces)[(*n)++] = (struct cow__piece){ pages, offset, bytes };
	return 0;
}

/* Adds what maps [start, end) of `t` below its copied pages. */
static int
pieces_below(const struct cow__tile *t, uintptr_t start, uintptr_t end,
             struct cow__piece **pieces, uint32_t *n, uint32_t *cap)
{
	while (start < end) {
		size_t offset, bytes;
		struct cow__tile *p =
		        cow__part_source(t, start, &offset, &bytes);
		int r;

		bytes = cow__min(bytes, end - start);
		r = piece_add(pieces, n, cap, p, offset, bytes);
		if (r < 0)
			return r;
		start += bytes;
	}
	return 0;
}

/* Lists the source's present content as pieces, without references. */
static int
pieces_now(const struct cow__tile *t, const struct runs *p,
           struct cow__tile *layer, struct cow__piece **pieces, uint32_t *n,
           uint32_t *cap)
{
	uintptr_t at = cow__tile_start(t);
	size_t offset = 0;
	int r;

	for (uint32_t i = 0; i < p->n; i++) {
		size_t bytes = p->run[i].end - p->run[i].start;

		r = pieces_below(t, at, p->run[i].start, pieces, n, cap);
		if (r == 0)
			r = piece_add(pieces, n, cap, layer, offset, bytes);
		if (r < 0)
			return r;
		offset += bytes;
		at = p->run[i].end;
	}
	return pieces_below(t, at, cow__tile_end(t), pieces, n, cap);
}

static void
ref_pieces(struct cow__piece *pieces, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pieces[i].pages->own.refs++;
}

void
cow__view_change(struct cow__tile *t, struct cow__piece *pieces, uint32_t n,
                 uint32_t cap)
{
	struct cow__piece *old = t->map.pieces;
	uint32_t old_n = t->map.npieces, old_cap = t->map.pieces_cap;

	cow__ahead_forget();
	ref_pieces(pieces, n);
	cow__tile_change_begin(t);
	t->map.pieces = pieces;
	t->map.npieces = n;
	t->map.pieces_cap = cap;
	cow__tile_change_end(t);
	if (n == 0)
		t->own.refs++;
	if (old_n == 0)
		t->own.refs--; /* the pieces count those that are its own */
	for (uint32_t i = 0; i < old_n; i++)
		cow__extent_unref_pages(old[i].pages);
	cow__array_free(old, old_cap, sizeof(*old));
}

/* Puts the layer's pages under the written parts of the source, and drops its
 * copies. Nobody may write it meanwhile. A part that fails stays as it is. The
 * list of pieces is right for both, as the bytes are equal. */
static void
rebase_source(struct cow__tile *t, const struct runs *p,
              const struct cow__piece *pieces, uint32_t n)
{
	struct cow__piece *copy = NULL;
	uint32_t cap = 0;

	if (cow__array_reserve((void **)&copy, &cap, sizeof(*copy), n) < 0)
		return;
	memcpy(copy, pieces, n * sizeof(*copy));
	cow__view_change(t, copy, n, cap);
	for (uint32_t i = 0; i < p->n; i++)
		(void)cow__part_map(t, p->run[i].start, p->run[i].end, false,
		                    NULL);
}

static bool
has_huge_page(const struct cow__tile *t)
{
	return cow__round_up(cow__tile_start(t), COW__HUGE) + COW__HUGE <= cow__tile_end(t);
}

/* A tile of its own for the view. */
static int
view_tile(struct cow__tile *source, const struct cow__piece *list, uint32_t n,
          void *arg)
{
	/* Huge pages fit where they fit in the source. Views of less lie side by side: a gap
	 * between two of them is a mapping, too. */
	size_t align = has_huge_page(source) ? COW__HUGE : cow__page;
	size_t skew = cow__tile_start(source) & (align - 1);
	size_t unit = cow__round_up(skew + source->bytes, align);
	struct cow__tile *t = cow__tile_search(COW__BARE, 0, unit, align);
	struct cow__tile **ret = arg;
	struct cow__piece *pieces = NULL;
	uint32_t cap = 0;
	int r;

	if (!t)
		return -ENOMEM;
	r = cow__array_reserve((void **)&pieces, &cap, sizeof(*pieces), n);
	if (r < 0)
		return r;
	memcpy(pieces, list, n * sizeof(*pieces));
	t = cow__tile_carve(t, cow__round_up(cow__tile_start(t), align) + skew, source->bytes);
	if (!t) {
		cow__array_free(pieces, cap, sizeof(*pieces));
		return -ENOMEM;
	}
	cow__tile_change_begin(t);
	t->kind = COW__LIVE;
	t->map = (struct cow__mapping){ .pieces = pieces, .npieces = n, .pieces_cap = cap };
	t->own = (struct cow__pages){ .segment = t->own.segment };
	r = cow__part_map(t, cow__tile_start(t), cow__tile_end(t), false,
	                  NULL);
	if (r < 0) {
		(void)cow__map_none(cow__tile_start(t), t->bytes);
		t->map.pieces = NULL;
		t->map.npieces = t->map.pieces_cap = 0;
		cow__tile_change_end(t);
		(void)cow__tile_put(t);
		cow__array_free(pieces, cap, sizeof(*pieces));
		return r;
	}
	t->map.backing = COW__PRIVATE;
	t->map.used = source->map.used;
	cow__tile_change_end(t);
	cow__engine.live_bytes += t->bytes;
	ref_pieces(pieces, n);
	*ret = t;
	return 0;
}

/* Makes the view, with a layer for the runs that were written. */
static int
view_of(struct cow__tile *source, const struct runs *written, bool may_rebase,
        cow__view_fn *make, void *arg)
{
	struct cow__piece *pieces = NULL;
	struct cow__tile *layer = NULL;
	uint32_t n = 0, cap = 0;
	size_t reserve;
	int r = 0;

	reserve = written->n ? cow__engine.mappings_max / 5 * COW__LAYERS_FIFTHS
	                     : cow__engine.mappings_max / COW__VIEWS_SHARE;
	if (!cow__mappings_left(2 * written->n + source->map.npieces + 2 + reserve))
		return -E2BIG;
	if (written->n)
		r = layer_new(written, &layer);
	if (r == 0)
		r = pieces_now(source, written, layer, &pieces, &n, &cap);
	if (r == 0)
		r = make(source, pieces, n, arg);
	if (r < 0 && layer)
		cow__extent_free(layer);
	if (r == 0 && layer) {
		/* Not while the helper frees file pages of it: they would be
		 * under the pieces. */
		if (may_rebase && !cow__tile_is_punched(source))
			rebase_source(source, written, pieces, n);
		/* The layer has no mapping of its own: views alone hold it. */
		cow__extent_detach(layer);
		cow__extent_unref_pages(layer);
	}
	cow__array_free(pieces, cap, sizeof(*pieces));
	return r;
}

static int
view_make(struct cow__tile *source, enum cow__rebase rebase,
          size_t layered_least, struct written *w, cow__view_fn *make, void *arg)
{
	bool quiet = false, may_rebase = rebase == COW__REBASE_ALWAYS;
	int r = 0;

	if (!cow__can(source, COW__TO_VIEW))
		return -ENOTSUP;
	if (source->map.backing == COW__PRIVATE && rebase != COW__REBASE_NOTHING)
		r = find_written(source, layered_least, w);
	if (r == 0 && w->layered.n && rebase == COW__REBASE_IF_QUIET &&
	    cow__engine_quiet(0)) {
		struct cow__park_range by_kernel;

		/* Look again: nobody can write any more, but perhaps the kernel
		 * for a thread that waits. */
		quiet = true;
		may_rebase = !cow__quiet_written(cow__tile_start(source),
		                                 cow__tile_end(source),
		                                 &by_kernel);
		r = find_written(source, layered_least, w);
	}
	if (r == 0)
		r = view_of(source, &w->layered, may_rebase, make, arg);
	if (quiet)
		cow__quiet_end();
	return r;
}

int
cow__view_make(struct cow__tile *source, enum cow__rebase rebase,
               cow__view_fn *make, void *arg)
{
	struct written w = { 0 };
	int r = view_make(source, rebase, 0, &w, make, arg);

	free_runs(&w.layered);
	return r;
}

/* Copies the short runs that the source has written. */
static int
patch_view(struct cow__tile *view, struct cow__tile *source,
           const struct runs *written)
{
	uintptr_t delta = cow__tile_start(view) - cow__tile_start(source);
	int r = 0;

	/* At a write the kernel reads the file's page first, and makes one where
	 * it was freed. */
	if (written->n && source->own.shadow)
		source->own.shadow_less = true;

	if (written->moment)
		r = cow__moment_read(written->moment, written->run, written->n, NULL, delta);
	for (uint32_t i = 0; !written->moment && i < written->n; i++)
		memcpy((void *)(written->run[i].start + delta),
		       (const void *)written->run[i].start,
		       written->run[i].end - written->run[i].start);
	cow__stat_add(bytes_copied, written->bytes);
	return r;
}

int
cow__view_new(struct cow__tile *source, enum cow__rebase rebase,
              size_t *ret_copied, struct cow__tile **ret)
{
	struct written w = { 0 };
	int r = view_make(source, rebase, COW__LAYERED_LEAST, &w, view_tile, ret);

	if (r == 0)
		(void)patch_view(*ret, source, &w.patched); /* of now: it can't fail */
	if (r == 0 && ret_copied)
		*ret_copied = w.layered.bytes + w.patched.bytes;
	free_runs(&w.layered);
	free_runs(&w.patched);
	return r;
}

/* What was written since the moment is among the runs, too. It is read as it was before. */
int
cow__view_of_moment(struct cow__tile *source, struct cow__moment *moment, size_t *ret_copied,
                    struct cow__tile **ret)
{
	struct written w = { .layered.moment = moment, .patched.moment = moment };
	int r = -ENOTSUP;

	if (cow__can(source, COW__TO_VIEW) && source->map.backing == COW__PRIVATE)
		r = find_written(source, COW__LAYERED_LEAST, &w);
	if (r == 0)
		r = view_of(source, &w.layered, false, view_tile, ret);
	if (r == 0) {
		r = patch_view(*ret, source, &w.patched);
		if (r < 0)
			cow__extent_free(*ret);
	}
	if (r == 0)
		*ret_copied = w.layered.bytes + w.patched.bytes;
	free_runs(&w.layered);
	free_runs(&w.patched);
	return r;
}

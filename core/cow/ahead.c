/* SPDX-License-Identifier: MIT */
/*
 * Copying ahead: see the header.
 */
#include "core/cow/ahead.h"
#include "core/base/base.h"
#include "core/base/mutex.h"
#include "core/base/stats.h"
#include "core/cow/part.h"
#include "core/memory/can.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/forked.h"
#include "memfd/pins.h"
#include "memfd/wait.h"
#include "memfd/watch.h"

#define RUNS_IN_CHUNK 257

struct chunk {
	uintptr_t start, end;
	size_t copied; /* bytes */
};

static struct chunk ready[COW__AHEAD_MOST];
static unsigned count COW_FORK_DATA;
static struct chunk taken COW_FORK_DATA; /* empty: none */
static struct {
	uintptr_t start;
	uint64_t at;
} passed[COW__AHEAD_PASSED];
static unsigned npassed;
static uintptr_t cursor; /* where the next chunk is looked for */

bool
cow__ahead_usable(void)
{
	return !cow__without(AHEAD) && cow__watch_usable() && cow__pagemap_has_scan();
}

void
cow__ahead_pass(uintptr_t start)
{
	unsigned i = 0;

	while (i < COW__AHEAD_PASSED && passed[i].start != start)
		i++;
	if (i == COW__AHEAD_PASSED)
		i = npassed++ % COW__AHEAD_PASSED;
	passed[i].start = start;
	passed[i].at = cow__now();
}

bool
cow__ahead_passed(uintptr_t at)
{
	for (unsigned i = 0; i < COW__AHEAD_PASSED; i++)
		if (cow__round_down(passed[i].start, COW__HUGE) ==
		            cow__round_down(at, COW__HUGE) &&
		    cow__elapsed(passed[i].at, cow__now()) < COW__AHEAD_PASSED_NS)
			return true;
	return false;
}

COW_FORK_CODE void
cow__ahead_forget(void)
{
	count = 0;
	taken = (struct chunk){ 0, 0, 0 };
}

bool
cow__ahead_take(struct cow__span *ret)
{
	taken = (struct chunk){ 0, 0, 0 };
	if (!count)
		return false;
	taken = ready[--count];
	*ret = (struct cow__span){ taken.start, taken.end };
	return true;
}

size_t
cow__ahead_copied(void)
{
	size_t copied = taken.copied;

	taken.copied = 0;
	return copied;
}

uintptr_t
cow__ahead_end(uintptr_t at, uintptr_t end)
{
	return at >= taken.start && at < taken.end ? cow__min(taken.end, end) : end;
}

int
cow__ahead_rest(const struct cow__tile *t, uintptr_t start, uintptr_t end,
                struct cow__run *runs, int max)
{
	uintptr_t next;

	/* Where the program emptied parts, the file still has what was copied. */
	if (start < taken.start || end > taken.end || t->map.attributes)
		return -ENOENT;
	return cow__pagemap_written(start, end, runs, max, &next);
}

/* Marks the copied pages. A part that was mapped anew is not watched yet. */
static int
mark_copied(const struct cow__span *part, uintptr_t start, uintptr_t end,
            struct cow__run *runs)
{
	uintptr_t next;
	int r = cow__pagemap_mark(start, end, runs, RUNS_IN_CHUNK, &next);

	if (r != -EPERM)
		return r;
	r = cow__mappings_left(2) ? cow__watch(part->start, part->end) : -ENOMEM;
	return r < 0 ? r
	             : cow__pagemap_mark(start, end, runs, RUNS_IN_CHUNK, &next);
}

/* Copies what was marked of the chunk: less if another thread wants the lock. */
static void
copy_marked(const struct cow__run *runs, int n, uintptr_t delta, struct chunk *chunk)
{
	for (int i = 0; i < n; i++)
		for (uintptr_t at = runs[i].start, to; at < runs[i].end; at = to) {
			if (at > runs[0].start &&
			    cow__mutex_wanted(&cow__engine.lock)) {
				chunk->end = at;
				return;
			}
			to = cow__min(at + COW__AHEAD_STEP, runs[i].end);
			cow__part_write(at + delta, (const void *)at, to - at);
			cow__stat_add(pages_written_back, (to - at) / cow__page);
			chunk->copied += to - at;
		}
}

/* Chunks of one tile that were marked, and wait for their copies. */
static struct {
	struct chunk chunk[COW__AHEAD_BATCH];
	struct cow__run runs[COW__AHEAD_BATCH][RUNS_IN_CHUNK];
	int n[COW__AHEAD_BATCH]; /* runs */
	unsigned count;
	size_t bytes; /* of all runs */
} batch;

static int
batch_mark(const struct cow__span *part, const struct chunk *chunk)
{
	struct cow__run *runs = batch.runs[batch.count];
	int n = mark_copied(part, chunk->start, chunk->end, runs);

	if (n < 0)
		return n;
	batch.chunk[batch.count] = *chunk;
	batch.n[batch.count++] = n;
	batch.bytes += cow__runs_bytes(runs, n);
	return 0;
}

/* Has it no room for another chunk that ends there? The alias of a view has a mapping for each
 * of its pieces, and so spans one chunk. */
static bool
batch_is_full(const struct cow__tile *t, uintptr_t end)
{
	return batch.count == COW__AHEAD_BATCH || batch.bytes >= COW__AHEAD_BATCH_BYTES ||
	       count + batch.count == COW__AHEAD_MOST ||
	       (batch.count && end - batch.chunk[0].start >
	                              (t->map.npieces ? COW__HUGE : COW__AHEAD_BATCH_SPAN));
}

static bool
is_enough_ready(void)
{
	return count == COW__AHEAD_MOST || cow__mutex_wanted(&cow__engine.lock);
}

/*
 * Copies what was marked, but less if another thread wants the lock. Then *at is what
 * comes first of the rest. -EBUSY: it is the start of the batch. 0 or -errno.
 *
 * A device, or the kernel for a read past the page cache, writes without page faults
 * what it took hold of before. What it took after the mark met one: the mark is gone.
 * So whether memory is under I/O is asked between the marks and the copies. The question
 * takes as long as some dozen pages, and so does the end of a mapping that another
 * processor may have in its TLB. So a batch has one of each.
 */
static int
batch_copy(struct cow__tile *t, uintptr_t *at)
{
	unsigned n = batch.count, i = 0;
	uintptr_t start = batch.chunk[0].start;
	struct cow__tile *alias;

	batch.count = 0;
	batch.bytes = 0;
	if (!n)
		return 0;
	if (cow__pins_memory()) {
		*at = start;
		return -EBUSY;
	}
	alias = cow__part_alias(t, start, batch.chunk[n - 1].end);
	if (!alias)
		return -ENOMEM;
	for (; i < n && (i == 0 || !is_enough_ready()); i++) {
		copy_marked(batch.runs[i], batch.n[i], cow__tile_start(alias) - start,
		            &batch.chunk[i]);
		ready[count++] = batch.chunk[i];
	}
	cow__tile_inner_free(alias);
	/* The rest of a chunk that was cut is found when its beginning is home. */
	if (i < n)
		*at = batch.chunk[i].start;
	/* File pages may be there again that were given back. */
	t->own.shadow_less |= t->own.shadow != 0;
	return 0;
}

/* The next chunk of a tile with many copied pages, from *at on. False: there is none
 * before *at. */
static bool
find_chunk(const struct cow__tile *t, uintptr_t *at, uint64_t until,
           struct cow__span *part, struct chunk *ret)
{
	struct cow__run runs[COW__AHEAD_LEAST / 4096 + 1];
	uintptr_t next;
	int n;

	while (cow__private_part(t, *at, part)) {
		if (cow__now() >= until)
			return false;
		n = cow__pagemap_copied(part->start, part->end, runs, 1, &next);
		*at = part->end;
		if (n <= 0)
			continue;
		ret->copied = 0;
		ret->start = cow__max(part->start,
		                      cow__round_down(runs[0].start, COW__HUGE));
		ret->end = cow__min(cow__round_down(runs[0].start, COW__HUGE) +
		                            COW__HUGE,
		                    part->end);
		*at = ret->end;
		n = cow__pagemap_copied(ret->start, ret->end, runs,
		                        (int)(sizeof(runs) / sizeof(*runs)), &next);
		if (n == (int)(sizeof(runs) / sizeof(*runs)) ||
		    (n > 0 && cow__runs_bytes(runs, n) > COW__AHEAD_LEAST))
			return true;
	}
	*at = cow__tile_end(t);
	return false;
}

static bool
is_chunk_ready(uintptr_t start)
{
	for (unsigned i = 0; i < count; i++)
		if (ready[i].start == start)
			return true;
	return false;
}

/* The pages of a chunk are about to be marked anew. So no mark tells any more what was
 * written since an earlier copy of some of them. */
static void
forget_chunk(const struct chunk *chunk)
{
	for (unsigned i = 0; i < count;)
		if (ready[i].start < chunk->end && chunk->start < ready[i].end)
			ready[i] = ready[--count];
		else
			i++;
	if (taken.start < chunk->end && chunk->start < taken.end)
		taken = (struct chunk){ 0, 0, 0 };
}

/* 1: go on with the next tile. 0, -EBUSY: not now. */
static int
prepare_tile(struct cow__tile *t, uint64_t until)
{
	uintptr_t at = cow__max(cursor, cow__tile_start(t));
	struct cow__span part;
	struct chunk chunk;
	int r = 0;

	batch.count = 0; /* a mark that failed left some */
	batch.bytes = 0;
	while (find_chunk(t, &at, until, &part, &chunk)) {
		if (is_chunk_ready(chunk.start) || cow__ahead_passed(chunk.start))
			continue;
		if (batch_is_full(t, chunk.end)) {
			at = chunk.start;
			r = batch_copy(t, &at);
		} else {
			forget_chunk(&chunk);
			r = batch_mark(&part, &chunk);
		}
		if (r < 0 || is_enough_ready())
			break;
	}
	if (r == 0)
		r = batch_copy(t, &at);
	cursor = at;
	/* A mark that failed may have reached pages of a chunk that was ready. */
	if (r < 0)
		cow__ahead_forget();
	if (r < 0 && r != -EBADF && r != -ENOMEM && r != -EBUSY)
		cow__watch_use(false);
	if (r == -EBUSY)
		return r;
	return r == 0 && !is_enough_ready() && at >= cow__tile_end(t);
}

int
cow__ahead_prepare(uint64_t ns)
{
	struct cow__census c = { .asked = 0 };
	uint64_t until = cow__now() + ns;
	struct cow__tile *t = cursor ? cow__tile_find(cursor) : NULL;

	if (!cow__ahead_usable() || count == COW__AHEAD_MOST)
		return (int)count;
	for (t = t ? t : cow__tile_first(); t; t = t->next) {
		int r = 1;

		if (cow__can(t, COW__TO_AHEAD) && cow__exclusive(t, &c))
			r = prepare_tile(t, until);
		if (r <= 0)
			return r < 0 ? r : (int)count;
	}
	cursor = 0;
	return (int)count;
}

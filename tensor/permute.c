/* SPDX-License-Identifier: MIT */
/*
 * Permutations of any rank, in tiles
 *
 * Two dimensions matter: the destination is densest in I, and the source is densest in J. A
 * copy that goes along one of them touches a line of the other side for each element. So
 * the copy is cut into tiles, boxes in all its dimensions. In a tile both sides have runs
 * of several lines: along I and the dimensions that follow it in the destination, along J
 * and those that follow it in the source.
 *
 *                 I ->                          J ->
 *      to   J  [ a a a a a a a a ]   from  I  [ a b c ]
 *           |  [ b b b b b b b b ]         |  [ a b c ]
 *           v  [ c c c c c c c c ]         v  [ a b c ] ...
 *
 * A tile is transposed into a buffer, and the buffer's rows are streamed or converted to
 * the destination. If neither is needed, it is transposed to the destination at once. Rows
 * that follow each other in the destination are treated as one.
 *
 * A streamed copy is large. Its buffers fill much of a second-level cache, and are mapped
 * for the copy, one for each thread. Other buffers are on the stack.
 */
#include "core/base/base.h"
#include "core/base/stream.h"
#include "memfd/map.h"
#include "tensor/plan.h"
#include "tensor/transpose.h"
#include "core/memory/workers.h"

#define LINE ((int64_t)COW__LINE)
/* The size of tiles in buffers on the stack, and in mapped ones. */
#define SMALL_BYTES ((int64_t)32 << 10)
#define LARGE_BYTES ((int64_t)256 << 10)
/* The size of a mapped buffer. Each row has an extra line, so that rows whose length is a
 * power of two don't share a few sets of the caches. */
#define BUFFER_BYTES (LARGE_BYTES + LARGE_BYTES / 2)
#define THREADS 65
/* The lengths of runs in a tile, if the sizes allow them (docs/design/copy-engine.md). */
#define TO_BYTES 1024
#define FROM_BYTES 512
#define ROWS 512 /* of narrow units, and one line of each */

struct tiles {
	const struct cow__plan *plan;
	int j; /* the dimension; -1: none */
	bool buffered;
	int64_t block[COW_DIMS_MAX]; /* sizes of a tile */
	/* The other dimensions of a tile; the densest of the source is the last. */
	int planes, plane[COW_DIMS_MAX];
	/* How many tiles there are, and the strides from one to the next. */
	int64_t counts[COW_DIMS_MAX];
	int64_t to_strides[COW_DIMS_MAX], from_strides[COW_DIMS_MAX];
	/* `threads` mapped buffers; NULL: there are none. */
	char *buffers;
	int threads;
	bool taken[THREADS];
};

static int64_t
least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
magnitude(int64_t stride)
{
	return stride < 0 ? -stride : stride;
}

/* ---- A tile ---- */

/* Transposes one plane of I and J after another; planes that are near in the source come
 * after each other. */
static void
transpose_planes(const struct tiles *t, char *to, const int64_t *to_strides,
                 const char *from, const int64_t *sizes)
{
	const struct cow__plan *p = t->plan;
	int i = p->dims - 1, j = t->j;
	int64_t n[COW_DIMS_MAX], to_steps[COW_DIMS_MAX], steps[COW_DIMS_MAX];
	int64_t planes = 1;
	struct cow__walk w;

	for (int e = 0; e < t->planes; e++) {
		int d = t->plane[e];

		n[e] = sizes[d];
		to_steps[e] = to_strides[d];
		steps[e] = p->from_strides[d];
		planes *= n[e];
	}
	w.dims = t->planes;
	w.sizes = n;
	w.to_strides = to_steps;
	w.from_strides = steps;
	cow__walk_start(&w, 0);
	for (; planes > 0; planes--) {
		cow__transpose(to + w.to, to_strides[i],
		               j < 0 ? 0 : to_strides[j], from + w.from,
		               p->from_strides[i],
		               j < 0 ? 0 : p->from_strides[j], sizes[i],
		               j < 0 ? 1 : sizes[j], p->bytes);
		cow__walk_next(&w);
	}
}

static void
buffered_tile(const struct tiles *t, char *to, const char *from,
              const int64_t *sizes, char *buf)
{
	const struct cow__plan *p = t->plan;
	int last = p->dims - 1, outer = last;
	int64_t strides[COW_DIMS_MAX], rows = 1, row = sizes[last];
	bool dense = p->to_strides[last] == p->to_bytes;
	struct cow__walk w = { .sizes = sizes, .to_strides = p->to_strides,
		               .from_strides = strides };

	while (dense && outer > 0 &&
	       p->to_strides[outer - 1] == row * p->to_bytes)
		row *= sizes[--outer];
	strides[last] = p->bytes;
	for (int d = last; d > 0; d--)
		strides[d - 1] = strides[d] * sizes[d] +
		                 (t->buffers && d == outer &&
		                                  row * p->bytes >= 2 * LINE
		                          ? LINE
		                          : 0);
	transpose_planes(t, buf, strides, from, sizes);
	for (int d = 0; d < outer; d++)
		rows *= sizes[d];
	for (w.dims = outer; rows > 0; rows--) {
		if (dense)
			cow__plan_row(p, to + w.to, buf + w.from, row);
		else /* converts: else it is not buffered */
			cow__convert(&p->conversion, to + w.to,
			             p->to_strides[last], buf + w.from,
			             p->bytes, row);
		cow__walk_next(&w);
	}
}

/* A buffer that no other thread has. There is one for each thread. If the number of threads
 * was raised meanwhile, one is free soon. */
static int
take_buffer(struct tiles *t)
{
	int b = 0;

	while (__atomic_exchange_n(&t->taken[b], true, __ATOMIC_ACQUIRE))
		b = (b + 1) % t->threads;
	return b;
}

static void
tiles_part(void *arg, int64_t first, int64_t last)
{
	struct tiles *t = arg;
	const struct cow__plan *p = t->plan;
	_Alignas(64) char small[SMALL_BYTES];
	int64_t sizes[COW_DIMS_MAX];
	int b = t->buffers ? take_buffer(t) : 0;
	char *buf = t->buffers ? t->buffers + b * BUFFER_BYTES : small;
	struct cow__walk w;

	w.dims = p->dims;
	w.sizes = t->counts;
	w.to_strides = t->to_strides;
	w.from_strides = t->from_strides;
	cow__walk_start(&w, first);
	for (; first < last; first++) {
		for (int d = 0; d < p->dims; d++)
			sizes[d] = least(t->block[d],
			                 p->sizes[d] - w.at[d] * t->block[d]);
		if (t->buffered)
			buffered_tile(t, p->to + w.to, p->from + w.from, sizes,
			              buf);
		else
			transpose_planes(t, p->to + w.to, p->to_strides, p->from + w.from,
			                 sizes);
		cow__walk_next(&w);
	}
	if (p->stream)
		cow__stream_end();
	if (t->buffers)
		__atomic_store_n(&t->taken[b], false, __ATOMIC_RELEASE);
}

/* ---- The shape of tiles ---- */

/* The dimension in which the source is densest, if that is not I. */
static int
choose_j(const struct cow__plan *p)
{
	int last = p->dims - 1, best = -1;

	for (int d = 0; d < last; d++) {
		int64_t f = magnitude(p->from_strides[d]);

		if (f && (best < 0 || f < magnitude(p->from_strides[best])))
			best = d;
	}
	if (best >= 0 && (p->from_strides[last] == 0 ||
	                  magnitude(p->from_strides[best]) <
	                          magnitude(p->from_strides[last])))
		return best;
	return last - 1; /* -1: there is none */
}

/* Makes the tile longer in dimension d, and in those that follow it without a gap on this
 * side: up to a run of `run` units, as long as the tile has at most `most` in all. */
static void
lengthen_tile(struct tiles *t, const int64_t *strides, int d, int64_t run, int64_t most)
{
	const struct cow__plan *p = t->plan;
	int64_t line = LINE / p->bytes;

	while (d >= 0 && run > 1) {
		int64_t room = most, *block = &t->block[d], next;

		for (int e = 0; e < p->dims; e++)
			room /= e == d ? 1 : t->block[e];
		room = least(room, run);
		if (room > line && line > 1)
			room -= room % line; /* tiles end where lines do */
		room = least(room, p->sizes[d]);
		if (*block < room)
			*block = room;
		if (*block < p->sizes[d])
			return;
		run = (run + *block - 1) / *block;
		next = strides[d] * p->sizes[d];
		for (d = p->dims; d-- > 0 && strides[d] != next;)
			;
	}
}

static void
choose_planes(struct tiles *t)
{
	const struct cow__plan *p = t->plan;

	t->planes = 0;
	for (int d = 0; d < p->dims - 1; d++) {
		int64_t stride = magnitude(p->from_strides[d]);
		int e = t->planes;

		if (d == t->j || t->block[d] == 1)
			continue;
		for (; e > 0; e--) {
			if (magnitude(p->from_strides[t->plane[e - 1]]) >= stride)
				break;
			t->plane[e] = t->plane[e - 1];
		}
		t->plane[e] = d;
		t->planes++;
	}
}

/* Units of less than 4 bytes: a store is only a part of a line, and the line should still be
 * in the first cache when the next part is stored. */
static bool
is_narrow(const struct cow__plan *p)
{
	return p->bytes < 4;
}

/* Chooses tiles of up to `bytes` bytes; returns how many units they have. */
static int64_t
choose_tiles(struct tiles *t, int64_t bytes)
{
	const struct cow__plan *p = t->plan;
	int last = p->dims - 1;
	int64_t wide = p->bytes > p->to_bytes ? p->bytes : p->to_bytes;
	int64_t most = bytes / wide, units = 1;

	for (int d = 0; d < p->dims; d++)
		t->block[d] = 1;
	if (is_narrow(p)) {
		lengthen_tile(t, p->to_strides, last, ROWS, most);
		lengthen_tile(t, p->from_strides, t->j, LINE / p->bytes, most);
	} else {
		lengthen_tile(t, p->to_strides, last, TO_BYTES / p->to_bytes, most);
		lengthen_tile(t, p->from_strides, t->j, FROM_BYTES / p->bytes, most);
	}
	lengthen_tile(t, p->from_strides, t->j, most, most);
	lengthen_tile(t, p->to_strides, last, most, most);
	for (int d = 0; d < p->dims; d++)
		units *= t->block[d];
	cow__require(units * wide <= bytes);
	return units;
}

/* Rows too short for whole lines are not streamed. */
static bool
has_long_rows(const struct tiles *t)
{
	const struct cow__plan *p = t->plan;
	int d = p->dims - 1;
	int64_t row = t->block[d];

	if (p->to_strides[d] != p->to_bytes)
		return false;
	while (d > 0 && p->to_strides[d - 1] == row * p->to_bytes)
		row *= t->block[--d];
	return row * p->to_bytes >= 2 * LINE;
}

void
cow__plan_permute(struct cow__plan *p)
{
	struct tiles t; /* not cleared: it is large, and a copy may be small */
	void *buffers = NULL;
	size_t bytes = 0;
	int64_t tiles = 1, units;

	t.plan = p;
	t.j = choose_j(p);
	t.buffers = NULL;
	units = choose_tiles(&t, SMALL_BYTES);
	p->stream = p->stream && has_long_rows(&t);
	t.buffered = p->stream || p->converts;
	if (p->stream && t.j >= 0 && t.block[t.j] > 1 && !is_narrow(p)) {
		t.threads = (int)least(cow__workers(), THREADS);
		memset(t.taken, 0, sizeof(t.taken));
		bytes = (size_t)(t.threads * BUFFER_BYTES);
		if (cow__map_meta(bytes, &buffers) == 0)
			units = choose_tiles(&t, LARGE_BYTES);
		t.buffers = buffers;
	}
	choose_planes(&t);
	for (int d = 0; d < p->dims; d++) {
		t.counts[d] = (p->sizes[d] + t.block[d] - 1) / t.block[d];
		t.to_strides[d] = p->to_strides[d] * t.block[d];
		t.from_strides[d] = p->from_strides[d] * t.block[d];
		tiles *= t.counts[d];
	}
	cow__workers_run(tiles, cow__plan_grain(units * p->to_bytes),
	                 tiles_part, &t);
	if (buffers)
		(void)cow__map_release((uintptr_t)buffers, bytes);
}

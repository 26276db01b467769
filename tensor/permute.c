/* SPDX-License-Identifier: MIT */
/*
 * Permutations of any rank, in tiles
 *
 * Two dimensions matter: I, in which the destination is densest, and J, in which the
 * source is. A copy that goes along one of them touches a line of the other side for
 * each element. So both are cut into tiles: some lines wide on either side, read along
 * J, written along I, turned over in registers. All other dimensions are walked around
 * the tiles, the ones with the smallest strides innermost.
 *
 *                 I ->                          J ->
 *      to   J  [ a a a a a a a a ]   from  I  [ a b c ]
 *           |  [ b b b b b b b b ]         |  [ a b c ]
 *           v  [ c c c c c c c c ]         v  [ a b c ] ...
 *
 * A tile is turned over into a buffer, whose rows are then streamed or converted to
 * where they belong; or, when neither is called for, at once to where it belongs. If
 * the rows of a tile follow each other in the destination, they are one row.
 */
#include "core/base.h"
#include "tensor/plan.h"
#include "tensor/stream.h"
#include "tensor/transpose.h"
#include "tensor/workers.h"

#define TILE_BYTES ((int64_t)32 << 10)
/* Of the source, in a tile of one line of each. With fewer rows, tiles are as many
 * lines wide as fit: two to four are the worst (docs/design/copy-engine.md). */
#define ROWS ((size_t)512)

struct tiles {
	const struct cow__plan *plan;
	/* Of I and J: sizes, strides on both sides, tile sizes, how many tiles. */
	int64_t ni, nj, to_i, to_j, from_i, from_j;
	/* I may be two dimensions that are one in the destination: `inner` of the one,
	 * then a step of `from_k` in the source. */
	int64_t inner, from_k;
	int64_t bi, bj, ti, tj;
	bool buffered, merges;
	/* The others, outermost first. */
	int dims;
	int64_t sizes[COW_DIMS_MAX], to_strides[COW_DIMS_MAX];
	int64_t from_strides[COW_DIMS_MAX];
};

static inline void
turn(const struct tiles *t, char *to, int64_t to_i, int64_t to_j,
     const char *from, int64_t ni, int64_t nj)
{
	for (int64_t n = cow__min(ni, t->inner); ni > 0; ni -= n) {
		cow__transpose(to, to_i, to_j, from, t->from_i, t->from_j, n, nj,
		               t->plan->bytes);
		to += n * to_i;
		from += t->from_k;
	}
}

static void
buffered_tile(const struct tiles *t, char *to, const char *from, int64_t ni,
              int64_t nj)
{
	const struct cow__plan *p = t->plan;
	_Alignas(64) char buf[TILE_BYTES];
	int64_t row = ni * p->bytes;

	turn(t, buf, p->bytes, row, from, ni, nj);
	if (t->merges && ni == t->ni) {
		cow__plan_row(p, to, buf, ni * nj);
		return;
	}
	for (int64_t j = 0; j < nj; j++, to += t->to_j)
		if (t->to_i == p->to_bytes)
			cow__plan_row(p, to, buf + j * row, ni);
		else /* converts: else it is not buffered */
			cow__convert(&p->conversion, to, t->to_i, buf + j * row,
			             p->bytes, ni);
}

static void
tiles_part(void *arg, int64_t first, int64_t last)
{
	const struct tiles *t = arg;
	const struct cow__plan *p = t->plan;
	int64_t per = t->ti * t->tj, at = first % per;
	int64_t j = at % t->tj, i = at / t->tj;
	struct cow__walk w = { .dims = t->dims, .sizes = t->sizes,
		               .to_strides = t->to_strides,
		               .from_strides = t->from_strides };

	cow__walk_start(&w, first / per);
	for (; first < last; first++) {
		int64_t i0 = i * t->bi, j0 = j * t->bj;
		int64_t ni = cow__min(t->bi, t->ni - i0);
		int64_t nj = cow__min(t->bj, t->nj - j0);
		char *to = p->to + w.to + i0 * t->to_i + j0 * t->to_j;
		const char *from = p->from + w.from + j0 * t->from_j +
		                   (t->from_k ? i0 / t->inner * t->from_k
		                              : i0 * t->from_i);

		if (t->buffered)
			buffered_tile(t, to, from, ni, nj);
		else
			turn(t, to, t->to_i, t->to_j, from, ni, nj);
		/* Along J: the lines of the source come one after another. */
		if (++j < t->tj)
			continue;
		j = 0;
		if (++i < t->ti)
			continue;
		i = 0;
		cow__walk_next(&w);
	}
	if (p->stream)
		cow__stream_end();
}

static int64_t
magnitude(int64_t stride)
{
	return stride < 0 ? -stride : stride;
}

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

/* The dimension that follows I in the destination without a gap; -1: none. */
static int
choose_k(const struct cow__plan *p, int j)
{
	int last = p->dims - 1;

	for (int d = last; d-- > 0;)
		if (d != j && p->from_strides[d] &&
		    p->to_strides[d] == p->sizes[last] * p->to_strides[last])
			return d;
	return -1;
}

/* The others: what lies close together on either side is walked innermost. */
static void
choose_walk(struct tiles *t, int j, int k)
{
	const struct cow__plan *p = t->plan;

	for (int d = 0; d < p->dims - 1; d++) {
		int64_t key = cow__min((uint64_t)p->to_strides[d],
		                       (uint64_t)magnitude(p->from_strides[d]));
		int e = t->dims;

		if (d == j || d == k)
			continue;
		for (; e > 0 &&
		       (int64_t)cow__min((uint64_t)t->to_strides[e - 1],
		                         (uint64_t)magnitude(t->from_strides[e - 1])) <
		               key;
		     e--) {
			t->sizes[e] = t->sizes[e - 1];
			t->to_strides[e] = t->to_strides[e - 1];
			t->from_strides[e] = t->from_strides[e - 1];
		}
		t->sizes[e] = p->sizes[d];
		t->to_strides[e] = p->to_strides[d];
		t->from_strides[e] = p->from_strides[d];
		t->dims++;
	}
}

void
cow__plan_permute(const struct cow__plan *plan)
{
	struct cow__plan p = *plan;
	struct tiles t = { .plan = &p, .dims = 0 };
	int last = p.dims - 1, j = choose_j(&p), k = -1;
	int64_t wide = p.bytes > p.to_bytes ? p.bytes : p.to_bytes, outer = 1;
	int64_t most = TILE_BYTES / wide, line;

	line = 64 / p.bytes > 1 ? 64 / p.bytes : 1;
	while (line > 1 && line * (int64_t)ROWS > most)
		line /= 2;
	t.ni = p.sizes[last];
	t.to_i = p.to_strides[last];
	t.from_i = p.from_strides[last];
	t.nj = j >= 0 ? p.sizes[j] : 1;
	t.to_j = j >= 0 ? p.to_strides[j] : 0;
	t.from_j = j >= 0 ? p.from_strides[j] : 0;
	t.merges = t.to_i == p.to_bytes && t.to_j == t.ni * t.to_i;
	t.inner = t.ni;
	if (t.ni < (int64_t)ROWS && (k = choose_k(&p, j)) >= 0) {
		t.from_k = p.from_strides[k];
		t.ni *= p.sizes[k];
		t.merges = t.to_i == p.to_bytes && t.to_j == t.ni * t.to_i;
	}
	/* Elements are up to 255 bytes, and a tile holds fewer than ROWS of them. */
	t.bi = cow__min((size_t)t.ni, cow__min(ROWS, (size_t)most));
	if (k >= 0) /* wider, since there are few rows of each */
		t.bj = cow__min((size_t)(t.inner < 128 ? 4 * line : line),
		                (size_t)(most / t.inner));
	else
		t.bj = t.bi < (int64_t)ROWS / 2 ? most / t.bi : line;
	if (t.bj > line)
		t.bj -= t.bj % line; /* tiles end where lines do, if rows do */
	t.bj = cow__min((size_t)t.nj, cow__max((size_t)t.bj, 1));
	/* Few of J: more of I; and the other way round. */
	if (k >= 0 || t.bi * t.bj * 2 <= most)
		t.bi = cow__min((size_t)t.ni, (size_t)(most / t.bj));
	if (k >= 0 && t.bi > t.inner)
		t.bi -= t.bi % t.inner;
	cow__require(t.bi * t.bj * wide <= TILE_BYTES);
	t.ti = (t.ni + t.bi - 1) / t.bi;
	t.tj = (t.nj + t.bj - 1) / t.bj;
	/* Rows too short for whole lines are not streamed. */
	if (t.to_i != p.to_bytes ||
	    (t.bi * p.to_bytes < 128 && !(t.merges && t.ti == 1)))
		p.stream = false;
	t.buffered = p.stream || p.converts;
	choose_walk(&t, j, k);
	for (int d = 0; d < t.dims; d++)
		outer *= t.sizes[d];
	cow__workers_run(outer * t.ti * t.tj,
	                 cow__plan_grain(t.bi * t.bj * p.to_bytes), tiles_part,
	                 &t);
}

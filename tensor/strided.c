/* SPDX-License-Identifier: MIT */
/*
 * The copy engine: simplifies a job, chooses a kernel, and has those for dense rows. See the
 * header; permute.c has the other kernels.
 */
#include "tensor/strided.h"
#include "core/base/base.h"
#include "core/base/stream.h"
#include "tensor/plan.h"
#include "core/memory/workers.h"

/* A thread that gets less is not worth waking. */
#define GRAIN_BYTES (256 * KIB)
/* A copy of this size or more would not be found in a cache afterwards. */
#define STREAM_BYTES (32 * MIB)
/* ... if its rows have at least this size: shorter ones are faster through the caches. */
#define STREAM_ROW_BYTES 2048
/* The unit of work: a row, or a piece of a long one. */
#define PIECE_BYTES (64 * KIB)
/* Shorter rows are moved in tiles. */
#define ROW_BYTES 256

static int64_t
least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
cow__plan_grain(int64_t bytes)
{
	int64_t n = (int64_t)GRAIN_BYTES / (bytes > 0 ? bytes : 1);

	return n > 0 ? n : 1;
}

/* ---- Simplification ---- */

static int64_t
magnitude(int64_t stride)
{
	return stride < 0 ? -stride : stride;
}

/* Does dimension `a` belong outside of `b`? The strides of the destination decide, so that
 * whole lines are written; where they are equal, those of the source do. */
static bool
is_outside(const struct cow__strided *j, int a, int b)
{
	int64_t ta = magnitude(j->to.strides[a]), tb = magnitude(j->to.strides[b]);
	int64_t fa = magnitude(j->from.strides[a]);
	int64_t fb = magnitude(j->from.strides[b]);

	return ta != tb ? ta > tb : fa > fb;
}

static void
swap(int64_t *a, int64_t *b)
{
	int64_t t = *a;

	*a = *b;
	*b = t;
}

void
cow__strided_simplify(struct cow__strided *j)
{
	int n = 0;

	for (int d = 0; d < j->dims; d++) {
		int64_t size = j->sizes[d], t = j->to.strides[d];
		int64_t f = j->from.strides[d];

		if (size == 0) {
			j->dims = 1;
			j->sizes[0] = 0;
			return;
		}
		if (size == 1)
			continue;
		if (t < 0) { /* backwards on both sides is forwards */
			j->to.data += (size - 1) * t;
			j->from.data += (size - 1) * f;
			t = -t;
			f = -f;
		}
		j->sizes[n] = size;
		j->to.strides[n] = t;
		j->from.strides[n] = f;
		n++;
	}
	for (int d = 1; d < n; d++)
		for (int e = d; e > 0 && is_outside(j, e, e - 1); e--) {
			swap(&j->sizes[e], &j->sizes[e - 1]);
			swap(&j->to.strides[e], &j->to.strides[e - 1]);
			swap(&j->from.strides[e], &j->from.strides[e - 1]);
		}
	j->dims = n;
	n = 0;
	for (int d = 1; d < j->dims; d++) {
		int64_t size = j->sizes[d];

		if (j->to.strides[n] == j->to.strides[d] * size &&
		    j->from.strides[n] == j->from.strides[d] * size)
			size *= j->sizes[n];
		else
			n++;
		j->sizes[n] = size;
		j->to.strides[n] = j->to.strides[d];
		j->from.strides[n] = j->from.strides[d];
	}
	if (j->dims > 0)
		j->dims = n + 1;
}

/* ---- Dense rows ---- */

void
cow__plan_row(const struct cow__plan *p, char *to, const char *from, int64_t n)
{
	_Alignas(64) char buf[4096];
	int64_t most = (int64_t)sizeof(buf) / p->to_bytes, k;

	if (!p->converts) {
		if (p->stream)
			cow__stream_copy(to, from, (size_t)(n * p->bytes));
		else if (to != from)
			/* With COW_COPY_IGNORE_OVERLAP the sides may overlap. */
			memmove(to, from, (size_t)(n * p->bytes));
		return;
	}
	if (!p->stream) {
		cow__convert(&p->conversion, to, p->to_bytes, from, p->bytes, n);
		return;
	}
	/* A first piece that makes the others begin at lines. */
	k = (int64_t)(-(uintptr_t)to & (COW__LINE - 1)) / p->to_bytes;
	for (k = k && k < n ? k : least(most, n); n > 0; k = least(most, n)) {
		cow__convert(&p->conversion, buf, p->to_bytes, from, p->bytes, k);
		cow__stream_copy(to, buf, (size_t)(k * p->to_bytes));
		to += k * p->to_bytes;
		from += k * p->bytes;
		n -= k;
	}
}

struct rows {
	const struct cow__plan *plan;
	int64_t pieces; /* of a row */
	int64_t length; /* of a piece, units */
};

static void
rows_part(void *arg, int64_t first, int64_t last)
{
	const struct rows *r = arg;
	const struct cow__plan *p = r->plan;
	int64_t size = p->sizes[p->dims - 1], piece = first % r->pieces;
	struct cow__walk w = { .dims = p->dims - 1, .sizes = p->sizes,
		               .to_strides = p->to_strides,
		               .from_strides = p->from_strides };

	cow__walk_start(&w, first / r->pieces);
	while (first < last) {
		/* All pieces of this row that this thread has, at once. */
		int64_t pieces = least(r->pieces - piece, last - first);
		int64_t at = piece * r->length;
		int64_t n = least(pieces * r->length, size - at);

		cow__plan_row(p, p->to + w.to + at * p->to_bytes,
		              p->from + w.from + at * p->bytes, n);
		first += pieces;
		piece = 0;
		cow__walk_next(&w);
	}
	if (p->stream)
		cow__stream_end();
}

static void
copy_rows(const struct cow__plan *p)
{
	int64_t size = p->sizes[p->dims - 1], rows = 1;
	int64_t bytes = size * p->to_bytes;
	struct rows r = { p, (bytes + (int64_t)PIECE_BYTES - 1) /
		                     (int64_t)PIECE_BYTES, 0 };

	for (int d = 0; d < p->dims - 1; d++)
		rows *= p->sizes[d];
	r.length = (size + r.pieces - 1) / r.pieces;
	r.pieces = (size + r.length - 1) / r.length;
	cow__workers_run(rows * r.pieces,
	                 cow__plan_grain(r.length * p->to_bytes), rows_part, &r);
}

/* ---- The choice ---- */

static bool
same_bytes(const struct cow__strided *j)
{
	return j->to.dtype == j->from.dtype && !j->conj && !j->neg;
}

/* Finds the most frequent copy without planning: both sides dense as they are. Returns the
 * number of bytes; 0: it is another copy. */
static size_t
dense_bytes(const struct cow__strided *j, size_t element)
{
	int64_t dense = (int64_t)element;

	for (int d = j->dims; d-- > 0;) {
		if (j->sizes[d] == 1)
			continue;
		if (j->to.strides[d] != dense || j->from.strides[d] != dense)
			return 0;
		dense *= j->sizes[d];
	}
	return (size_t)dense;
}

static void
make_plan(struct cow__plan *p, struct cow__strided *j)
{
	int last;

	p->bytes = (int64_t)cow_dtype_bytes(j->from.dtype);
	p->to_bytes = (int64_t)cow_dtype_bytes(j->to.dtype);
	p->converts = !same_bytes(j);
	if (p->converts)
		p->conversion = cow__conversion(
		        j->to.dtype, j->from.dtype,
		        (j->conj ? COW__CONVERT_CONJ : 0) |
		                (j->neg ? COW__CONVERT_NEG : 0));
	last = j->dims - 1;
	/* Short rows become units. */
	if (!p->converts && j->dims > 1 && j->to.strides[last] == p->bytes &&
	    j->from.strides[last] == p->bytes &&
	    j->sizes[last] * p->bytes < ROW_BYTES) {
		p->bytes = p->to_bytes = j->sizes[last] * p->bytes;
		j->dims = last;
	}
	p->dims = j->dims;
	p->to = j->to.data;
	p->from = j->from.data;
	memcpy(p->sizes, j->sizes, sizeof(int64_t) * (size_t)p->dims);
	memcpy(p->to_strides, j->to.strides, sizeof(int64_t) * (size_t)p->dims);
	memcpy(p->from_strides, j->from.strides,
	       sizeof(int64_t) * (size_t)p->dims);
}

COW_EXPORT void
cow__strided_copy(const struct cow__strided *job)
{
	struct cow__strided j;
	struct cow__plan p;
	size_t bytes = same_bytes(job)
	                       ? dense_bytes(job, cow_dtype_bytes(job->to.dtype))
	                       : 0;
	int64_t n = 1;
	int last;

	if (bytes && bytes < 2 * GRAIN_BYTES) {
		if (job->to.data != job->from.data)
			memmove(job->to.data, job->from.data, bytes);
		return;
	}
	j.dims = job->dims;
	memcpy(j.sizes, job->sizes, sizeof(int64_t) * (size_t)j.dims);
	j.to.data = job->to.data;
	j.from.data = job->from.data;
	j.to.dtype = job->to.dtype;
	j.from.dtype = job->from.dtype;
	memcpy(j.to.strides, job->to.strides, sizeof(int64_t) * (size_t)j.dims);
	memcpy(j.from.strides, job->from.strides,
	       sizeof(int64_t) * (size_t)j.dims);
	j.conj = job->conj;
	j.neg = job->neg;
	cow__strided_simplify(&j);
	if (j.dims == 0) {
		j.dims = 1;
		j.sizes[0] = 1;
		j.to.strides[0] = (int64_t)cow_dtype_bytes(j.to.dtype);
		j.from.strides[0] = (int64_t)cow_dtype_bytes(j.from.dtype);
	}
	for (int d = 0; d < j.dims; d++)
		n *= j.sizes[d];
	if (n == 0)
		return;
	make_plan(&p, &j);
	last = p.dims - 1;
	p.stream = (uint64_t)n * cow_dtype_bytes(j.to.dtype) >= STREAM_BYTES;
	if (p.to_strides[last] == p.to_bytes && p.from_strides[last] == p.bytes) {
		/* memmove decides by itself whether to stream one long row. */
		if (p.dims == 1 ? !p.converts
		                : p.sizes[last] * p.to_bytes < STREAM_ROW_BYTES)
			p.stream = false;
		copy_rows(&p);
	} else {
		cow__plan_permute(&p);
	}
}

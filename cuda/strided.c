/* SPDX-License-Identifier: MIT */
/*
 * Chooses the kernel, or the driver's copy, for a strided copy
 *
 *   one type, long rows         cuMemcpy2DAsync, cuMemcpy3DAsync
 *   one type                    units as large as both sides allow, then
 *     densest dimension shared    rows
 *     else                        tiles
 *   two types, or integers to   convert; turn, if the densest dimensions differ
 *   be negated and converted
 *
 * conj and neg of floats flip bits; rows and tiles flip them while they copy.
 */
#include "core/base/base.h"
#include "cuda/kernels.h"

/* With dimensions shorter than this a square is mostly empty. */
#define TILE_LEAST 8
/* The driver copies rows of BOX_ROW bytes well; rows that words don't fit, from BOX_ODD_ROW
 * on. */
#define BOX_ROW (4 * KIB)
#define BOX_ODD_ROW ((int64_t)256)
#define PITCH_MOST INT32_MAX

struct flat {
	int dims;
	int64_t sizes[COW__KERNEL_DIMS], to[COW__KERNEL_DIMS], from[COW__KERNEL_DIMS];
	int64_t unit;
};

static int64_t
low_bit(int64_t n)
{
	return n & -n;
}

static int64_t
magnitude(int64_t n)
{
	return n < 0 ? -n : n;
}

/* The largest power of two, up to `most`, of which all places and strides are multiples;
 * `but_last`: without the last dimension's stride. */
static int64_t
alignment(const struct cow__strided *job, const struct flat *f, bool but_last,
          int64_t most)
{
	int64_t all = most | (int64_t)(uintptr_t)job->to.data |
	              (int64_t)(uintptr_t)job->from.data;

	for (int i = 0; i < f->dims - but_last; i++)
		all |= f->to[i] | f->from[i];
	return low_bit(all);
}

/* ---- Jobs of kernels ---------------------------------------------------------- */

static struct cow__kernel_dim
dim(int64_t size, int64_t to, int64_t from)
{
	struct cow__kernel_dim d = { (uint64_t)size, to, from, 0, 0 };
	uint64_t n = (uint64_t)size;

	if (n > INT32_MAX)
		return d; /* the form of 64 bits divides */
	while (((uint64_t)1 << d.shift) < n)
		d.shift++;
	d.magic = (uint32_t)(((((uint64_t)1 << d.shift) - n) << 32) / n + 1);
	return d;
}

/* Sets the job's outer dimensions: all but `x` and `y` (-1: none). Returns how many units they
 * have. */
static uint64_t
outer(const struct flat *f, int x, int y, struct cow__kernel_job *j)
{
	uint64_t n = 1;

	j->dims = 0;
	for (int i = 0; i < f->dims; i++)
		if (i != x && i != y) {
			j->d[j->dims++] = dim(f->sizes[i], f->to[i], f->from[i]);
			n *= (uint64_t)f->sizes[i];
		}
	return n;
}

/* 0: all offsets and `count` fit the form of 32 bits; else 1. */
static int
form_of(const struct flat *f, int64_t to_bytes, int64_t from_bytes,
        uint64_t count)
{
	int64_t to = to_bytes, from = from_bytes;

	for (int i = 0; i < f->dims; i++) {
		to += (f->sizes[i] - 1) * magnitude(f->to[i]);
		from += (f->sizes[i] - 1) * magnitude(f->from[i]);
	}
	return to > INT32_MAX || from > INT32_MAX || count > INT32_MAX;
}

/* The densest dimension of the source, if squares of it and the destination's pay; else -1. */
static int
other_side(const struct flat *f, int64_t to_bytes, int64_t from_bytes)
{
	int x = f->dims - 1;

	if (f->dims < 2 || f->to[x] != to_bytes || f->from[x] == from_bytes ||
	    f->sizes[x] < TILE_LEAST)
		return -1;
	for (int i = 0; i < x; i++)
		if (f->from[i] == from_bytes && f->sizes[i] >= TILE_LEAST)
			return i;
	return -1;
}

static void
job_start(const struct cow__strided *job, struct cow__kernel_job *ret)
{
	memset(ret, 0, offsetof(struct cow__kernel_job, d));
	ret->to = (uintptr_t)job->to.data;
	ret->from = (uintptr_t)job->from.data;
}

static void
squares(const struct flat *f, int x, int y, int64_t side,
        struct cow__kernel_job *j)
{
	j->x = dim(f->sizes[x], f->to[x], f->from[x]);
	j->y = dim(f->sizes[y], f->to[y], f->from[y]);
	j->tiles_x = ((uint64_t)f->sizes[x] + (uint64_t)side - 1) / (uint64_t)side;
	j->tiles_y = ((uint64_t)f->sizes[y] + (uint64_t)side - 1) / (uint64_t)side;
	j->count = outer(f, x, y, j) * j->tiles_x * j->tiles_y;
}

/* ---- One type ---------------------------------------------------------------------- */

/* Finds the bits of an element that conj and neg flip. False: negation of integers. */
static bool
flips(const struct cow__strided *job, uint64_t ret[2])
{
	enum cow_dtype t = job->to.dtype;
	uint64_t sign = (uint64_t)1 << 63, one = 0, half;
	bool im = job->neg != job->conj;
	int bytes = (int)cow_dtype_bytes(t);

	ret[0] = ret[1] = 0;
	if (cow_dtype_is_complex(t)) {
		half = sign >> (64 - bytes * 4);
		if (t == COW_COMPLEX128) {
			ret[0] = job->neg ? sign : 0;
			ret[1] = im ? sign : 0;
			return true;
		}
		one = (job->neg ? half : 0) | (im ? half << bytes * 4 : 0);
	} else if (job->neg && t != COW_BOOL) {
		if (!cow_dtype_is_floating(t))
			return false;
		one = sign >> (64 - bytes * 8);
	}
	for (int i = 0; i < 8; i += bytes)
		ret[0] |= one << i * 8;
	ret[1] = ret[0];
	return true;
}

/* Makes units of elements; `merged`: larger units where that is possible; `whole`: never a
 * part of an element. -ENOTSUP: their alignment does not allow it. */
static int
flatten(const struct cow__strided *job, bool merged, bool whole, struct flat *f)
{
	int64_t item = (int64_t)cow_dtype_bytes(job->to.dtype);
	int last = job->dims - 1;

	f->dims = job->dims;
	memcpy(f->sizes, job->sizes, (size_t)job->dims * sizeof(f->sizes[0]));
	memcpy(f->to, job->to.strides, (size_t)job->dims * sizeof(f->to[0]));
	memcpy(f->from, job->from.strides, (size_t)job->dims * sizeof(f->from[0]));
	f->unit = item;
	if (last >= 0 && f->to[last] == item && f->from[last] == item && merged) {
		f->unit = low_bit(alignment(job, f, true, 16) |
		                  f->sizes[last] * item);
		f->sizes[last] = f->sizes[last] * item / f->unit;
		f->to[last] = f->from[last] = f->unit;
		if (f->sizes[last] == 1)
			f->dims--;
		return whole && f->unit < item ? -ENOTSUP : 0;
	}
	f->unit = alignment(job, f, false, item);
	if (f->unit < item) {
		if (whole || f->dims == COW__KERNEL_DIMS)
			return -ENOTSUP;
		f->sizes[f->dims] = item / f->unit;
		f->to[f->dims] = f->from[f->dims] = f->unit;
		f->dims++;
	}
	return 0;
}

/* Is it rows with a pitch, or slices of such rows? */
static bool
is_box(const struct cow__strided *job)
{
	int64_t item = (int64_t)cow_dtype_bytes(job->to.dtype);
	const int64_t *n = job->sizes, *t = job->to.strides, *f = job->from.strides;
	int last = job->dims - 1;
	int64_t row;

	if (job->dims < 2 || job->dims > 3 || t[last] != item || f[last] != item)
		return false;
	row = n[last] * item;
	if (t[last - 1] < row || f[last - 1] < row || t[last - 1] > PITCH_MOST ||
	    f[last - 1] > PITCH_MOST)
		return false;
	return job->dims == 2 ||
	       (t[0] % t[1] == 0 && f[0] % f[1] == 0 && t[0] / t[1] >= n[1] &&
	        f[0] / f[1] >= n[1]);
}

static int
box(struct cow__cuda *d, struct cow__cu_stream *stream,
    const struct cow__strided *job)
{
	const int64_t *n = job->sizes, *t = job->to.strides, *f = job->from.strides;
	int last = job->dims - 1;
	size_t row = (size_t)n[last] * cow_dtype_bytes(job->to.dtype);

	if (job->dims == 2) {
		struct cow__cu_copy2d c = {
			.src_type = COW_CU_MEMORY_DEVICE,
			.src_device = (uintptr_t)job->from.data,
			.src_pitch = (size_t)f[0],
			.dst_type = COW_CU_MEMORY_DEVICE,
			.dst_device = (uintptr_t)job->to.data,
			.dst_pitch = (size_t)t[0],
			.width_bytes = row,
			.height = (size_t)n[0],
		};

		return cow__cu_error(d->cu->copy_2d(&c, stream),
		                     "copying rows of device memory");
	}
	return cow__cu_error(d->cu->copy_3d(&(struct cow__cu_copy3d){
	        .src_type = COW_CU_MEMORY_DEVICE,
	        .src_device = (uintptr_t)job->from.data,
	        .src_pitch = (size_t)f[1],
	        .src_height = (size_t)(f[0] / f[1]),
	        .dst_type = COW_CU_MEMORY_DEVICE,
	        .dst_device = (uintptr_t)job->to.data,
	        .dst_pitch = (size_t)t[1],
	        .dst_height = (size_t)(t[0] / t[1]),
	        .width_bytes = row,
	        .height = (size_t)n[1],
	        .depth = (size_t)n[0],
	}, stream), "copying slices of device memory");
}

static int
one_type(struct cow__cuda *d, struct cow__cu_stream *stream,
         const struct cow__strided *job)
{
	int64_t item = (int64_t)cow_dtype_bytes(job->to.dtype), row;
	struct cow__kernel_job j;
	struct flat f;
	int form, r, y, which;
	bool bits;

	job_start(job, &j);
	bits = flips(job, j.flip);
	r = flatten(job, bits, !bits || j.flip[0] || j.flip[1], &f);
	if (bits && (j.flip[0] | j.flip[1]) == 0 && is_box(job)) {
		row = job->sizes[job->dims - 1] * item;
		if (!d->kernels || row >= (int64_t)BOX_ROW ||
		    (f.unit < 4 && row >= BOX_ODD_ROW))
			return box(d, stream, job);
	}
	if (r < 0)
		return r;
	which = __builtin_ctzll((unsigned long long)f.unit);
	y = bits ? other_side(&f, f.unit, f.unit) : -1;
	if (y >= 0) {
		squares(&f, f.dims - 1, y,
		        COW__KERNEL_TILE * (f.unit < 4 ? 4 / f.unit : 1), &j);
		form = form_of(&f, f.unit, f.unit, j.count);
		return cow__cuda_launch(d, stream, COW__CUDA_TILES, which, form,
		                        j.count, &j);
	}
	j.count = outer(&f, -1, -1, &j);
	form = form_of(&f, f.unit, f.unit, j.count);
	return cow__cuda_launch(d, stream,
	                        bits ? COW__CUDA_ROWS : COW__CUDA_NEGATE, which,
	                        form,
	                        (j.count + COW__KERNEL_THREADS * COW__KERNEL_UNITS - 1) /
	                                (COW__KERNEL_THREADS * COW__KERNEL_UNITS),
	                        &j);
}

/* ---- Two types --------------------------------------------------------------------- */

static int
kind_of_type(enum cow_dtype t)
{
	switch (t) {
	case COW_UINT8:
	case COW_UINT16:
	case COW_UINT32:
	case COW_UINT64:
		return 1;
	case COW_FLOAT16:
	case COW_BFLOAT16:
	case COW_FLOAT32:
	case COW_FLOAT8_E4M3FN:
	case COW_FLOAT8_E5M2:
		return 2;
	case COW_FLOAT64:
		return 3;
	case COW_COMPLEX32:
	case COW_COMPLEX64:
		return 4;
	case COW_COMPLEX128:
		return 5;
	default:
		return 0;
	}
}

static bool
is_aligned(const struct cow__side *side, int dims, int64_t item)
{
	int64_t all = (int64_t)(uintptr_t)side->data;

	for (int i = 0; i < dims; i++)
		all |= side->strides[i];
	return (all & (item - 1)) == 0;
}

static int
two_types(struct cow__cuda *d, struct cow__cu_stream *stream,
          const struct cow__strided *job)
{
	int64_t to = (int64_t)cow_dtype_bytes(job->to.dtype);
	int64_t from = (int64_t)cow_dtype_bytes(job->from.dtype);
	int y, form, which = kind_of_type(job->from.dtype);
	struct cow__kernel_job j;
	struct flat f;

	if (!is_aligned(&job->to, job->dims, to) ||
	    !is_aligned(&job->from, job->dims, from))
		return -ENOTSUP;
	f.dims = job->dims;
	memcpy(f.sizes, job->sizes, (size_t)job->dims * sizeof(f.sizes[0]));
	memcpy(f.to, job->to.strides, (size_t)job->dims * sizeof(f.to[0]));
	memcpy(f.from, job->from.strides, (size_t)job->dims * sizeof(f.from[0]));
	if (f.dims == 0) {
		f.dims = 1;
		f.sizes[0] = 1;
		f.to[0] = to;
		f.from[0] = from;
	}
	job_start(job, &j);
	j.to_type = (int32_t)job->to.dtype;
	j.from_type = (int32_t)job->from.dtype;
	j.to_bytes = (int32_t)to;
	j.resolve = (job->conj ? COW__KERNEL_CONJ : 0) |
	            (job->neg ? COW__KERNEL_NEG : 0);
	y = other_side(&f, to, from);
	if (y >= 0) {
		squares(&f, f.dims - 1, y, COW__KERNEL_TILE, &j);
		form = form_of(&f, to, from, j.count);
		return cow__cuda_launch(d, stream, COW__CUDA_TURN, which, form,
		                        j.count, &j);
	}
	j.x = dim(f.sizes[f.dims - 1], f.to[f.dims - 1], f.from[f.dims - 1]);
	j.tiles_x = (j.x.size + 3) / 4;
	j.y = dim((int64_t)j.tiles_x, 0, 0);
	j.count = outer(&f, f.dims - 1, -1, &j) * j.tiles_x;
	form = form_of(&f, to, from, j.count);
	return cow__cuda_launch(d, stream, COW__CUDA_CONVERT, which, form,
	                        (j.count + COW__KERNEL_THREADS - 1) /
	                                COW__KERNEL_THREADS, &j);
}

int
cow__cuda_strided(struct cow__cuda *d, struct cow__cu_stream *stream,
                  const struct cow__strided *job)
{
	for (int i = 0; i < job->dims; i++)
		if (job->sizes[i] == 0)
			return 0;
	if (job->to.dtype == job->from.dtype)
		return one_type(d, stream, job);
	return two_types(d, stream, job);
}

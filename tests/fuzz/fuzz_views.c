/* SPDX-License-Identifier: MIT */
/*
 * Programs of views and copies against arrays of bytes (naive.h)
 *
 * The input is read byte by byte: which operation, on which of a few tensors, with
 * which numbers. After each, all small storages are what the model says, and in the end
 * the large ones, too: no copy touched another storage, no lazy clone saw a write, what
 * must be refused was refused. In the end nothing is left.
 */
#include "tests/fuzz/naive.h"

#include <errno.h>
#include <stdio.h>

enum { TENSORS = 6, STORAGES = 8, SMALL = 4096, LARGE = 5 << 18, STEPS = 48 };
/* That a tensor may have, and that a program may touch: a model is slow. */
enum { ELEMENTS = 1 << 17, WORK = 1 << 19 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned fuzz_rounds;
const unsigned fuzz_rounds = 150;

struct storage {
	struct cow_storage *is;
	unsigned char *bytes;
	size_t count;
	int refs;
	unsigned char *exposed;
};

struct tensor {
	struct cow_tensor *is; /* NULL: none */
	struct storage *on;
	struct naive_view view;
};

static const uint8_t *at, *end;
static struct storage storages[STORAGES];
static struct tensor tensors[TENSORS];
static uint64_t seed;
static int64_t work;

static unsigned take(unsigned limit)
{
	return at < end ? *at++ % limit : 0;
}

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* All bytes, as the library shows them to readers. */
static void compare(const struct storage *s)
{
	if (s->count)
		naive_must(memcmp(cow_storage_data(s->is), s->bytes, s->count) == 0);
}

/* ---- Tensors come and go ------------------------------------------------------------- */

/* NULL: the model is full. */
static struct storage *storage_of(struct cow_storage *is)
{
	struct storage *s, *empty = NULL;

	for (s = storages; s < storages + STORAGES; s++) {
		if (s->refs && s->is == is)
			return s;
		if (!s->refs && !empty)
			empty = s;
	}
	if (empty) {
		*empty = (struct storage){ .is = is, .count = cow_storage_bytes(is) };
		empty->bytes = malloc(empty->count + 1);
		naive_must(empty->bytes != NULL);
		if (empty->count)
			memcpy(empty->bytes, cow_storage_data(is), empty->count);
	}
	return empty;
}

static void drop(struct tensor *t)
{
	if (!t->is)
		return;
	if (--t->on->refs == 0) {
		compare(t->on);
		free(t->on->bytes);
	}
	naive_must(cow_tensor_unref(t->is) == NULL);
	t->is = NULL;
}

/* The model of a tensor is what it says of itself; whoever made it checks that. Its
 * reference goes to a slot. */
static struct tensor *adopt(struct cow_tensor *is)
{
	struct tensor *t = &tensors[take(TENSORS)];
	struct naive_view *v = &t->view;
	struct storage *on;

	cow_tensor_ref(is);
	drop(t);
	cow_tensor_unref(is);
	on = storage_of(cow_tensor_storage(is));
	if (!on || cow_tensor_dims(is) > NAIVE_DIMS) {
		cow_tensor_unref(is);
		return NULL;
	}
	*t = (struct tensor){ .is = is, .on = on };
	on->refs++;
	v->dtype = cow_tensor_dtype(is);
	v->dims = cow_tensor_dims(is);
	memcpy(v->sizes, cow_tensor_sizes(is), (size_t)v->dims * sizeof(int64_t));
	memcpy(v->strides, cow_tensor_strides(is), (size_t)v->dims * sizeof(int64_t));
	v->offset = cow_tensor_offset(is);
	v->conj = cow_tensor_is_conj(is);
	v->neg = cow_tensor_is_neg(is);
	naive_must(cow_tensor_numel(is) == naive_numel(v));
	naive_must(cow_tensor_is_contiguous(is, cow_tensor_format(is)));
	return t;
}

/* May a loop go over all its elements? */
static bool affordable(const struct tensor *t)
{
	int64_t n = t ? naive_numel(&t->view) : INT64_MAX;

	if (n > ELEMENTS || work + n > WORK)
		return false;
	work += n;
	return true;
}

static const struct tensor *pick(void)
{
	const struct tensor *t = &tensors[take(TENSORS)];

	for (int i = 0; i < TENSORS && !t->is; i++)
		t = &tensors[i];
	return t->is ? t : NULL;
}

static enum cow_dtype some_type(void)
{
	static const enum cow_dtype types[] = {
		COW_INT32, COW_UINT8, COW_FLOAT32, COW_COMPLEX64, COW_BOOL, COW_INT8,
		COW_INT16, COW_INT64, COW_UINT16, COW_UINT32, COW_UINT64, COW_FLOAT64,
		COW_COMPLEX128,
	};

	return types[take(sizeof(types) / sizeof(types[0]))];
}

static void create(void)
{
	enum cow_dtype type = some_type();
	int64_t sizes[5];
	size_t bytes = cow_dtype_bytes(type);
	int dims = (int)take(6);
	bool large = take(16) == 15;
	struct cow_tensor *is;
	struct tensor *t;
	void *data;

	for (int d = 0; d < dims; d++)
		bytes *= (size_t)(sizes[d] = (int64_t)take(9));
	if (large) { /* pages, not bytes */
		dims = 2;
		sizes[0] = 3 + take(3);
		sizes[1] = LARGE / 8 / (int64_t)cow_dtype_bytes(type) + take(4);
		bytes = (size_t)(sizes[0] * sizes[1]) * cow_dtype_bytes(type);
	}
	if (!large && bytes > SMALL)
		return;
	naive_must(cow_tensor_new(type, dims, sizes, NULL, &is) == 0);
	naive_must(cow_tensor_data_mut(is, COW_WRITE_ALL, &data) == 0);
	for (size_t i = 0; i < bytes; i++) /* of large ones, most bytes are 0 */
		((unsigned char *)data)[i] = i < SMALL || i % 4096 == 9
		                                     ? next() >> 31 & (type == COW_BOOL ? 1 : 255)
		                                     : 0;
	t = adopt(is);
	if (t && bytes)
		naive_must(memcmp(t->on->bytes, cow_tensor_data(is), bytes) == 0);
}

/* ---- Views ------------------------------------------------------------------------------ */

/* A view was made, in which the element at `index` is that of `from` at map(index). */
typedef void map_fn(const int64_t *index, int64_t *ret, const int64_t *arg);

static void check_view(const struct naive_view *from, struct cow_tensor *is, map_fn *map,
                       const int64_t *arg)
{
	struct tensor *t = adopt(is);
	int64_t n = t ? naive_numel(&t->view) : 0;

	naive_must(!t || (t->view.dtype == from->dtype && t->view.conj == from->conj &&
	                  t->view.neg == from->neg));
	for (int64_t i = 0; i < n; i += n > 512 ? n / 512 : 1) {
		int64_t index[NAIVE_DIMS] = { 0 }, other[NAIVE_DIMS] = { 0 };

		naive_index(t->view.dims, t->view.sizes, i, index);
		map(index, other, arg);
		naive_must(naive_nth(&t->view, i) == naive_place(from, other));
	}
}

static void map_slice(const int64_t *index, int64_t *ret, const int64_t *arg)
{
	memcpy(ret, index, NAIVE_DIMS * sizeof(*ret));
	ret[arg[0]] = arg[1] + index[arg[0]] * arg[2];
}

static void slice(void)
{
	const struct tensor *t = pick();
	struct naive_view from;
	int64_t arg[3], last, n = 0;
	struct cow_tensor *is;
	int dim;

	if (!t || t->view.dims == 0)
		return;
	from = t->view;
	dim = (int)take((unsigned)from.dims);
	arg[0] = dim;
	arg[1] = (int64_t)take(20) - 9;
	last = (int64_t)take(20) - 9;
	arg[2] = 1 + (int64_t)take(4);
	if (last == 10)
		last = INT64_MAX;
	naive_must(cow_tensor_slice(t->is, dim - (take(2) ? from.dims : 0), arg[1], last,
	                            arg[2], &is) == 0);
	if (arg[1] < 0)
		arg[1] = arg[1] + from.sizes[dim] < 0 ? 0 : arg[1] + from.sizes[dim];
	if (last < 0)
		last += from.sizes[dim];
	if (last > from.sizes[dim])
		last = from.sizes[dim];
	for (int64_t i = arg[1]; i < last; i += arg[2])
		n++;
	naive_must(cow_tensor_sizes(is)[dim] == n);
	check_view(&from, is, map_slice, arg);
}

static void map_select(const int64_t *index, int64_t *ret, const int64_t *arg)
{
	for (int64_t i = 0, k = 0; i < arg[2]; i++)
		ret[i] = i == arg[0] ? arg[1] : index[k++];
}

static void select_one(void)
{
	const struct tensor *t = pick();
	struct naive_view from;
	struct cow_tensor *is;
	int64_t arg[3], size;

	if (!t || t->view.dims == 0)
		return;
	from = t->view;
	arg[0] = take((unsigned)from.dims);
	arg[1] = take(9);
	arg[2] = from.dims;
	size = from.sizes[arg[0]];
	if (arg[1] >= size) {
		naive_must(cow_tensor_select(t->is, (int)arg[0], arg[1], &is) == -EINVAL);
		return;
	}
	naive_must(cow_tensor_select(t->is, (int)arg[0], arg[1] - (take(2) ? size : 0),
	                             &is) == 0);
	check_view(&from, is, map_select, arg);
}

static void map_permute(const int64_t *index, int64_t *ret, const int64_t *arg)
{
	for (int i = 0; i < NAIVE_DIMS && arg[i] >= 0; i++)
		ret[arg[i]] = index[i];
}

static void permute(void)
{
	const struct tensor *t = pick();
	struct naive_view from;
	int64_t arg[NAIVE_DIMS + 1];
	int dims[NAIVE_DIMS] = { 0 };
	struct cow_tensor *is;

	if (!t)
		return;
	from = t->view;
	for (int i = 0; i < from.dims; i++) {
		int j = (int)take((unsigned)i + 1);

		arg[i] = arg[j];
		arg[j] = i;
	}
	arg[from.dims] = -1;
	for (int i = 0; i < from.dims; i++)
		dims[i] = (int)arg[i];
	naive_must(cow_tensor_permute(t->is, dims, &is) == 0);
	check_view(&from, is, map_permute, arg);
}

/* arg: how many are new, how many there were, their sizes. */
static void map_expand(const int64_t *index, int64_t *ret, const int64_t *arg)
{
	for (int64_t i = 0; i < arg[1]; i++)
		ret[i] = arg[2 + i] == 1 ? 0 : index[i + arg[0]];
}

static void expand(void)
{
	const struct tensor *t = pick();
	int64_t arg[2 + NAIVE_DIMS], sizes[NAIVE_DIMS + 1] = { 0 };
	struct naive_view from;
	struct cow_tensor *is;
	int fresh;

	if (!t)
		return;
	from = t->view;
	fresh = (int)take(2);
	if (from.dims + fresh > 6)
		return;
	arg[0] = fresh;
	arg[1] = from.dims;
	for (int i = 0; i < fresh + from.dims; i++) {
		int64_t had = i < fresh ? 1 : from.sizes[i - fresh];

		sizes[i] = had == 1 ? (int64_t)take(4) : had;
		if (i >= fresh)
			arg[2 + i - fresh] = had;
	}
	if (naive_count(from.dims + fresh, sizes) > ELEMENTS / 8)
		return;
	naive_must(cow_tensor_expand(t->is, from.dims + fresh, sizes, &is) == 0);
	check_view(&from, is, map_expand, arg);
}

/* The same element by number: both in the order of dimensions. */
static void same_order(const struct naive_view *from, const struct tensor *t)
{
	int64_t n = naive_numel(from);

	naive_must(naive_numel(&t->view) == n);
	for (int64_t i = 0; i < n; i += n > 512 ? n / 512 : 1)
		naive_must(naive_nth(&t->view, i) == naive_nth(from, i));
}

/* Does the result hold the same elements, of a type, with bits resolved? */
static void same_values(const struct tensor *t, const struct storage *on,
                        const struct naive_view *from)
{
	int64_t n = naive_numel(from);

	naive_must(naive_numel(&t->view) == n);
	for (int64_t i = 0; i < n; i++) {
		size_t a = cow_dtype_bytes(from->dtype), b = cow_dtype_bytes(t->view.dtype);
		unsigned char e[16] = { 0 };

		memcpy(e, on->bytes + (size_t)naive_nth(from, i) * a, a);
		naive_convert(&t->view, from, e);
		naive_must(memcmp(t->on->bytes + (size_t)naive_nth(&t->view, i) * b, e, b) == 0);
	}
}

/* A result that is a view, or has a storage of its own: with the same elements. */
static void check_result(const struct tensor *t, struct cow_tensor *is)
{
	struct tensor from = *t, *u;

	from.on->refs++; /* its bytes are needed for a moment */
	cow_tensor_ref(from.is);
	u = adopt(is);
	if (u && u->on == from.on)
		same_order(&from.view, u);
	else if (u)
		same_values(u, from.on, &from.view);
	if (--from.on->refs == 0)
		free(from.on->bytes);
	cow_tensor_unref(from.is);
}

static void reshape(void)
{
	const struct tensor *t = pick();
	int64_t sizes[4], n;
	struct cow_tensor *is;
	int dims, r;

	n = t ? naive_numel(&t->view) : 0;
	if (n == 0 || !affordable(t))
		return;
	dims = 1 + (int)take(4);
	for (int i = 0; i < dims - 1; i++) {
		sizes[i] = 1 + (int64_t)take(6);
		if (n % sizes[i])
			sizes[i] = 1;
		n /= sizes[i];
	}
	sizes[dims - 1] = take(2) ? -1 : n;
	if (take(2)) {
		r = cow_tensor_reshape(t->is, dims, sizes, take(2) ? COW_COPY_LAZY : 0, &is);
		naive_must(r == 0);
	} else {
		r = cow_tensor_view(t->is, dims, sizes, &is);
		naive_must(r == 0 || r == -EXDEV);
		naive_must(r == 0 || !cow_tensor_is_contiguous(t->is, COW_FORMAT_CONTIGUOUS));
	}
	if (r == 0)
		check_result(t, is);
}

/* Any strides and offset, of the same or another type: what lies in the storage is a
 * tensor, and nothing else is. */
static void as_strided(void)
{
	const struct tensor *t = pick();
	struct naive_view v = { .dims = (int)take(4) };
	int64_t last, n = 1, item;
	struct cow_tensor *is;
	bool same = take(2);
	int r;

	if (!t)
		return;
	v.dtype = same ? t->view.dtype : some_type();
	item = (int64_t)cow_dtype_bytes(v.dtype);
	v.offset = take(200);
	if (t->on->count > SMALL)
		v.offset *= 512;
	last = v.offset;
	for (int i = 0; i < v.dims; i++) {
		v.sizes[i] = take(8);
		v.strides[i] = take(40);
		n *= v.sizes[i];
		last += (v.sizes[i] - 1) * v.strides[i];
	}
	if (same)
		r = cow_tensor_as_strided(t->is, v.dims, v.sizes, v.strides, v.offset, &is);
	else
		r = cow_tensor_on(t->on->is, v.dtype, v.dims, v.sizes, v.strides, v.offset,
		                  &is);
	naive_must(r == (n == 0 || (last + 1) * item <= (int64_t)t->on->count ? 0 : -ERANGE));
	if (r < 0)
		return;
	v.conj = same && t->view.conj;
	v.neg = same && t->view.neg;
	t = adopt(is);
	naive_must(!t || (t->view.conj == v.conj && t->view.neg == v.neg));
	if (t)
		same_order(&v, t);
}

static void flip(bool conj)
{
	const struct tensor *t = pick();
	struct naive_view from;
	struct cow_tensor *is;
	int r;

	if (!t)
		return;
	from = t->view;
	r = conj ? cow_tensor_conj(t->is, &is) : cow_tensor_neg(t->is, &is);
	if (!conj && from.dtype == COW_BOOL) {
		naive_must(r == -EINVAL);
		return;
	}
	naive_must(r == 0);
	t = adopt(is);
	if (!t)
		return;
	naive_must(t->view.neg == (from.neg != !conj));
	naive_must(t->view.conj ==
	           (from.conj != (conj && cow_dtype_is_complex(from.dtype))));
	same_order(&from, t);
}

#include "tests/fuzz/views_copies.h"

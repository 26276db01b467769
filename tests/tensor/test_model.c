/* SPDX-License-Identifier: MIT */
/*
 * Random programs of views and copies, against a model that is simple enough to be right
 *
 * The model of a tensor is the list of its elements' places: numbers of elements of
 * its storage, in the order of the tensor's dimensions, made by plain loops from the
 * definition of each view. The model of a storage is an array of numbers. A copy
 * between models is a loop.
 */
#include "tests/device/fake.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 600, DIMS = 6, STORAGES = 4 };

struct model {
	struct cow_tensor *t;
	int storage;
	int dims;
	int64_t sizes[DIMS + 1];
	int64_t n;
	int32_t places[MOST];
};

static int32_t bytes_of[STORAGES][MOST];

static int64_t count(int dims, const int64_t *sizes)
{
	int64_t n = 1;

	for (int i = 0; i < dims; i++)
		n *= sizes[i];
	return n;
}

/* The position of the element at `index`, in the order of dimensions. */
static int64_t position(const struct model *m, const int64_t *index)
{
	int64_t at = 0;

	for (int i = 0; i < m->dims; i++)
		at = at * m->sizes[i] + index[i];
	return at;
}

/* Counts up; false after the last one. */
static bool next_index(int dims, const int64_t *sizes, int64_t *index)
{
	for (int i = dims - 1; i >= 0; i--) {
		if (++index[i] < sizes[i])
			return true;
		index[i] = 0;
	}
	return false;
}

/* Makes `to` from `from`: `from_index` says which element of `from` stands at an
 * index of `to`, whose dims and sizes are set. */
typedef void map_fn(const int64_t *index, int64_t *ret, void *arg);

static void map_places(struct model *to, const struct model *from, map_fn *fn,
                       void *arg)
{
	int64_t index[DIMS + 1] = { 0 }, other[DIMS + 1] = { 0 }, i = 0;

	to->storage = from->storage;
	to->n = count(to->dims, to->sizes);
	must(to->n <= MOST);
	if (to->n == 0)
		return;
	do {
		fn(index, other, arg);
		to->places[i++] = from->places[position(from, other)];
	} while (next_index(to->dims, to->sizes, index));
}

struct step {
	int kind, dim, other, perm[DIMS], dims, extra;
	int64_t start, step;
	int64_t sizes[DIMS + 1];
};

static void map_step(const int64_t *index, int64_t *ret, void *arg)
{
	const struct step *s = arg;
	int i, k;

	switch (s->kind) {
	case 0: /* slice */
		memcpy(ret, index, sizeof(int64_t) * DIMS);
		ret[s->dim] = s->start + index[s->dim] * s->step;
		break;
	case 1: /* select */
		for (i = k = 0; i < s->dims; i++)
			ret[i] = i == s->dim ? s->start : index[k++];
		break;
	case 2: /* permute */
		for (i = 0; i < s->dims; i++)
			ret[s->perm[i]] = index[i];
		break;
	case 3: /* expand */
		for (i = 0; i < s->dims; i++)
			ret[i] = s->sizes[i] == 1 ? 0 : index[i + s->extra];
		break;
	case 4: /* unsqueeze */
		for (i = k = 0; i < s->dims + 1; i++)
			if (i != s->dim)
				ret[k++] = index[i];
		break;
	default: /* squeeze */
		for (i = k = 0; i < s->dims; i++)
			ret[i] = i == s->dim && s->sizes[i] == 1 ? 0 : index[k++];
	}
}

static void make_slice(struct model *to, const struct model *from,
                       struct step *s, struct prng *prng)
{
	int64_t size = from->sizes[s->dim], start, end, n;

	start = (int64_t)prng_below(prng, (size_t)(2 * size + 3)) - size - 1;
	end = (int64_t)prng_below(prng, (size_t)(2 * size + 3)) - size - 1;
	s->step = 1 + (int64_t)prng_below(prng, 3);
	ok(cow_tensor_slice(from->t, s->dim, start, end, s->step, &to->t));
	/* As Python: count what a loop would visit. */
	start = start < 0 ? start + size : start;
	end = end < 0 ? end + size : end;
	start = start < 0 ? 0 : start;
	s->start = start;
	for (n = 0; start + n * s->step < end && start + n * s->step < size; n++)
		;
	to->sizes[s->dim] = n;
}

static void make_permute(struct model *to, const struct model *from,
                         struct step *s, struct prng *prng)
{
	int i, dims[DIMS];

	for (i = 0; i < s->dims; i++) {
		int j = (int)prng_below(prng, (size_t)i + 1);

		s->perm[i] = s->perm[j];
		s->perm[j] = i;
	}
	for (i = 0; i < s->dims; i++) {
		to->sizes[i] = from->sizes[s->perm[i]];
		dims[i] = s->perm[i] - (prng_below(prng, 2) ? s->dims : 0);
	}
	ok(cow_tensor_permute(from->t, dims, &to->t));
}

static bool make_expand(struct model *to, const struct model *from,
                        struct step *s, struct prng *prng)
{
	int64_t sizes[DIMS + 1];
	int i;

	s->extra = s->dims < DIMS && prng_below(prng, 3) == 0;
	to->dims = s->dims + s->extra;
	for (i = 0; i < to->dims; i++) {
		int64_t had = i < s->extra ? 1 : from->sizes[i - s->extra];

		to->sizes[i] = had == 1 ? (int64_t)prng_below(prng, 4) : had;
		sizes[i] = to->sizes[i];
		if (i >= s->extra && had != 1 && prng_below(prng, 2))
			sizes[i] = -1;
	}
	if (count(to->dims, to->sizes) > MOST)
		return false;
	ok(cow_tensor_expand(from->t, to->dims, sizes, &to->t));
	return true;
}

/* `back`, here and below: -1 gives the same dimension or index as a negative number, 0 does
 * not. */
static bool make_unsqueeze(struct model *to, const struct model *from, struct step *s,
                           struct prng *prng, int back)
{
	if (from->dims == DIMS)
		return false;
	s->dim = (int)prng_below(prng, (size_t)from->dims + 1);
	ok(cow_tensor_unsqueeze(from->t, s->dim + back * (from->dims + 1), &to->t));
	to->dims++;
	memmove(to->sizes + s->dim + 1, from->sizes + s->dim,
	        (size_t)(from->dims - s->dim) * sizeof(int64_t));
	to->sizes[s->dim] = 1;
	return true;
}

static void remove_dim(struct model *to, const struct model *from, int dim)
{
	to->dims--;
	memmove(to->sizes + dim, from->sizes + dim + 1,
	        (size_t)(to->dims - dim) * sizeof(int64_t));
}

static bool make_select(struct model *to, const struct model *from, struct step *s,
                        struct prng *prng, int back)
{
	int64_t size = from->sizes[s->dim];

	if (size == 0)
		return false;
	s->start = (int64_t)prng_below(prng, (size_t)size);
	ok(cow_tensor_select(from->t, s->dim, s->start + back * size, &to->t));
	remove_dim(to, from, s->dim);
	return true;
}

static void make_squeeze(struct model *to, const struct model *from, struct step *s, int back)
{
	ok(cow_tensor_squeeze(from->t, s->dim + back * s->dims, &to->t));
	if (from->sizes[s->dim] == 1)
		remove_dim(to, from, s->dim);
	else
		s->dim = -1; /* nothing was squeezed */
}

/* A random view of `from`. False: this one is not possible. */
static bool step(struct model *to, const struct model *from, struct prng *prng)
{
	struct step s = { .kind = (int)prng_below(prng, 6), .dims = from->dims };
	int back = prng_below(prng, 2) ? -1 : 0;
	bool made = true;

	*to = *from;
	memcpy(s.sizes, from->sizes, sizeof(s.sizes));
	if (s.kind == 4) {
		made = make_unsqueeze(to, from, &s, prng, back);
	} else if (s.kind == 2) {
		make_permute(to, from, &s, prng);
	} else if (s.kind == 3) {
		made = make_expand(to, from, &s, prng);
	} else if (from->dims == 0) {
		made = false;
	} else {
		s.dim = (int)prng_below(prng, (size_t)from->dims);
		if (s.kind == 0)
			make_slice(to, from, &s, prng);
		else if (s.kind == 1)
			made = make_select(to, from, &s, prng, back);
		else
			make_squeeze(to, from, &s, back);
	}
	if (made)
		map_places(to, from, map_step, &s);
	return made;
}

/* Asserts that the tensor's sizes and strides say what the model says. */
static void check_places(const struct model *m)
{
	const int64_t *strides = cow_tensor_strides(m->t);
	int64_t index[DIMS + 1] = { 0 }, i = 0, at;
	bool seen[MOST] = { false }, dense = true;
	int d;

	tensor_numbers(cow_tensor_sizes(m->t), m->t, m->dims, m->sizes);
	ck_assert_int_eq(cow_tensor_numel(m->t), m->n);
	must(cow_tensor_is_contiguous(m->t, cow_tensor_format(m->t)));
	if (m->n == 0)
		return;
	do {
		at = cow_tensor_offset(m->t);
		for (d = 0; d < m->dims; d++)
			at += index[d] * strides[d];
		ck_assert_int_eq(at, m->places[i]);
		dense = dense && !seen[at];
		seen[at] = true;
		i++;
	} while (next_index(m->dims, m->sizes, index));
	for (at = m->places[0]; at < m->places[0] + m->n; at++)
		dense = dense && at < MOST && seen[at];
	ck_assert_int_eq(cow_tensor_is_dense(m->t), dense);
	for (i = 0; i < m->n; i++)
		if (m->places[i] != m->places[0] + i)
			break;
	ck_assert_int_eq(cow_tensor_is_contiguous(m->t, COW_FORMAT_CONTIGUOUS),
	                 i == m->n);
}

/* Where each storage is: -1 host, else a fake device. */
static void base(struct model *m, int storage, int where, struct prng *prng)
{
	struct cow_tensor *host;
	int32_t *at;
	int64_t i;
	void *p;

	m->storage = storage;
	m->dims = (int)prng_below(prng, 5);
	do
		for (i = 0; i < m->dims; i++)
			m->sizes[i] = (int64_t)prng_below(prng, 6) + (i > 2);
	while (count(m->dims, m->sizes) > MOST);
	m->n = count(m->dims, m->sizes);
	host = tensor_new(COW_INT32, m->dims, m->sizes, COW_FORMAT_CONTIGUOUS);
	ok(cow_tensor_data_mut(host, COW_WRITE_ALL, &p));
	at = p;
	for (i = 0; i < m->n; i++) {
		m->places[i] = (int32_t)i;
		at[i] = bytes_of[storage][i] = (int32_t)prng_next(prng);
	}
	m->t = host;
	if (where >= 0) {
		m->t = tensor_on_fake(where, COW_INT32, m->dims, m->sizes);
		ok(cow_tensor_copy(m->t, host, 0));
		cow_tensor_unref(host);
	}
}

static void some_view(struct model *m, struct prng *prng)
{
	size_t steps = prng_below(prng, 5);
	struct model next;

	for (; steps; steps--)
		if (step(&next, m, prng)) {
			cow_tensor_unref(m->t);
			*m = next;
			check_places(m);
		}
}

static bool repeats(const struct model *m)
{
	bool seen[MOST] = { false };

	for (int64_t i = 0; i < m->n; i++) {
		if (seen[m->places[i]])
			return true;
		seen[m->places[i]] = true;
	}
	return false;
}

static bool meets(const struct model *a, const struct model *b)
{
	bool seen[MOST] = { false };

	if (a->storage != b->storage)
		return false;
	for (int64_t i = 0; i < a->n; i++)
		seen[a->places[i]] = true;
	for (int64_t i = 0; i < b->n; i++)
		if (seen[b->places[i]])
			return true;
	return false;
}

/* Does `from` go to `to`? Sets the index of the first of the source. */
static bool goes(const struct model *to, const struct model *from)
{
	int i, extra = to->dims - from->dims;

	for (i = 0; i < from->dims; i++)
		if (i + extra < 0 ? from->sizes[i] != 1
		                  : from->sizes[i] != 1 &&
		                            from->sizes[i] != to->sizes[i + extra])
			return false;
	return true;
}

static void model_copy(const struct model *to, const struct model *from)
{
	int64_t index[DIMS + 1] = { 0 }, other[DIMS + 1], i = 0;
	int32_t old[MOST];
	int d, extra = to->dims - from->dims;

	memcpy(old, bytes_of[from->storage], sizeof(old));
	if (to->n == 0)
		return;
	do {
		for (d = 0; d < from->dims; d++)
			other[d] = from->sizes[d] == 1 ? 0 : index[d + extra];
		bytes_of[to->storage][to->places[i++]] =
			old[from->places[position(from, other)]];
	} while (next_index(to->dims, to->sizes, index));
}

static void check_storage(struct cow_tensor *t, int storage)
{
	struct cow_storage *s = cow_tensor_storage(t);
	int64_t n = (int64_t)(cow_storage_bytes(s) / 4), one = 1;
	struct cow_tensor *all, *host;
	const struct cow_to to = { .size = sizeof(to), .dtype = -1,
		                   .set_device = true };

	ok(cow_tensor_on(s, COW_INT32, 1, &n, &one, 0, &all));
	ok(cow_tensor_to(all, &to, &host));
	if (n)
		ck_assert_mem_eq(cow_tensor_data(host), bytes_of[storage],
		                 (size_t)n * 4);
	cow_tensor_unref(all);
	cow_tensor_unref(host);
}

/* Copies between views of two of `all`. True: elements were copied. */
static bool copy_step(const struct model *const *all, struct prng *prng)
{
	struct model to = *all[prng_below(prng, 3)], from;
	bool bad, copied = false;
	int r;

	cow_tensor_ref(to.t);
	some_view(&to, prng);
	from = *all[prng_below(prng, 3)];
	if (prng_below(prng, 2)) /* something that goes there */
		from = to;
	cow_tensor_ref(from.t);
	some_view(&from, prng);
	bad = !goes(&to, &from) || (to.n && (repeats(&to) || meets(&to, &from)));
	r = cow_tensor_copy(to.t, from.t, prng_below(prng, 2) ? COW_COPY_LAZY : 0);
	/* Not proven apart is an error, too, within one storage; but never the other way
	 * round, except for a copy to itself. */
	if (r == 0 && goes(&to, &from)) {
		bool same = to.storage == from.storage && to.n == from.n &&
		            memcmp(to.places, from.places, (size_t)to.n * 4) == 0;

		must(!bad || same);
		model_copy(&to, &from);
		copied = to.n > 0;
	} else {
		ck_assert_int_eq(r, -EINVAL);
		must(bad || to.storage == from.storage);
	}
	for (int i = 0; i < 3; i++)
		check_storage(all[i]->t, i);
	cow_tensor_unref(to.t);
	cow_tensor_unref(from.t);
	return copied;
}

/* A few copies between views of two storages, one of which may be a lazy clone. */
static unsigned long program(uint64_t seed, int where_to, int where_from)
{
	struct prng prng = prng_make(seed);
	struct model bases[2], clone;
	const struct model *const all[] = { &bases[0], &bases[1], &clone };
	unsigned long copied = 0;

	base(&bases[0], 0, where_to, &prng);
	base(&bases[1], 1, where_from, &prng);
	clone = bases[0];
	ok(cow_tensor_lazy_clone(bases[0].t, &clone.t));
	memcpy(bytes_of[2], bytes_of[0], sizeof(bytes_of[0]));
	clone.storage = 2;
	for (int i = 0; i < 6; i++)
		copied += copy_step(all, &prng);
	for (int i = 0; i < 3; i++)
		cow_tensor_unref(all[i]->t);
	return copied;
}

enum { PROGRAMS = 3000 };

START_TEST(programs_on_the_host)
{
	unsigned long copied = 0;

	for (uint64_t i = 0; i < (uint64_t)ROUNDS(PROGRAMS); i++)
		copied += program((uint64_t)_i * PROGRAMS + i + 1, -1, -1);
	must(copied > (uint64_t)ROUNDS(PROGRAMS) / 2);
}
END_TEST

/* Host, device and the other device, in all pairs and with all skills. */
START_TEST(programs_on_devices)
{
	int where_to = _i % 3 - 1, where_from = _i / 3 % 3 - 1, skill = _i / 9;
	unsigned long copied = 0;

	fake_device_start((enum fake_skill)skill);
	for (uint64_t i = 0; i < (uint64_t)ROUNDS(300); i++)
		copied += program((uint64_t)_i * 300 + i + 1, where_to, where_from);
	must(copied > (uint64_t)ROUNDS(300) / 2);
	ck_assert_uint_eq(fake_device_counts.astray, 0);
	ck_assert_uint_eq(fake_device_counts.live, 0);
	must(ROUNDS(100) < 100 || skill < FAKE_STRIDED || where_to < 0 ||
	     fake_device_counts.strided > 0);
	fake_device_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test_tensor_model");
	TCase *tcase = add_case(suite, "model");

	tcase_add_loop_test(tcase, programs_on_the_host, 0, 4);
	tcase_add_loop_test(tcase, programs_on_devices, 0, 27);
	return run_suite(suite);
}

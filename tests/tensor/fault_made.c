/* SPDX-License-Identifier: MIT */
/*
 * Tensors made from tensors, with every kernel call and every pool failing in turn
 *
 * tests/support/fault/sweep.h says what must hold. Each operation makes a tensor from one; the
 * expected result was made from a twin before any call failed. Many operations change only
 * metadata: for them only pools can fail.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"
#include "tests/support/quantized.h"

#include <errno.h>

enum { COUNT_0 = 4, COUNT_1 = 100, COUNT_2 = 400 };
#define SHAPE SIZES(COUNT_0, COUNT_1, COUNT_2)
#define BYTES ((size_t)4 * COUNT_0 * COUNT_1 * COUNT_2)

typedef int make_fn(struct cow_tensor *t, struct cow_tensor **ret);

static struct {
	struct cow_tensor *t, *want;
	struct cow_tensor *turned, *to; /* a view of t; as large as t */
} now;

static void finish(void)
{
	now.t = cow_tensor_unref(now.t);
	now.want = cow_tensor_unref(now.want);
	now.turned = cow_tensor_unref(now.turned);
	now.to = cow_tensor_unref(now.to);
}

/* The animal's bytes as a tensor. */
static struct cow_tensor *source(struct cow_storage *s, enum cow_dtype dtype)
{
	struct cow_quantizer q = by_channel(0);
	struct cow_tensor *t;

	if (dtype == COW_QUINT8)
		ok(cow_tensor_on_quantized(s, dtype, 2, SIZES(3, 200000), NULL, 0,
		                           &q, &t));
	else if (dtype == COW_COMPLEX64)
		ok(cow_tensor_on(s, dtype, 1, SIZES(BYTES / 8), NULL, 0, &t));
	else
		ok(cow_tensor_on(s, dtype, 3, SHAPE, NULL, 0, &t));
	return t;
}

static void ready(struct herd *herd, enum cow_dtype dtype, make_fn *make)
{
	struct cow_storage *s = new_storage(BYTES, 0);
	struct cow_storage *twin;
	struct cow_tensor *t;

	sweep_finish(finish);
	sweep_add(herd, HERD_OWNED, s, NULL, BYTES);
	twin = new_filled(BYTES, 0, herd->animals[HERD_OWNED].seed);
	now.t = source(s, dtype);
	t = source(twin, dtype);
	ok(make(t, &now.want));
	cow_tensor_unref(t);
	cow_storage_unref(twin);
}

static bool same(struct cow_tensor *a, struct cow_tensor *b)
{
	int dims = cow_tensor_dims(a);

	for (int i = 0; i < dims; i++)
		if (cow_tensor_sizes(a)[i] != cow_tensor_sizes(b)[i] ||
		    cow_tensor_strides(a)[i] != cow_tensor_strides(b)[i])
			return false;
	return dims == cow_tensor_dims(b) &&
	       cow_tensor_dtype(a) == cow_tensor_dtype(b) &&
	       cow_tensor_offset(a) == cow_tensor_offset(b);
}

static int made(make_fn *make)
{
	struct cow_tensor *got = SWEEP_UNTOUCHED;
	int r = make(now.t, &got);

	(void)fault_disarm();
	if (r < 0) {
		ck_assert_ptr_eq(got, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	must(same(got, now.want));
	/* Of patterns some are NaN as numbers. */
	if (!cow_dtype_is_complex(cow_tensor_dtype(got)))
		must(cow_tensor_equal(got, now.want) == 1);
	cow_tensor_unref(got);
	return 0;
}

/* ---- The operations ------------------------------------------------------------- */

#define MAKES(name, dtype, call)                                               \
	static int name##_made(struct cow_tensor *t, struct cow_tensor **ret)  \
	{                                                                      \
		return call;                                                   \
	}                                                                      \
	static void name##_ready(struct herd *herd)                            \
	{                                                                      \
		ready(herd, dtype, name##_made);                               \
	}                                                                      \
	static int name(struct herd *herd)                                     \
	{                                                                      \
		(void)herd;                                                    \
		return made(name##_made);                                      \
	}
#define CALLS(name) { #name, name##_ready, name, SWEEP_CALLS }
#define POOLS(name) { #name, name##_ready, name, SWEEP_POOLS }
#define NOTHING(name) { #name, name##_ready, name, SWEEP_NOTHING }

static int permuted(struct cow_tensor *t, uint32_t flags, struct cow_tensor **ret)
{
	struct cow_tensor *p;
	int r = cow_tensor_transpose(t, 0, 2, &p);

	if (r < 0)
		return r;
	r = flags & 1 << 8
	            ? cow_tensor_reshape(p, 1, SIZES(-1), flags & 1, ret)
	            : cow_tensor_contiguous(p, COW_FORMAT_CONTIGUOUS, flags, ret);
	cow_tensor_unref(p);
	return r;
}

static int converted(struct cow_tensor *t, int32_t dtype, struct cow_tensor **ret)
{
	struct cow_to to = { .size = sizeof(to), .dtype = dtype,
		             .format = COW_FORMAT_PRESERVE };

	return cow_tensor_to(t, &to, ret);
}

static int quantized(struct cow_tensor *t, struct cow_tensor **ret)
{
	double scale = 0.25;
	int64_t zero = 7;
	struct cow_quantizer q = one_pair(&scale, &zero);

	return cow_tensor_quantize(t, COW_QINT8, &q, ret);
}

static int on_again(struct cow_tensor *t, struct cow_tensor **ret)
{
	struct cow_quantizer q = by_channel(0);

	return cow_tensor_on_quantized(cow_tensor_storage(t), COW_QUINT8, 6,
	                               SIZES(3, 1, 2, 2, 2, 3), NULL, 0, &q, ret);
}

/* With bytes of its own, which are unspecified: made equal. */
static int zeroed(enum cow_dtype dtype, struct cow_tensor **ret)
{
	const struct cow_tensor_options o = { .size = sizeof(o),
		                              .storage_flags = COW_STORAGE_ZERO };
	struct cow_quantizer q = by_channel(0);

	return dtype == COW_QUINT8
	               ? cow_tensor_new_quantized(dtype, 2, SIZES(3, 200000), &q,
	                                          &o, ret)
	               : cow_tensor_new(dtype, 6, SIZES(3, 1, 1, 2, 1, 100000), &o,
	                                ret);
}

static int imported(struct cow_tensor *t, bool versioned, struct cow_tensor **ret)
{
	void *managed = SWEEP_UNTOUCHED;
	int r = cow_tensor_to_dlpack(t, versioned, false, &managed);

	if (r < 0) {
		ck_assert_ptr_eq(managed, SWEEP_UNTOUCHED);
		return r;
	}
	r = cow_tensor_from_dlpack(managed, versioned, ret);
	if (r == 0)
		return 0;
	/* The array is still ours. The deleter comes behind the members that differ. */
	if (versioned) {
		struct { uint32_t v[2]; void *c; void (*end)(void *); } *m = managed;

		m->end(m);
	} else {
		struct { uint64_t tensor[6]; void *c; void (*end)(void *); } *m =
			managed;

		m->end(m);
	}
	return r;
}

MAKES(new, COW_INT32, ((void)t, zeroed(COW_INT64, ret)))
MAKES(new_quantized, COW_INT32, ((void)t, zeroed(COW_QUINT8, ret)))
MAKES(on_quantized, COW_INT32, on_again(t, ret))
MAKES(slice_of, COW_INT32, cow_tensor_slice(t, 1, 5, 90, 3, ret))
MAKES(slice_of_channels, COW_QUINT8, cow_tensor_slice(t, 0, 1, 3, 1, ret))
MAKES(select_of, COW_INT32, cow_tensor_select(t, 1, -1, ret))
MAKES(select_channel, COW_QUINT8, cow_tensor_select(t, 0, 1, ret))
MAKES(permute, COW_INT32, cow_tensor_permute(t, (const int[]){ 2, 0, 1 }, ret))
MAKES(transpose_of, COW_INT32, cow_tensor_transpose(t, 0, 1, ret))
MAKES(transpose_channels, COW_QUINT8, cow_tensor_transpose(t, 0, 1, ret))
MAKES(expand_of, COW_INT32,
      cow_tensor_expand(t, 6, SIZES(2, 1, 1, COUNT_0, COUNT_1, COUNT_2), ret))
MAKES(unsqueeze, COW_INT32, cow_tensor_unsqueeze(t, 1, ret))
MAKES(squeeze, COW_INT32, cow_tensor_squeeze(t, 1, ret))
MAKES(view, COW_INT32,
      cow_tensor_view(t, 6, SIZES(2, 2, 10, 10, 20, 20), ret))
MAKES(as_strided, COW_INT32,
      cow_tensor_as_strided(t, 2, SIZES(9, 7), SIZES(1, 3), 1000, ret))
MAKES(conj_of, COW_COMPLEX64, cow_tensor_conj(t, ret))
MAKES(neg, COW_INT32, cow_tensor_neg(t, ret))
MAKES(quantize, COW_FLOAT32, quantized(t, ret))
MAKES(dequantize, COW_QUINT8, cow_tensor_dequantize(t, ret))
MAKES(to_the_same, COW_INT32, converted(t, COW_INT32, ret))
MAKES(to_another, COW_INT32, converted(t, COW_FLOAT64, ret))
MAKES(clone_of, COW_INT32, cow_tensor_clone(t, COW_FORMAT_CONTIGUOUS, ret))
MAKES(clone_quantized, COW_QUINT8, cow_tensor_clone(t, COW_FORMAT_CONTIGUOUS, ret))
MAKES(lazy_clone, COW_INT32, cow_tensor_lazy_clone(t, ret))
MAKES(contiguous, COW_INT32, permuted(t, 0, ret))
MAKES(contiguous_lazily, COW_INT32,
      cow_tensor_contiguous(t, COW_FORMAT_CONTIGUOUS, COW_COPY_LAZY, ret))
MAKES(reshape, COW_INT32, permuted(t, 1 << 8, ret))
MAKES(reshape_lazily, COW_INT32,
      cow_tensor_reshape(t, 1, SIZES(-1), COW_COPY_LAZY, ret))
MAKES(resize_down, COW_INT32,
      cow_tensor_resize(t, 2, SIZES(7, 100), COW_FORMAT_CONTIGUOUS, ret))
MAKES(dlpack, COW_INT32, imported(t, false, ret))
MAKES(dlpack_versioned, COW_INT32, imported(t, true, ret))

/* Most need only a tensor: the bytes come from warm memory. */
static const struct operation operations[] = {
	CALLS(new), CALLS(dequantize), POOLS(to_another), NOTHING(to_the_same),
	POOLS(new_quantized), POOLS(quantize), POOLS(clone_of),
	POOLS(clone_quantized), POOLS(contiguous), POOLS(reshape),
	POOLS(on_quantized), POOLS(slice_of), POOLS(slice_of_channels),
	POOLS(select_of), POOLS(select_channel), POOLS(permute),
	POOLS(transpose_of), POOLS(transpose_channels), POOLS(expand_of),
	POOLS(unsqueeze), POOLS(squeeze), POOLS(view), POOLS(as_strided),
	POOLS(conj_of), POOLS(neg), POOLS(lazy_clone), POOLS(contiguous_lazily),
	POOLS(reshape_lazily), POOLS(resize_down), POOLS(dlpack),
	POOLS(dlpack_versioned),
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

/* ---- What changes a tensor, or reads it -------------------------------------------- */

static void shared(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];
	struct cow_storage *s;

	sweep_finish(finish);
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
	s = lazy(a->storage);
	now.t = source(s, COW_INT32);
	cow_storage_unref(s);
	ok(cow_tensor_transpose(now.t, 0, 1, &now.turned));
	now.to = tensor(COW_INT32, COUNT_0, COUNT_1, COUNT_2);
}

static const int32_t *elements(void)
{
	return cow_tensor_data(now.t);
}

/* All elements, or none. */
static int fill_it(struct herd *herd)
{
	int32_t five = 5;
	int r = cow_tensor_fill(now.t, COW_INT32, &five);

	(void)fault_disarm();
	if (r < 0)
		ck_pattern(elements(), BYTES, herd->animals[HERD_OWNED].seed);
	else
		for (size_t i = 0; i < BYTES / 4; i++)
			must(elements()[i] == 5);
	return r;
}

/* The storage grows, and with it what it was a clone of stays. */
static int grow(struct herd *herd)
{
	struct cow_tensor *larger = SWEEP_UNTOUCHED;
	int r = cow_tensor_resize(now.t, 1, SIZES(BYTES), COW_FORMAT_CONTIGUOUS,
	                          &larger);

	(void)fault_disarm();
	ck_pattern(elements(), BYTES, herd->animals[HERD_OWNED].seed);
	if (r < 0) {
		ck_assert_ptr_eq(larger, SWEEP_UNTOUCHED);
		ck_assert_uint_eq(cow_storage_bytes(cow_tensor_storage(now.t)), BYTES);
		return r;
	}
	ck_pattern(cow_tensor_data(larger), BYTES, herd->animals[HERD_OWNED].seed);
	cow_tensor_unref(larger);
	return 0;
}

static int write_it(struct herd *herd)
{
	void *p = SWEEP_UNTOUCHED;
	int r = cow_tensor_data_mut(now.t, COW_WRITE_SPARSE, &p);

	(void)fault_disarm();
	if (r < 0)
		ck_assert_ptr_eq(p, SWEEP_UNTOUCHED);
	ck_pattern(elements(), BYTES, herd->animals[HERD_OWNED].seed);
	return r;
}

/* A view of it that is not contiguous, as text and compared: through a copy. */
static int read_it(struct herd *herd)
{
	char text[200] = "";
	long n = cow_tensor_print(now.turned, 1, text, sizeof(text));
	int r = n < 0 ? (int)n : cow_tensor_equal(now.turned, now.turned);

	(void)herd;
	(void)fault_disarm();
	must(n < 0 || strlen(text) == (size_t)n || n >= (long)sizeof(text));
	must(r < 0 || r == 1);
	return r < 0 ? r : 0;
}

static int begin(struct herd *herd)
{
	struct cow_work *w = SWEEP_UNTOUCHED;
	int r = cow_tensor_copy_begin(now.to, now.t, 0, &w);

	if (r < 0) {
		ck_assert_ptr_eq(w, SWEEP_UNTOUCHED);
	} else {
		ck_assert_int_ge(cow_work_poll(w), 0);
		ok(cow_work_wait(w));
		ck_assert_int_eq(cow_work_poll(w), 1);
		ck_pattern(cow_tensor_data(now.to), BYTES, herd->animals[HERD_OWNED].seed);
		cow_work_free(w);
	}
	(void)fault_disarm();
	return r;
}

static const struct operation changing[] = {
	{ "fill", shared, fill_it, SWEEP_POOLS },
	{ "grow", shared, grow },
	{ "write", shared, write_it },
	{ "read", shared, read_it },
	{ "begin to copy", shared, begin, SWEEP_POOLS },
};

START_TEST(changes_fail)
{
	sweep_nth(changing, _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_tensor_made");
	TCase *tcase = add_case(suite, "fault_tensor_made");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	tcase_add_loop_test(tcase, changes_fail, 0, sweep_rounds(COUNT(changing)));
	return run_suite(suite);
}

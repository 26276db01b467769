/* SPDX-License-Identifier: MIT */
/*
 * Tensors, with every kernel call failing in turn
 *
 * tests/support/fault/sweep.h says what must hold. The second part is about metadata: pools
 * take memory when they are first used, so each of its tests is a process in which no pool
 * was used before.
 */
#include "tests/support/dlpack.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"
#include "tests/support/tensors.h"
#include "tensor/strided.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 2 * MIB + 9 * PAGE, PART = 2 * MIB + 1000, PART_SEED = 77 };

/* ---- Copies ------------------------------------------------------------------- */

/* Their tensors, and parts of them: made before anything fails. */
static struct cow_tensor *tensors[HERD_KINDS], *parts[HERD_KINDS];

static void finish(void)
{
	for (int i = 0; i < HERD_KINDS; i++) {
		tensors[i] = cow_tensor_unref(tensors[i]);
		parts[i] = cow_tensor_unref(parts[i]);
	}
}

static void add_tensor(struct herd *herd, enum herd_kind kind, int64_t end, int step)
{
	struct cow_tensor *t;

	sweep_finish(finish);
	ok(cow_tensor_on(herd->animals[kind].storage, COW_UINT8, 1,
	                 SIZES((int64_t)herd->animals[kind].bytes), NULL, 0, &t));
	tensors[kind] = cow_tensor_ref(t);
	parts[kind] = slice(t, 0, 3000, end, step);
}

static void pair(struct herd *herd)
{
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
	sweep_add_clone(herd, HERD_OWNED, HERD_VIEW,
	                lazy(herd->animals[HERD_OWNED].storage));
	sweep_add(herd, HERD_COPY, new_storage(BYTES, 0), NULL, BYTES);
	add_tensor(herd, HERD_OWNED, 900000, 3);
	add_tensor(herd, HERD_VIEW, 900000, 3);
	add_tensor(herd, HERD_COPY, 900000, 3);
}

static int copy_with(struct herd *herd, uint32_t flags)
{
	int r = cow_tensor_copy(tensors[HERD_VIEW], tensors[HERD_COPY], flags);

	if (r == 0)
		herd->animals[HERD_VIEW].seed = herd->animals[HERD_COPY].seed;
	return r;
}

static int copy(struct herd *herd)
{
	return copy_with(herd, 0);
}

static int copy_lazily(struct herd *herd)
{
	return copy_with(herd, COW_COPY_LAZY);
}

/* A part: the rest of the lazy clone has to be kept. Same bytes, so that the pattern
 * stays. */
static int copy_part(struct herd *herd)
{
	(void)herd;
	return cow_tensor_copy(parts[HERD_VIEW], parts[HERD_OWNED], 0);
}

/* A part of a storage, to all of one that another is a lazy clone of: its pages, and what is
 * behind them. */
static void part_and_whole(struct herd *herd)
{
	struct cow_storage *s = new_storage(PART, 0), *from = new_storage(BYTES, 0);
	void *data;

	sweep_add(herd, HERD_COPY, s, NULL, PART);
	sweep_add_clone(herd, HERD_COPY, HERD_VIEW, lazy(s));
	ok(cow_storage_data_mut_range(herd->animals[HERD_VIEW].storage, 2 * PAGE, 1,
	                              COW_WRITE_BY_PAGE, &data));
	add_tensor(herd, HERD_COPY, 900000, 3);
	fill((char *)mut(from) + PAGE, PART, PART_SEED);
	ok(cow_tensor_on(from, COW_UINT8, 1, SIZES(PART), NULL, PAGE, &parts[HERD_OWNED]));
	cow_storage_unref(from);
}

static int copy_part_lazily(struct herd *herd)
{
	int r = cow_tensor_copy(tensors[HERD_COPY], parts[HERD_OWNED], COW_COPY_LAZY);

	if (r == 0)
		herd->animals[HERD_COPY].seed = PART_SEED;
	return r;
}

static int clone(struct herd *herd)
{
	struct cow_tensor *u = SWEEP_UNTOUCHED;
	int r = cow_tensor_clone(tensors[HERD_VIEW], COW_FORMAT_PRESERVE, &u);

	if (r < 0) {
		ck_assert_ptr_eq(u, SWEEP_UNTOUCHED);
		return r;
	}
	sweep_add_clone(herd, HERD_VIEW, HERD_LAZY_A,
	                cow_storage_ref(cow_tensor_storage(u)));
	cow_tensor_unref(u);
	return 0;
}

struct managed { /* the first words of DLPack's struct with a version */
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct managed *self);
};

static int export(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_VIEW];
	void *managed = SWEEP_UNTOUCHED;
	struct managed *m;
	int r = cow_tensor_to_dlpack(tensors[HERD_VIEW], true, false, &managed);

	if (r < 0) {
		ck_assert_ptr_eq(managed, SWEEP_UNTOUCHED);
		return r;
	}
	a->exposed = expose(a->storage);
	m = managed;
	m->deleter(m);
	return 0;
}

/* A read-only import that is exported read-only is not cloned for that. */
static Versioned lender;
static unsigned char lent[100];
static int64_t lent_size = sizeof(lent);
static unsigned given_back;

static void give_back(Versioned *self)
{
	must(self == &lender);
	given_back++;
}

static void borrow(struct herd *herd)
{
	(void)herd;
	sweep_finish(finish);
	fill(lent, sizeof(lent), PART_SEED);
	given_back = 0;
	lender = (Versioned){ .version = { 1, 0 }, .deleter = give_back, .flags = 1 };
	lender.dl_tensor = (Array){ .data = lent, .device = { 1, 0 }, .ndim = 1,
		                    .dtype = { 1, 8, 1 }, .shape = &lent_size };
	ok(cow_tensor_from_dlpack(&lender, true, &tensors[HERD_VIEW]));
}

static int lend_on(struct herd *herd)
{
	void *out = SWEEP_UNTOUCHED;
	Versioned *v;
	int r = cow_tensor_to_dlpack(tensors[HERD_VIEW], true, true, &out);

	(void)herd;
	ck_assert_uint_eq(given_back, 0);
	if (r < 0) {
		ck_assert_ptr_eq(out, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	v = out;
	ck_assert_ptr_eq(v->dl_tensor.data, lent);
	ck_pattern(lent, sizeof(lent), PART_SEED);
	tensors[HERD_VIEW] = cow_tensor_unref(tensors[HERD_VIEW]);
	ck_assert_uint_eq(given_back, 0);
	v->deleter(v);
	ck_assert_uint_eq(given_back, 1);
	return 0;
}

static const struct operation operations[] = {
	{ "copy", pair, copy },
	{ "copy of a part", pair, copy_part },
	{ "lazy copy of a part", part_and_whole, copy_part_lazily },
	{ "clone", pair, clone },
	{ "export", pair, export },
	/* Pages instead of bytes: no call at all. */
	{ "lazy copy", pair, copy_lazily, SWEEP_POOLS },
	{ "export of an import", borrow, lend_on, SWEEP_POOLS },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

/* ---- Metadata ------------------------------------------------------------------- */

static struct cow_tensor *t, *view;
static void *managed;

enum { POOLS = 3 };

static int make(void)
{
	return cow_tensor_new(COW_INT8, 6, SIZES(1, 2, 3, 1, 2, 3), NULL, &t);
}

static int look(void)
{
	return cow_tensor_unsqueeze(t, 0, &view);
}

static int send(void)
{
	return cow_tensor_to_dlpack(t, true, true, &managed);
}

/* Each pool's first memory is refused: of tensors, of long shapes, of exports. */
START_TEST(first_use)
{
	static int (*const steps[])(void) = { make, look, send };
	bool failed = false;
	size_t i;

	cow_storage_unref(new_storage(36, 0)); /* the engine is not the question */
	t = view = managed = SWEEP_UNTOUCHED;
	fault_after(_i + 1, ENOMEM);
	for (i = 0; i < COUNT(steps); i++) {
		int r = steps[i]();

		if (r < 0) {
			ck_assert_int_eq(r, -ENOMEM);
			must(cow_last_error()[0] != '\0');
			must(!failed);
			failed = true;
			ck_assert_ptr_eq(i == 0   ? (void *)t
			                 : i == 1 ? (void *)view
			                          : managed,
			                 SWEEP_UNTOUCHED);
			ok(steps[i]());
		}
	}
	must(failed == fault_disarm());
	must(failed == (_i < POOLS));
	ck_assert_int_eq(cow_tensor_sizes(view)[3], 3);
	((struct managed *)managed)->deleter(managed);
	cow_tensor_unref(view);
	cow_tensor_unref(t);
	ck_assert_uint_eq(stats_now().storages_live, 0);
	ck_assert_uint_eq(stats_now().bytes_live, 0);
}
END_TEST

/* ---- Buffers -------------------------------------------------------------------- */

enum { ROWS = 3001, COLUMNS = 2900 }; /* of 4 bytes: large enough to be streamed */

/* A large permutation works in mapped memory; without it, in less. */
START_TEST(no_memory_for_tiles)
{
	uint32_t *from = malloc(4 * ROWS * COLUMNS), *to = malloc(4 * ROWS * COLUMNS);
	struct cow__strided j = { .dims = 2, .sizes = { COLUMNS, ROWS } };

	must(from && to);
	for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
		from[i] = i;
	j.to.data = (char *)to;
	j.from.data = (char *)from;
	j.to.dtype = j.from.dtype = COW_INT32;
	j.to.strides[0] = 4 * ROWS;
	j.to.strides[1] = j.from.strides[0] = 4;
	j.from.strides[1] = 4 * COLUMNS;
	ok(cow_threads_set(1));
	fault_after(1, ENOMEM);
	cow__strided_copy(&j);
	must(fault_disarm());
	ok(cow_threads_set(0));
	for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
		must(to[i] == i % ROWS * COLUMNS + i / ROWS);
	free(from);
	free(to);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_tensor");
	TCase *tcase = add_case(suite, "copies");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	tcase_add_test(tcase, no_memory_for_tiles);
	tcase = add_bare_case(suite, "metadata");
	tcase_add_loop_test(tcase, first_use, 0, POOLS + 1);
	return run_suite(suite);
}

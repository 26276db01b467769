/* SPDX-License-Identifier: MIT */
/*
 * Allocators, accounts and threads, with every kernel call failing in turn
 *
 * What must hold is in tests/support/fault/sweep.h. Here is what is about the engine
 * rather than about one storage.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"
#include "tests/support/tensors.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 3 * (1 << 20) };

static void nothing(struct herd *herd)
{
	(void)herd;
}

static void a_storage(struct herd *herd)
{
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
}

static void a_view(struct herd *herd)
{
	a_storage(herd);
	sweep_add_clone(herd, HERD_OWNED, HERD_VIEW,
	                lazy(herd->animals[HERD_OWNED].storage));
	mut_range(herd->animals[HERD_VIEW].storage, 0, 1, COW_WRITE_BY_PAGE);
}

/* ---- Allocators ------------------------------------------------------------------- */

static int allocated(int r, struct cow_data_ptr *p, uint64_t seed)
{
	if (r < 0) {
		ck_assert_ptr_eq(p->data, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	if (seed)
		ck_pattern(p->data, BYTES, seed);
	fill(p->data, BYTES, 5);
	ck_pattern(p->data, BYTES, 5);
	cow_data_ptr_clear(p);
	return 0;
}

static int allocate(struct herd *herd)
{
	struct cow_data_ptr p = { .data = SWEEP_UNTOUCHED };

	(void)herd;
	return allocated(cow_allocator_allocate(cow_allocator_default(), BYTES, &p), &p,
	                 0);
}

static int clone(struct herd *herd)
{
	struct cow_data_ptr p = { .data = SWEEP_UNTOUCHED };
	struct animal *a = &herd->animals[HERD_OWNED];

	return allocated(cow_allocator_clone(cow_allocator_default(), data(a->storage),
	                                     BYTES, &p), &p, a->seed);
}

static int allocate_raw(struct herd *herd)
{
	struct cow_allocator *a = cow_allocator_default();
	void *p = SWEEP_UNTOUCHED;
	int r = cow_allocator_raw_allocate(a, BYTES, &p);

	(void)herd;
	if (r < 0) {
		ck_assert_ptr_eq(p, SWEEP_UNTOUCHED);
		must(cow_last_error()[0] != '\0');
		return r;
	}
	fill(p, BYTES, 6);
	ck_pattern(p, BYTES, 6);
	return cow_allocator_raw_deallocate(a, p);
}

/* ---- Accounts --------------------------------------------------------------------- */

/* What the kernel would not tell is not known: no failure. */
static int info(struct herd *herd)
{
	struct cow_storage_info i = { .size = sizeof(i), .sharers = 77 };
	int r = cow_storage_get_info(herd->animals[HERD_VIEW].storage, &i);

	if (r < 0)
		ck_assert_uint_eq(i.sharers, 77);
	else
		ck_assert_uint_eq(i.state, COW_STATE_VIEW);
	return r;
}

static int read_stats(struct herd *herd)
{
	struct cow_stats seen = { .size = sizeof(seen), .bytes_live = 77 };
	int r = cow_stats_read(getpid(), &seen);

	(void)herd;
	if (r < 0) {
		ck_assert_uint_eq(seen.bytes_live, 77);
		must(cow_last_error()[0] != '\0');
	} else {
		ck_assert_uint_eq(seen.bytes_live, stats_now().bytes_live);
	}
	return r;
}

/* A feature whose probe fails is not there: that is the answer. */
static int probe(struct herd *herd)
{
	(void)herd;
	for (int f = 0; f <= COW_FEATURE_USERFAULTFD; f++) {
		const char *name = NULL, *why = NULL;
		int r = cow_feature_probe((enum cow_feature)f, &name, &why);

		must((r == 0 || r == 1) && name && why);
	}
	return 0;
}

/* ---- Options and threads ------------------------------------------------------------- */

static int options(struct herd *herd)
{
	static const char *const set[][2] = {
		{ "warm", "64M" }, { "decay", "1000" }, { "copies", "auto" },
		{ "strict", "no" }, { "helper", "no" }, { "cuda-poison", "no" },
	};

	(void)herd;
	for (size_t i = 0; i < COUNT(set); i++) {
		int r = cow_option_set(set[i][0], set[i][1]);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Copies make threads again; without them they do without. */
static int threads(struct herd *herd)
{
	struct cow_tensor *to = NULL, *from;
	struct animal *a = &herd->animals[HERD_OWNED];
	int r = cow_tensor_on(a->storage, COW_INT32, 2, SIZES(512, BYTES / 2048), NULL, 0,
	                      &from);

	if (r < 0)
		return r;
	cow_threads_end();
	r = cow_tensor_clone(from, COW_FORMAT_CONTIGUOUS, &to);
	cow_threads_end();
	cow_tensor_unref(from);
	if (r < 0)
		return r;
	ck_pattern(cow_tensor_data(to), BYTES, a->seed);
	cow_tensor_unref(to);
	return 0;
}

static const struct operation operations[] = {
	{ "allocate", nothing, allocate },
	{ "allocator clone", a_storage, clone },
	{ "allocate raw", nothing, allocate_raw },
	{ "info", a_view, info },
	{ "statistics", a_storage, read_stats },
	{ "features", nothing, probe },
	{ "options", a_storage, options, SWEEP_NOTHING },
	{ "threads", a_storage, threads },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_engine");
	TCase *tcase = add_case(suite, "fault_engine");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	return run_suite(suite);
}

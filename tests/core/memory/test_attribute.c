/* SPDX-License-Identifier: MIT */
/*
 * Notes of what the program did to its pages, against an array of pages
 */
#include "core/memory/attribute.h"
#include "core/memory/state.h"
#include "tests/support/support.h"

enum { PAGES = 64, NONE = -7, STEPS = 300 };

struct model {
	unsigned char *block;
	struct cow__tile *tile;
	int value[COW__ATTRIBUTES][PAGES];
};

static uintptr_t page(const struct model *m, size_t i)
{
	return (uintptr_t)m->block + i * PAGE;
}

static void model_make(struct model *m)
{
	m->block = new_block(PAGES * PAGE, 0);
	cow__engine_lock();
	m->tile = cow__tile_find((uintptr_t)m->block);
	for (int kind = 0; kind < COW__ATTRIBUTES; kind++)
		for (size_t i = 0; i < PAGES; i++)
			m->value[kind][i] = NONE;
}

static void model_free(struct model *m)
{
	ok(cow__attributes_cut(m->tile, page(m, 0), page(m, PAGES)));
	ck_assert_ptr_null(m->tile->map.attributes);
	ck_assert(!cow__attributes_any());
	cow__engine_unlock();
	cow_block_free(m->block);
}

static void set(struct model *m, size_t from, size_t to, int kind, int value)
{
	while (from < to)
		m->value[kind][from++] = value;
}

/* Where the run ends that `from` is in. */
static size_t run_end(const int *values, size_t from, size_t most)
{
	size_t to = from;

	while (to < most && values[to] == values[from])
		to++;
	return to;
}

/* What is noted, how far it goes, and that there is not a note too many. */
static void compare(const struct model *m, size_t from, size_t to)
{
	size_t notes = 0;

	for (int kind = 0; kind < COW__ATTRIBUTES; kind++) {
		const int *values = m->value[kind];

		for (size_t i = 0; i < PAGES; i = run_end(values, i, PAGES))
			notes += values[i] != NONE;
		for (size_t i = from; i < to;) {
			size_t next = run_end(values, i, to);
			uintptr_t end = page(m, to);

			ck_assert_int_eq(cow__attribute_at(m->tile, kind, NONE,
			                                   page(m, i), &end),
			                 values[i]);
			ck_assert_uint_eq(end, page(m, next));
			i = next;
		}
	}
	ck_assert_uint_eq(cow__attributes_count(m->tile), notes);
}

START_TEST(as_an_array)
{
	struct prng prng = prng_make((uint64_t)_i + 1);
	struct model m;

	model_make(&m);
	for (int step = 0; step < STEPS; step++) {
		size_t from = prng_below(&prng, PAGES);
		size_t to = from + 1 + prng_below(&prng, _i & 1 ? 3 : PAGES - from);
		int kind = (int)prng_below(&prng, COW__ATTRIBUTES);
		int value = (int)prng_below(&prng, 3);

		to = to < PAGES ? to : PAGES;
		if (prng_below(&prng, 8) == 0) {
			ok(cow__attributes_cut(m.tile, page(&m, from), page(&m, to)));
			for (kind = 0; kind < COW__ATTRIBUTES; kind++)
				set(&m, from, to, kind, NONE);
		} else {
			ok(cow__attribute_add(m.tile, page(&m, from), page(&m, to),
			                      kind, value));
			set(&m, from, to, kind, value);
		}
		from = prng_below(&prng, PAGES);
		compare(&m, from, PAGES);
		compare(&m, 0, from);
	}
	model_free(&m);
}
END_TEST

/* Locks go, and nothing else does. */
START_TEST(of_one_kind)
{
	struct model m;

	model_make(&m);
	for (size_t i = 0; i < PAGES; i += 2)
		for (int kind = 0; kind < COW__ATTRIBUTES; kind++) {
			ok(cow__attribute_add(m.tile, page(&m, i), page(&m, i + 1),
			                      kind, 1));
			set(&m, i, i + 1, kind, kind == COW__ATTRIBUTE_LOCK ? NONE : 1);
		}
	cow__attributes_unlock(m.tile);
	compare(&m, 0, PAGES);
	ck_assert(cow__attributes_linger(m.tile, page(&m, 0), page(&m, 1)));
	ck_assert(!cow__attributes_linger(m.tile, page(&m, 1), page(&m, 2)));
	ck_assert(cow__attributes_linger(m.tile, page(&m, 1), page(&m, 3)));
	model_free(&m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("attribute");
	TCase *tcase = add_case(suite, "attribute");

	tcase_add_loop_test(tcase, as_an_array, 0, 6);
	tcase_add_test(tcase, of_one_kind);
	return run_suite(suite);
}

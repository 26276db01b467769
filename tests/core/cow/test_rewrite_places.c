/* SPDX-License-Identifier: MIT */
/*
 * The two places of a state that is rewritten between snapshots: huge pages, which wait
 * for the next snapshot
 */
#include "core/memory/spare.h"
#include "core/memory/state.h"
#include "memfd/wait.h"
#include "tests/support/support.h"

static uint64_t intent(void *start, size_t bytes, enum cow_write_hint hint)
{
	struct cow_range range = { start, bytes };
	uint64_t copied = 77;

	ok(cow_write_intent(&range, 1, hint, &copied));
	return copied;
}

/* Without a helper the program's writes make small pages. A rewrite into them makes them
 * huge, once. */
START_TEST(its_own_pages_become_huge)
{
	size_t bytes = 40 * MIB;
	uint64_t collapsed[5];
	struct cow_storage *a, *b;
	unsigned char *p;

	ck_assert_int_eq(cow_option_set("helper", "no"), 0);
	a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1);
	p = expose(a);
	for (unsigned i = 0; i < 5; i++) {
		b = lazy(a);
		ck_assert_uint_eq(intent(p, bytes, COW_WRITE_AUTO), bytes);
		fill(p, bytes, i + 2);
		ck_pattern(data(b), bytes, i + 1);
		cow_storage_unref(b);
		collapsed[i] = stats_now().bytes_collapsed;
	}
	if (collapsed[0] >= bytes) /* the kernel makes huge pages */
		ck_assert_uint_ge(collapsed[1] - collapsed[0], bytes);
	ck_assert_uint_eq(collapsed[4], collapsed[1]);
	cow_storage_unref(a);
}
END_TEST

static uint64_t kept_ns(void *p, uint64_t ago)
{
	struct cow__tile *t;
	uint64_t ns;

	cow__engine_lock();
	t = cow__tile_find((uintptr_t)p);
	if (ago)
		t->map.rewritten->at = cow__now() - ago;
	ns = t->map.rewritten ? t->map.rewritten->keep_ns : 0;
	cow__engine_unlock();
	return ns;
}

/* The second place of a state waits for its next snapshot. */
START_TEST(kept_for_the_next_snapshot)
{
	static const struct {
		uint64_t gone, least, most; /* seconds */
	} cases[] = { { 0, 10, 10 }, { 8, 16, 60 }, { 31, 60, 60 }, { 90, 10, 10 } };
	struct cow_storage *a = new_filled(2 * MIB, COW_STORAGE_TRANSPARENT, 1), *b;
	unsigned char *p = expose(a);

	for (size_t i = 0; i < COUNT(cases); i++) {
		b = lazy(a);
		kept_ns(p, cases[i].gone * 1000000000u);
		ck_assert_uint_eq(intent(p, 2 * MIB, COW_WRITE_AUTO), 2 * MIB);
		ck_assert_uint_ge(kept_ns(p, 0), cases[i].least * 1000000000u);
		ck_assert_uint_le(kept_ns(p, 0), cases[i].most * 1000000000u);
		cow_storage_unref(b);
	}
	cow_storage_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rewrite_places");
	TCase *tcase = add_case(suite, "rewrite_places");

	tcase_add_test(tcase, its_own_pages_become_huge);
	tcase_add_test(tcase, kept_for_the_next_snapshot);
	return run_suite(suite);
}

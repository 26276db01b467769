/* SPDX-License-Identifier: MIT */
/*
 * Decisions of core/policy, with numbers
 */
#include "core/policy/decide.h"
#include "core/policy/fill.h"
#include "core/policy/sites.h"
#include "core/policy/units.h"
#include "core/policy/warm.h"
#include "tests/support/support.h"

#define SECOND 1000000000u

START_TEST(more_is_committed_where_programs_fill)
{
	static struct cow__fill f;

	ck_assert_uint_eq(cow__fill_share(&f, 8 * MIB), COW__FILL_SHARE_SPARSE); /* nothing is known */
	ck_assert(!cow__fill_is_usual(&f, 8 * MIB));
	cow__fill_learn(&f, 4 * MIB, 4 * MIB, 0);
	ck_assert_uint_eq(cow__fill_share(&f, 8 * MIB), COW__FILL_SHARE); /* others are filled */
	cow__fill_learn(&f, 8 * MIB, 8 * MIB, 0);
	ck_assert_uint_eq(cow__fill_share(&f, 8 * MIB), COW__FILL_SHARE_FILLS);
	ck_assert(cow__fill_is_usual(&f, 8 * MIB) && !cow__fill_is_usual(&f, 12 * MIB));
	/* One size that is never filled does not spoil the others. */
	cow__fill_learn(&f, 256 * KIB, 0, 256 * KIB);
	ck_assert_uint_eq(cow__fill_share(&f, 256 * KIB), COW__FILL_SHARE_WASTED);
	ck_assert_uint_eq(cow__fill_share(&f, 8 * MIB), COW__FILL_SHARE_FILLS);
	cow__fill_learn(&f, 64 * MIB, 0, 64 * MIB);
	ck_assert_uint_eq(cow__fill_share(&f, 64 * MIB), COW__FILL_SHARE_SPARSE);
	/* The past weighs less after a while: 2000 MiB were filled. */
	for (int i = 0; i < 20; i++)
		cow__fill_learn(&f, 48 * MIB, 100 * MIB, 0);
	ck_assert_uint_lt(f.sizes[51].filled, 3 * GIB / 2);
	ck_assert_uint_eq(f.sizes[51].wasted, 0);
	ck_assert_uint_eq(cow__fill_share(&f, 48 * MIB), COW__FILL_SHARE_FILLS);
}
END_TEST

/* So much may be warm while the peak is live. */
static size_t beyond(size_t peak)
{
	struct cow__warm w = { .peak = 0 };
	size_t live_peak = peak;

	return cow__warm_limit(&w, peak, &live_peak, SECOND);
}

START_TEST(warm_memory_reaches_the_peak)
{
	struct cow__warm w = { .peak = 0 };
	size_t live_peak = GIB;

	/* The peak is a GiB, and half of it is live. */
	ck_assert_uint_eq(cow__warm_limit(&w, GIB / 2, &live_peak, SECOND), GIB / 2);
	ck_assert_uint_eq(live_peak, GIB / 2);
	/* Never more than is live, or 64 MiB. */
	ck_assert_uint_eq(cow__warm_limit(&w, MIB, &live_peak, SECOND + 1), COW__WARM_LIVELESS);
	/* At the peak a small part may be warm beyond it. */
	ck_assert_uint_eq(cow__warm_limit(&w, GIB, &live_peak, SECOND + 1), 16 * MIB);
	ck_assert_uint_eq(beyond(8 * GIB), 128 * MIB); /* a 64th */
	ck_assert_uint_eq(beyond(128 * MIB), 8 * MIB); /* a 16th */
	ck_assert_uint_eq(beyond(16 * MIB), 2 * MIB);  /* the least */
	/* The peak is forgotten. */
	live_peak = 100 * MIB;
	ck_assert_uint_lt(cow__warm_limit(&w, 100 * MIB, &live_peak, 10ull * SECOND), 40 * MIB);
	ck_assert_uint_eq(w.peak, 100 * MIB);
	/* A thread that read the clock before another one changes nothing. */
	live_peak = MIB;
	(void)cow__warm_limit(&w, MIB, &live_peak, SECOND);
	ck_assert_uint_eq(w.peak, 100 * MIB);
}
END_TEST

START_TEST(copies_that_are_not_written_become_lazy)
{
	static struct cow__sites all;
	struct cow__site *s = cow__site_of(&all, 1234, 5 * MIB);

	ck_assert_ptr_nonnull(s);
	ck_assert_ptr_eq(cow__site_of(&all, 1234, 6 * MIB), s);
	ck_assert_ptr_ne(cow__site_of(&all, 1234, 12 * MIB), s);
	ck_assert_int_eq(cow__site_ask(NULL), COW__EAGER);
	ck_assert_int_eq(cow__site_ask(s), COW__WATCH);
	cow__site_learn(s, false, false);
	cow__site_learn(s, false, false);
	ck_assert_int_eq(cow__site_ask(s), COW__LAZY);
	s->lazy = 2; /* no more at a time than were right */
	ck_assert_int_eq(cow__site_ask(s), COW__WATCH);
	s->lazy = 0;
	cow__site_learn(s, true, true); /* a lazy one was written: twice as many are needed */
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(cow__site_ask(s), COW__WATCH);
		cow__site_learn(s, false, false);
	}
	ck_assert_int_eq(cow__site_ask(s), COW__LAZY);
	/* Eager ones that are written: 1, 2, 4 ... are not looked at. */
	for (unsigned skipped = 1; skipped <= 8; skipped *= 2) {
		cow__site_learn(s, false, true);
		for (unsigned i = 0; i < skipped; i++)
			ck_assert_int_eq(cow__site_ask(s), COW__EAGER);
		ck_assert_int_eq(cow__site_ask(s), COW__WATCH);
	}
}
END_TEST

/* A table that is full refuses, and loses nobody. */
START_TEST(sites_are_bounded)
{
	static struct cow__sites all;
	unsigned refused = 0;

	for (uintptr_t code = 1; code <= 2 * COW__SITES; code++)
		refused += cow__site_of(&all, code, MIB) == NULL;
	ck_assert_uint_ge(refused, COW__SITES);
	ck_assert_uint_eq(cow__site_of(&all, 1, MIB)->code, 1);
}
END_TEST

START_TEST(units_in_vain_are_paid_for)
{
	struct cow__units u = { .debt = 0 };

	ck_assert(cow__units_due(&u, COW__FILLED_YES));
	cow__units_in_vain(&u);
	for (int i = 0; i < COW__UNIT_DEBT; i++)
		ck_assert(!cow__units_due(&u, COW__FILLED_YES));
	ck_assert(cow__units_due(&u, COW__FILLED_YES));
	ck_assert(!cow__units_due(&u, COW__FILLED_NO));
}
END_TEST

START_TEST(zeros_are_trusted_for_a_while)
{
	struct cow__units u = { .debt = 0 };
	unsigned n = COW__UNIT_PROOFS;

	ck_assert(!cow__units_due(&u, COW__FILLED_UNCLEAR));
	for (int i = 1; i < COW__UNIT_PROOFS; i++)
		ck_assert(!cow__units_due(&u, COW__FILLED_ZEROS));
	for (int round = 0; round < 3; round++, n *= 2) {
		ck_assert(cow__units_due(&u, COW__FILLED_ZEROS));
		for (unsigned i = 0; i < n; i++)
			ck_assert(cow__units_due(&u, COW__FILLED_UNCLEAR));
		ck_assert(!cow__units_due(&u, COW__FILLED_UNCLEAR));
	}
	u = (struct cow__units){ .proofs = COW__UNIT_PROOFS, .last = COW__UNIT_TRUST_MOST };
	ck_assert(cow__units_due(&u, COW__FILLED_ZEROS));
	ck_assert_uint_eq(u.left, COW__UNIT_TRUST_MOST);
	(void)cow__units_due(&u, COW__FILLED_NO);
	ck_assert(!cow__units_due(&u, COW__FILLED_ZEROS));
}
END_TEST

START_TEST(threads_are_stopped_for_a_share_of_the_time)
{
	struct cow__credit c = COW__CREDIT_FULL;

	ck_assert_uint_eq(cow__credit_stop_ns(&c, true), COW__HEAL_STOP_CLEAN_NS);
	ck_assert_uint_eq(cow__credit_stop_ns(&c, false), COW__HEAL_STOP_NS);
	c.at = SECOND;
	c.ns[1] = -1000;
	ck_assert_uint_eq(cow__credit_stop_ns(&c, true), COW__HEAL_STOP_NS);
	c.ns[0] = -3000;
	ck_assert_uint_eq(cow__credit_stop_ns(&c, true), 0);
	cow__credit_grow(&c, SECOND + 50000, 3); /* 1500 ns */
	ck_assert_int_eq(c.ns[1], 500);
	ck_assert_int_eq(c.ns[0], -1500);
	cow__credit_grow(&c, SECOND, 3); /* a clock that went back */
	ck_assert_int_eq(c.ns[1], 500);
	cow__credit_grow(&c, 1000ull * SECOND, 100);
	ck_assert_int_eq(c.ns[0], COW__HEAL_CREDIT_NS);
}
END_TEST

START_TEST(tables_come_back_where_they_are_used)
{
	struct cow__returns r = COW__RETURNS_NEW;

	cow__returns_moved(&r);
	ck_assert_uint_eq(r.left, COW__TABLES_RETURNS_FIRST);
	for (unsigned left = r.left; left > 0; left--) {
		ck_assert_uint_eq(r.left, left);
		r.thawed = r.returned = true;
		cow__returns_moved(&r);
	}
	ck_assert_uint_eq(r.left, 0);
	/* They stayed away, and a fork finds many entries. */
	r.thawed = true;
	cow__returns_moved(&r);
	ck_assert_uint_eq(r.left, 2 * COW__TABLES_RETURNS_FIRST);
	for (int i = 0; i < 9; i++) {
		r.thawed = true;
		cow__returns_moved(&r);
	}
	ck_assert_uint_eq(r.left, COW__TABLES_RETURNS_MOST);
	/* ... or few: from the beginning. */
	r.left = 0;
	r.thawed = true;
	cow__returns_few(&r);
	cow__returns_moved(&r);
	ck_assert_uint_eq(r.left, COW__TABLES_RETURNS_FIRST);
}
END_TEST

START_TEST(small_ones)
{
	ck_assert_uint_eq(cow__spare_keep_ns(UINT64_MAX, SECOND), COW__SPARE_KEEP_FIRST_NS);
	ck_assert_uint_eq(cow__spare_keep_ns(2ull * SECOND, SECOND), 4ull * SECOND);
	ck_assert_uint_eq(cow__spare_keep_ns(50ull * SECOND, SECOND), COW__SPARE_KEEP_MOST_NS);
	ck_assert_uint_eq(cow__spare_keep_ns(1, SECOND), SECOND);
	ck_assert(!cow__copies_too_much(0, 0) && cow__copies_too_much(1, 0));
	ck_assert(!cow__copies_too_much(MIB, 16 * MIB) && cow__copies_too_much(MIB + 1, 16 * MIB));
	ck_assert(cow__by_page_is_cheaper(256, 1) && !cow__by_page_is_cheaper(256, 256));
	ck_assert(!cow__by_page_is_cheaper(1, 1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy");
	TCase *tcase = add_case(suite, "policy");

	tcase_add_test(tcase, more_is_committed_where_programs_fill);
	tcase_add_test(tcase, warm_memory_reaches_the_peak);
	tcase_add_test(tcase, copies_that_are_not_written_become_lazy);
	tcase_add_test(tcase, sites_are_bounded);
	tcase_add_test(tcase, units_in_vain_are_paid_for);
	tcase_add_test(tcase, zeros_are_trusted_for_a_while);
	tcase_add_test(tcase, threads_are_stopped_for_a_share_of_the_time);
	tcase_add_test(tcase, tables_come_back_where_they_are_used);
	tcase_add_test(tcase, small_ones);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Memory that reads as zero does so whatever failed when its addresses were given up
 *
 * A page of a file is under its address for ever: whoever gets the address as fresh
 * memory of the same file finds what was left there. So pages are freed first; here
 * each kernel call that does it fails in turn, once and for good.
 */
#include "core/memory/state.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <cowshed-share.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 4 * MIB, CALLS_MAX = 200 };

static const int errors[] = { ENOMEM, EINVAL, FAULT_LASTING | ENOMEM, FAULT_LASTING | EINVAL };

static void is_zero(const char *after, int n, int error)
{
	struct cow_storage *s[4];

	for (size_t i = 0; i < COUNT(s); i++) {
		const unsigned char *p;
		size_t at;

		s[i] = new_storage(BYTES, COW_STORAGE_ZERO);
		p = data(s[i]);
		for (at = 0; at < BYTES && p[at] == 0; at++)
			;
		ck_assert_msg(at == BYTES, "%s, call %d (system call %ld, error %d): byte %zu is 0x%02x",
		              after, n, fault_fired_nr(), error, at, p[at]);
	}
	for (size_t i = 0; i < COUNT(s); i++)
		cow_storage_unref(s[i]);
}

/* Frozen pages that are nobody's, under a private mapping. */
static void free_frozen(bool written, int n, int error)
{
	struct cow_storage *s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 7), *c = lazy(s);

	if (written)
		fill(mut_range(c, 0, PAGE, COW_WRITE_BY_PAGE), PAGE, 8);
	fault_after(n, error);
	cow_storage_unref(c);
	cow_storage_unref(s);
}

static void plainly(int n, int error)
{
	free_frozen(false, n, error);
}

static void of_a_written_clone(int n, int error)
{
	free_frozen(true, n, error);
}

/* What leaves the engine's file for one of its own. */
static void in_place(int n, int error)
{
	struct cow_storage *s = new_filled(BYTES, COW_STORAGE_TRANSPARENT, 7);

	fault_after(n, error);
	if (cow_storage_share_in_place(s) < 0)
		ck_pattern(data(s), BYTES, 7);
	cow_storage_unref(s);
}

static const struct {
	const char *name;
	void (*give_up)(int n, int error);
} ways[] = {
	{ "a frozen source, freed", plainly },
	{ "a clone that was written, freed", of_a_written_clone },
	{ "shared in place, freed", in_place },
};

START_TEST(fresh_memory_is_zero)
{
	int error = errors[_i % (int)COUNT(errors)];
	unsigned way = (unsigned)_i / (unsigned)COUNT(errors);
	struct cow_storage *keep; /* the file lives on */
	bool fired = true;
	int n;

	ok(cow_option_set("helper", "no"));
	keep = new_filled(65536, 0, 1);
	for (n = 1; fired; n++) {
		must(n < CALLS_MAX);
		ways[way].give_up(n, error);
		fired = fault_disarm();
		sweep_renew();
		is_zero(ways[way].name, n, error);
	}
	must(n > 2);
	cow_storage_unref(keep);
}
END_TEST

/* Locked memory is no obstacle, where MADV_REMOVE would refuse; and it goes back at the
 * end, as the leak check sees. */
START_TEST(locked_memory)
{
	struct cow_storage *keep;

	ok(cow_option_set("helper", "no"));
	keep = new_filled(65536, 0, 1);
	if (mlockall(MCL_FUTURE | MCL_ONFAULT) < 0) {
		puts("skip locked_memory mlockall() is denied");
		return;
	}
	for (unsigned way = 0; way < COUNT(ways); way++) {
		ways[way].give_up(0, 0);
		must(!fault_disarm());
		sweep_renew();
		is_zero(ways[way].name, 0, 0);
	}
	cow_storage_unref(keep);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_zero");
	TCase *tcase = add_case(suite, "fault_zero");

	tcase_add_loop_test(tcase, fresh_memory_is_zero, 0, COUNT(ways) * COUNT(errors));
	tcase_add_test(tcase, locked_memory);
	return run_suite(suite);
}

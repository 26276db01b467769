/* SPDX-License-Identifier: MIT */
/*
 * Pages that were written since they were marked
 *
 * Newer kernels (seen on 7.3) call no page written where nobody watches. Whoever believes that
 * loses what was written: cow__pagemap_written() fails there.
 */
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/pagemap.h"
#include "memfd/watch.h"
#include "tests/support/support.h"

#include <errno.h>
#include <stdio.h>

enum { PAGES = 512 };

static uintptr_t at;
static struct cow__descriptor d;

/* Two private mappings with a copied page out of two, the first one watched. */
static bool make(void)
{
	const size_t bytes = PAGES * PAGE;

	if (!cow__pagemap_has_scan())
		return false;
	cow__watch_keep();
	if (!cow__watch_usable()) {
		puts("skip written no userfaultfd with marks here");
		return false;
	}
	ck_assert_int_eq(cow__memfd_new("written", 2 * bytes, &d), 0);
	ck_assert_int_eq(cow__map_reserve(2 * bytes, 2 * MIB, &at), 0);
	ck_assert_int_eq(cow__map_private(at, bytes, &d, 0, false), 0);
	ck_assert_int_eq(cow__watch(at, at + bytes), 0);
	ck_assert_int_eq(cow__map_private(at + bytes, bytes, &d, bytes, false), 0);
	for (size_t i = 0; i < 2 * PAGES; i += 2)
		*(volatile char *)(at + i * PAGE) = 1;
	return true;
}

static void unmake(void)
{
	ck_assert_int_eq(cow__map_release(at, 2 * PAGES * PAGE), 0);
	cow__descriptor_close(&d);
	cow__watch_forget();
}

static int written(size_t first, size_t end, struct cow__run *runs)
{
	uintptr_t next;
	int n = cow__pagemap_written(at + first * PAGE, at + end * PAGE, runs, PAGES, &next);

	ck_assert_int_ge(n, 0);
	ck_assert_uint_eq(next, at + end * PAGE);
	return n;
}

START_TEST(watched)
{
	struct cow__run runs[PAGES];
	uintptr_t next;

	if (!make())
		return;
	ck_assert_int_eq(written(0, PAGES, runs), PAGES / 2); /* nothing is marked */
	ck_assert_int_eq(cow__pagemap_mark(at, at + PAGES * PAGE, runs, PAGES, &next), PAGES / 2);
	ck_assert_int_eq(written(0, PAGES, runs), 0);
	*(volatile char *)(at + 8 * PAGE) = 2;
	*(volatile char *)(at + 11 * PAGE) = 2; /* it had no copy */
	ck_assert_int_eq(written(0, PAGES, runs), 2);
	ck_assert_uint_eq(runs[0].start, at + 8 * PAGE);
	ck_assert_uint_eq(runs[1].start, at + 11 * PAGE);
	unmake();
}
END_TEST

START_TEST(unwatched)
{
	struct cow__run runs[PAGES];
	uintptr_t next;

	if (!make())
		return;
	ck_assert_int_eq(cow__pagemap_mark(at + PAGES * PAGE, at + 2 * PAGES * PAGE, runs, PAGES,
	                                   &next), -EPERM);
	ck_assert_int_eq(cow__pagemap_written(at + PAGES * PAGE, at + 2 * PAGES * PAGE, runs, PAGES,
	                                      &next), -EPERM);
	/* Also beside marked pages. */
	ck_assert_int_eq(cow__pagemap_mark(at, at + PAGES * PAGE, runs, PAGES, &next), PAGES / 2);
	ck_assert_int_eq(cow__pagemap_written(at, at + 2 * PAGES * PAGE, runs, PAGES, &next),
	                 -EPERM);
	cow__watch_forget(); /* as if the program closed the descriptor */
	ck_assert_int_eq(cow__pagemap_written(at, at + PAGES * PAGE, runs, PAGES, &next), -EPERM);
	unmake();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("written");
	TCase *tcase = add_case(suite, "written");

	tcase_add_test(tcase, watched);
	tcase_add_test(tcase, unwatched);
	return run_suite(suite);
}

/* SPDX-License-Identifier: MIT */
/*
 * Cloning a storage whose writes the library does not see
 *
 * A round fills a transparent storage of 1 GiB and clones it. The first clone freezes
 * its pages (bar: 300 us). Later clones find the pages frozen (bar: 15 us); the second
 * clone, whose code in the kernel is not in the caches, is reported apart. Then 1 % of
 * the pages are written while the first clone lives, and the storage is cloned again.
 * Bar for that clone: at most 10 % of a full copy, which is memcpy between warm, mapped
 * buffers here. The written pages are one run (with the bar), eleven runs, or scattered,
 * in turns. Writing a page copies it; the time of these writes is reported, too. The
 * contents of all clones are checked.
 */
#include <cowshed.h>

#include "bench/common.h"

enum { RUNS_ONE, RUNS_ELEVEN, RUNS_ALL, LAYOUTS };

static const char *const layout_name[LAYOUTS] = {
	"second-clone-1%-written", "second-clone-1%-in-11-runs",
	"second-clone-1%-scattered"
};
static size_t size;

static struct series first, next, frozen, copied, drop;
static struct series again[LAYOUTS], writes[LAYOUTS];

/* The i-th of `count` pages to write, of `pages`. */
static size_t page_of(int layout, size_t i, size_t count, size_t pages)
{
	size_t runs = layout == RUNS_ONE ? 1 : layout == RUNS_ELEVEN ? 11 :
	                                                               count;
	size_t run_pages = (count + runs - 1) / runs;

	return i / run_pages * (pages / runs) + i % run_pages;
}

static void check(struct cow_storage *s, size_t page, char want)
{
	const char *p = cow_storage_data(s);

	if (p[page * PAGE] != want || p[page * PAGE + PAGE - 1] != want)
		die("transparent: wrong byte in page %zu", page);
}

static double clone_of(struct cow_storage *s, struct cow_storage **ret)
{
	double t0 = now_ns();

	must(cow_storage_lazy_clone(s, ret));
	return (now_ns() - t0) / 1e3;
}

static void round_of(int layout, bool keep)
{
	struct cow_storage_options o = { .size = sizeof(o),
		                         .flags = COW_STORAGE_TRANSPARENT };
	size_t pages = size / PAGE, count = pages / 100;
	struct cow_storage *s, *a, *b, *c;
	double t_first, t_next, t_again, t0, t_writes;
	char *p;

	must(cow_storage_new(size, &o, &s));
	must(cow_storage_expose(s, (void **)&p));
	memset(p, 1, size);
	t_first = clone_of(s, &a);
	t_next = clone_of(s, &b);
	for (int i = 0; i < 5; i++) {
		double t;

		t0 = now_ns();
		cow_storage_unref(b);
		if (keep)
			series_add(&drop, (now_ns() - t0) / 1e3);
		t = clone_of(s, &b);
		if (keep)
			series_add(&frozen, t);
	}
	cow_storage_unref(b);
	t0 = now_ns();
	for (size_t i = 0; i < count; i++)
		memset(p + page_of(layout, i, count, pages) * PAGE, 2, PAGE);
	t_writes = (now_ns() - t0) / 1e3;
	t_again = clone_of(s, &c);
	p[0] = 3;
	for (size_t i = 0; i < count; i++) {
		size_t page = page_of(layout, i, count, pages);

		check(a, page, 1);
		check(c, page, 2);
	}
	check(a, pages - 1, 1);
	check(c, pages - 1, 1);
	if (keep) {
		series_add(&first, t_first);
		series_add(&next, t_next);
		series_add(&again[layout], t_again);
		series_add(&writes[layout], t_writes);
	}
	cow_storage_unref(c);
	cow_storage_unref(a);
	cow_storage_unref(s);
}

int main(void)
{
	char *from, *to;

	size = sized(GIB);
	warm_host(5 * size);
	from = map_anonymous(size, true);
	to = map_anonymous(size, true);
	memset(from, 1, size);
	memset(to, 2, size);
	for (int i = 0; i < 7 + 1; i++)
		for (int layout = 0; layout < LAYOUTS; layout++) {
			double t0;

			round_of(layout, i > 0);
			t0 = now_ns();
			memcpy(to, from, size);
			use(to);
			if (i)
				series_add(&copied, (now_ns() - t0) / 1e3);
		}
	report("transparent", "first-clone", "us", &first, &copied, BAR_OURS,
	       300);
	report("transparent", "next-clone-caches-cold", "us", &next, &copied,
	       BAR_NONE, 0);
	report("transparent", "already-frozen", "us", &frozen, &copied,
	       BAR_OURS, 15);
	report("transparent", "drop-a-clone", "us", &drop, NULL, BAR_NONE, 0);
	for (int l = 0; l < LAYOUTS; l++) {
		char what[64];

		report("transparent", layout_name[l], "us", &again[l], &copied,
		       l == RUNS_ONE ? BAR_RATIO : BAR_NONE, 0.1);
		snprintf(what, sizeof(what), "%s/the-writes", layout_name[l]);
		report("transparent", what, "us", &writes[l], &copied,
		       BAR_NONE, 0);
	}
	return 0;
}

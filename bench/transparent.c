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

static struct cow_storage *clone_of(struct cow_storage *s, struct series *us)
{
	struct cow_storage *clone;
	double t0 = now_ns();

	must(cow_storage_lazy_clone(s, &clone));
	series_add(us, us_since(t0));
	return clone;
}

static void round_of(int layout)
{
	struct cow_storage_options o = { .size = sizeof(o), .flags = COW_STORAGE_TRANSPARENT };
	size_t pages = size / PAGE, count = pages / 100;
	struct cow_storage *s, *a, *b, *c;
	double t0;
	char *p;

	must(cow_storage_new(size, &o, &s));
	must(cow_storage_expose(s, (void **)&p));
	memset(p, 1, size);
	a = clone_of(s, &first);
	b = clone_of(s, &next);
	for (int i = 0; i < 5; i++) {
		t0 = now_ns();
		cow_storage_unref(b);
		series_add(&drop, us_since(t0));
		b = clone_of(s, &frozen);
	}
	cow_storage_unref(b);
	t0 = now_ns();
	for (size_t i = 0; i < count; i++)
		memset(p + page_of(layout, i, count, pages) * PAGE, 2, PAGE);
	series_add(&writes[layout], us_since(t0));
	c = clone_of(s, &again[layout]);
	p[0] = 3;
	for (size_t i = 0; i < count; i++) {
		size_t page = page_of(layout, i, count, pages);

		check(a, page, 1);
		check(c, page, 2);
	}
	check(a, pages - 1, 1);
	check(c, pages - 1, 1);
	cow_storage_unref(c);
	cow_storage_unref(a);
	cow_storage_unref(s);
}

int main(void)
{
	char *from, *to;

	size = sized(GIB);
	warm_host(5 * size);
	from = memset(map_anonymous(size, true), 1, size);
	to = memset(map_anonymous(size, true), 2, size);
	for (int i = 0; i < 7 + 1; i++) {
		warming_up = !i;
		for (int layout = 0; layout < LAYOUTS; layout++) {
			double t0;

			round_of(layout);
			t0 = now_ns();
			memcpy(to, from, size);
			use(to);
			series_add(&copied, us_since(t0));
		}
	}
	report("first-clone", "us", &first, &copied, BAR_OURS, 300);
	report_ratio("next-clone-caches-cold", "us", &next, &copied);
	report("already-frozen", "us", &frozen, &copied, BAR_OURS, 15);
	report_ratio("drop-a-clone", "us", &drop, NULL);
	for (int l = 0; l < LAYOUTS; l++) {
		report(layout_name[l], "us", &again[l], &copied,
		       l == RUNS_ONE ? BAR_RATIO : BAR_NONE, 0.1);
		report_ratio(named("%s/the-writes", layout_name[l]), "us", &writes[l], &copied);
	}
	return 0;
}

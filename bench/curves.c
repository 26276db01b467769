/* SPDX-License-Identifier: MIT */
/*
 * Curves: a clone by size, and by the share of its pages that are written
 *
 * These figures have no bars. They are for the plots of docs/results.md, which show
 * what grows with what, and where two curves cross.
 *
 *   size     clone, write one page and drop the clone, by size; against malloc,
 *            memcpy, the same write and free, with 4 KiB and with huge pages
 *   written  clone 256 MiB, write a share of its pages, in one run or scattered, and
 *            drop the clone: as the library chooses, by page, and by copy; against
 *            the same rivals
 *
 *      curves [size] [written]
 */
#include <cowshed.h>

#include "bench/common.h"

struct work {
	size_t bytes, count, step; /* number of written pages, and their distance */
	int times;                 /* cycles in one measurement */
};

static void write_pages(char *p, const struct work *w, int value)
{
	for (size_t i = 0; i < w->count; i++)
		memset(p + i * w->step * PAGE, value, PAGE);
	use(p);
}

static double clone_cycle(struct cow_storage *s, const struct work *w,
                          enum cow_write_hint hint)
{
	size_t range = ((w->count - 1) * w->step + 1) * PAGE;
	double t0 = now_ns();

	for (int i = 0; i < w->times; i++) {
		struct cow_storage *b;
		void *p;

		must(cow_storage_lazy_clone(s, &b));
		must(cow_storage_data_mut_range(b, 0, range, hint, &p));
		write_pages(p, w, i);
		cow_storage_unref(b);
	}
	return (now_ns() - t0) / w->times / 1e3;
}

static double copy_cycle(const char *source, const struct work *w, bool huge)
{
	double t0 = now_ns();

	for (int i = 0; i < w->times; i++) {
		char *p = huge ? map_anonymous(w->bytes, true) : block_of(w->bytes, false, -1);

		memcpy(p, source, w->bytes);
		write_pages(p, w, i);
		if (huge)
			munmap(p, w->bytes);
		else
			free(p);
	}
	return (now_ns() - t0) / w->times / 1e3;
}

static char *plain_of(size_t bytes)
{
	return memset(map_anonymous(bytes, true), 1, bytes);
}

static void by_size(size_t bytes)
{
	struct cow_storage *s = storage_filled(bytes, 0, 1, NULL);
	char *plain = plain_of(bytes);
	struct series ours = {.n = 0}, small = ours, huge = ours;
	int times = bytes <= MIB ? 200 : bytes <= 16 * MIB ? 20 : 1;
	struct work w = { bytes, 1, 1, times };

	for (int i = 0; i < rounds(7) + 1; i++) {
		warming_up = !i;
		series_add(&ours, clone_cycle(s, &w, COW_WRITE_AUTO));
		series_add(&small, copy_cycle(plain, &w, false));
		/* Smaller memory has no huge pages. */
		if (bytes > HUGE)
			series_add(&huge, copy_cycle(plain, &w, true));
	}
	report_faster(named("size/%s", size_name(bytes)), "us", &ours, &small);
	if (bytes > HUGE)
		report_faster(named("size/%s/huge-pages", size_name(bytes)), "us", &ours, &huge);
	cow_storage_unref(s);
	munmap(plain, bytes);
}

static void by_share(struct cow_storage *s, const char *plain, double percent, bool scattered)
{
	size_t bytes = cow_storage_bytes(s), pages = bytes / PAGE;
	struct series ours = {.n = 0}, page = ours, copy = ours, small = ours, huge = ours;
	struct work w = {bytes, (size_t)(pages * percent / 100), 1, 1};
	const char *what = named("written/%s/%g%%", scattered ? "scattered" : "run", percent);

	if (scattered)
		w.step = pages / w.count;
	for (int i = 0; i < rounds(7) + 1; i++) {
		warming_up = !i;
		series_add(&ours, clone_cycle(s, &w, scattered ? COW_WRITE_SPARSE : COW_WRITE_AUTO));
		series_add(&small, copy_cycle(plain, &w, false));
		series_add(&page, clone_cycle(s, &w, COW_WRITE_BY_PAGE));
		series_add(&huge, copy_cycle(plain, &w, true));
		series_add(&copy, clone_cycle(s, &w, COW_WRITE_BY_COPY));
	}
	report_faster(what, "us", &ours, &small);
	report_faster(named("%s/huge-pages", what), "us", &ours, &huge);
	report_faster(named("%s/page-against-copy", what), "us", &page, &copy);
}

static void written(void)
{
	static const double shares[] = {0.1, 1, 3, 10, 30, 50, 70, 100};
	size_t bytes = sized(256 * MIB);
	struct cow_storage *s = storage_filled(bytes, 0, 1, NULL);
	char *plain = plain_of(bytes);

	for (int scattered = 0; scattered < 2; scattered++)
		for (size_t i = 0; i < COUNT_OF(shares); i++)
			by_share(s, plain, shares[i], scattered);
	cow_storage_unref(s);
	munmap(plain, bytes);
}

int main(int argc, char **argv)
{
	bool all = argc < 2;

	if (all || !strcmp(argv[1], "size")) {
		warm_host(sized(4 * GIB));
		for (size_t bytes = 64 * KIB; bytes <= sized(GIB); bytes *= 4)
			by_size(bytes);
	}
	if (all || !strcmp(argv[argc - 1], "written")) {
		warm_host(sized(GIB));
		written();
	}
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * A clone of 1 GiB that is written in part, against a copy
 *
 * Bar: clone + materialize + write one page is at least 10 000 times faster than
 * malloc + memcpy. Dropping the clone (free of the copy) is timed apart.
 *
 * The second half measures whether the price only moved elsewhere. Both the clone and
 * its source write 1 page, 1 %, 10 % or 100 % of the pages; then the clone is dropped.
 * The rival copies eagerly, both of its sides write the same, and it frees the copy.
 * The source is the same storage in every round. So a round also pays for what earlier
 * rounds left behind (views, copied pages).
 */
#include <cowshed.h>

#include "bench/common.h"

static size_t size;
static struct cow_storage *source;
static char *plain;

/* A fresh private copy, as a program makes it. */
static char *eager(bool huge)
{
	char *p = huge ? map_anonymous(size, true) : malloc(size);

	if (!p)
		die("malloc");
	memcpy(p, plain, size);
	return p;
}

/* Clones, writes one page and drops the clone. Without a range the library must
 * expect that all of the clone is going to be written. Round 0 warms up. */
static void page_of_clone(int i, bool ranged, struct series *write,
                          struct series *drop)
{
	size_t offset = size / 2;
	struct cow_storage *b;
	double t0, t1, t2;
	char *p;

	t0 = now_ns();
	must(cow_storage_lazy_clone(source, &b));
	if (ranged)
		must(cow_storage_data_mut_range(b, offset, PAGE, COW_WRITE_AUTO,
		                                (void **)&p));
	else
		must(cow_storage_data_mut(b, (void **)&p));
	memset(p + offset, i, PAGE);
	t1 = now_ns();
	cow_storage_unref(b);
	t2 = now_ns();
	if (i) {
		series_add(write, (t1 - t0) / 1e3);
		series_add(drop, (t2 - t1) / 1e3);
	}
}

static void page_of_copy(int i, bool in_huge, struct series *write,
                         struct series *drop)
{
	size_t offset = size / 2;
	double t0, t1, t2;
	char *p;

	warm_host(size);
	t0 = now_ns();
	p = eager(in_huge);
	memset(p + offset, i, PAGE);
	t1 = now_ns();
	if (in_huge)
		munmap(p, size);
	else
		free(p);
	t2 = now_ns();
	if (i) {
		series_add(write, (t1 - t0) / 1e3);
		series_add(drop, (t2 - t1) / 1e3);
	}
}

static void one_page(void)
{
	static struct series ours, ours_drop, whole, rival, rival_drop, huge;
	static struct series unreported;

	for (int i = 0; i < rounds(7) + 1; i++) {
		warm_host(size);
		page_of_clone(i, true, &ours, &ours_drop);
		page_of_copy(i, false, &rival, &rival_drop);
		page_of_copy(i, true, &huge, &unreported);
		page_of_clone(i, false, &whole, &unreported);
	}
	report("page", "clone+write-1-page", "us", &ours, &rival, BAR_SPEEDUP,
	       10000);
	report("page", "clone+write-1-page/huge-pages", "us", &ours, &huge,
	       BAR_FASTER, 0);
	report("page", "drop-it", "us", &ours_drop, &rival_drop, BAR_FASTER, 0);
	report("page", "no-range-given", "us", &whole, &rival, BAR_FASTER, 0);
}

struct share {
	const char *name;
	double part;    /* of the pages; 0: one page */
	bool scattered;
};

static void write_part(char *p, const struct share *s, int value)
{
	size_t pages = size / PAGE;
	size_t count = s->part > 0 ? (size_t)(s->part * pages) : 1;
	size_t step = s->scattered ? pages / count : 1;

	for (size_t i = 0; i < count; i++)
		memset(p + i * step * PAGE, value, PAGE);
}

static char *writable(struct cow_storage *s, const struct share *share)
{
	size_t bytes = share->part > 0 ? (size_t)(share->part * size) : PAGE;
	void *p;

	if (share->scattered)
		must(cow_storage_data_mut_range(s, 0, size, COW_WRITE_SPARSE,
		                                &p));
	else
		must(cow_storage_data_mut_range(s, 0, bytes, COW_WRITE_AUTO,
		                                &p));
	return p;
}

static void both_write(const struct share *share)
{
	struct series ours = { .n = 0 }, ours_cpu = ours;
	struct series rival = ours, rival_cpu = ours;
	char what[80];

	for (int i = 0; i < rounds(7) + 1; i++) {
		struct cow_storage *b;
		double t0, c0;
		char *p;

		warm_host(size);
		t0 = now_ns();
		c0 = cpu_ns();
		must(cow_storage_lazy_clone(source, &b));
		write_part(writable(b, share), share, i);
		write_part(writable(source, share), share, i + 1);
		cow_storage_unref(b);
		if (i) {
			series_add(&ours, (now_ns() - t0) / 1e6);
			series_add(&ours_cpu, (cpu_ns() - c0) / 1e6);
		}
		warm_host(size);
		t0 = now_ns();
		c0 = cpu_ns();
		p = eager(false);
		write_part(p, share, i);
		write_part(plain, share, i + 1);
		use(p);
		free(p);
		if (i) {
			series_add(&rival, (now_ns() - t0) / 1e6);
			series_add(&rival_cpu, (cpu_ns() - c0) / 1e6);
		}
	}
	snprintf(what, sizeof(what), "both-write-%s", share->name);
	report("page", what, "ms", &ours, &rival, BAR_NONE, 0);
	snprintf(what, sizeof(what), "both-write-%s/cpu", share->name);
	report("page", what, "ms", &ours_cpu, &rival_cpu, BAR_NONE, 0);
}

int main(void)
{
	static const struct share shares[] = {
		{ "1page", 0, false },         { "1%", 0.01, false },
		{ "1%-scattered", 0.01, true }, { "10%", 0.1, false },
		{ "10%-scattered", 0.1, true }, { "100%", 1, false },
	};
	void *p;

	size = sized(GIB);
	warm_host(4 * size);
	plain = map_anonymous(size, true);
	memset(plain, 1, size);
	must(cow_storage_new(size, NULL, &source));
	must(cow_storage_data_mut(source, &p));
	memset(p, 1, size);
	one_page();
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		both_write(&shares[i]);
	cow_storage_unref(source);
	return 0;
}

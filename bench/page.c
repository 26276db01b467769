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
	char *p = huge ? map_anonymous(size, true) : block_of(size, false, -1);

	memcpy(p, plain, size);
	return p;
}

/* Clones, writes one page and drops the clone. Without a range the library must
 * expect that all of the clone is going to be written. */
static void page_of_clone(int value, bool ranged, struct series *write, struct series *drop)
{
	size_t offset = size / 2;
	struct cow_storage *b;
	double t0 = now_ns();
	void *p;

	must(cow_storage_lazy_clone(source, &b));
	if (ranged)
		must(cow_storage_data_mut_range(b, offset, PAGE, COW_WRITE_AUTO, &p));
	else
		must(cow_storage_data_mut(b, &p));
	memset((char *)p + offset, value, PAGE);
	series_add(write, us_since(t0));
	t0 = now_ns();
	cow_storage_unref(b);
	series_add(drop, us_since(t0));
}

static void page_of_copy(int value, bool in_huge, struct series *write, struct series *drop)
{
	double t0;
	char *p;

	warm_host(size);
	t0 = now_ns();
	p = eager(in_huge);
	memset(p + size / 2, value, PAGE);
	series_add(write, us_since(t0));
	t0 = now_ns();
	if (in_huge)
		munmap(p, size);
	else
		free(p);
	series_add(drop, us_since(t0));
}

static void one_page(void)
{
	static struct series ours, ours_drop, whole, rival, rival_drop, huge, unreported;

	for (int i = 0; i < rounds(7) + 1; i++) {
		warming_up = !i;
		warm_host(size);
		page_of_clone(i, true, &ours, &ours_drop);
		page_of_copy(i, false, &rival, &rival_drop);
		page_of_copy(i, true, &huge, &unreported);
		page_of_clone(i, false, &whole, &unreported);
	}
	report("clone+write-1-page", "us", &ours, &rival, BAR_SPEEDUP, 10000);
	report_faster("clone+write-1-page/huge-pages", "us", &ours, &huge);
	report_faster("drop-it", "us", &ours_drop, &rival_drop);
	report_faster("no-range-given", "us", &whole, &rival);
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

	must(cow_storage_data_mut_range(s, 0, share->scattered ? size : bytes,
	                                share->scattered ? COW_WRITE_SPARSE : COW_WRITE_AUTO,
	                                &p));
	return p;
}

static void both_write(const struct share *share)
{
	struct times ours = { .wall.n = 0 }, rival = ours;

	for (int i = 0; i < rounds(7) + 1; i++) {
		struct cow_storage *b;
		struct moment begin;
		char *p;

		warming_up = !i;
		warm_host(size);
		begin = moment_now();
		must(cow_storage_lazy_clone(source, &b));
		write_part(writable(b, share), share, i);
		write_part(writable(source, share), share, i + 1);
		cow_storage_unref(b);
		times_add(&ours, begin);
		warm_host(size);
		begin = moment_now();
		p = eager(false);
		write_part(p, share, i);
		write_part(plain, share, i + 1);
		use(p);
		free(p);
		times_add(&rival, begin);
	}
	report_ratio(named("both-write-%s", share->name), "ms", &ours.wall, &rival.wall);
	report_ratio(named("both-write-%s/cpu", share->name), "ms", &ours.cpu, &rival.cpu);
}

int main(void)
{
	static const struct share shares[] = {
		{ "1page", 0, false },         { "1%", 0.01, false },
		{ "1%-scattered", 0.01, true }, { "10%", 0.1, false },
		{ "10%-scattered", 0.1, true }, { "100%", 1, false },
	};

	size = sized(GIB);
	warm_host(4 * size);
	plain = memset(map_anonymous(size, true), 1, size);
	source = storage_filled(size, 0, 1, NULL);
	one_page();
	for (size_t i = 0; i < COUNT_OF(shares); i++)
		both_write(&shares[i]);
	cow_storage_unref(source);
	return 0;
}

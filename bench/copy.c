/* SPDX-License-Identifier: MIT */
/*
 * Materializing by copy, against a bare memcpy
 *
 * A clone of 1 GiB becomes a copy at once. The rival is memcpy between two buffers that
 * are mapped and warm, with 4 KiB pages and with huge pages. Bars, against each of the
 * two: at most 1.15 times its time into recycled memory (an equal storage was dropped
 * just before), and at most 1.6 times into fresh memory (after cow_trim()). CPU time is
 * shown since the copy may use two threads.
 */
#include <cowshed.h>

#include "bench/common.h"

static size_t size;
static struct cow_storage *source;

static void materialize(struct series *wall, struct series *cpu)
{
	struct cow_storage *b;
	double t0 = now_ns(), c0 = cpu_ns();
	char *p;

	must(cow_storage_lazy_clone(source, &b));
	must(cow_storage_data_mut_range(b, 0, size, COW_WRITE_BY_COPY,
	                                (void **)&p));
	series_add(wall, (now_ns() - t0) / 1e6);
	series_add(cpu, (cpu_ns() - c0) / 1e6);
	if (p[0] != 7 || p[size - 1] != 7)
		die("copy: wrong bytes");
	cow_storage_unref(b);
}

static void bare(char *to, const char *from, struct series *wall,
                 struct series *cpu)
{
	double t0 = now_ns(), c0 = cpu_ns();

	memcpy(to, from, size);
	use(to);
	series_add(wall, (now_ns() - t0) / 1e6);
	series_add(cpu, (cpu_ns() - c0) / 1e6);
}

int main(void)
{
	static struct series fresh[2], recycled[2], small[2], huge[2];
	char *a4, *b4, *a2, *b2;
	void *p;

	size = sized(GIB);
	warm_host(7 * size);
	a4 = map_anonymous(size, false);
	b4 = map_anonymous(size, false);
	a2 = map_anonymous(size, true);
	b2 = map_anonymous(size, true);
	memset(a4, 7, size);
	memset(b4, 8, size);
	memset(a2, 7, size);
	memset(b2, 8, size);
	must(cow_storage_new(size, NULL, &source));
	must(cow_storage_data_mut_range(source, 0, size, COW_WRITE_ALL, &p));
	memset(p, 7, size);
	for (int i = 0; i < rounds(9) + 1; i++) {
		cow_trim();
		materialize(&fresh[0], &fresh[1]);
		bare(b4, a4, &small[0], &small[1]);
		materialize(&recycled[0], &recycled[1]);
		bare(b2, a2, &huge[0], &huge[1]);
		if (!i) /* the first round warms up */
			fresh[0].n = fresh[1].n = small[0].n = small[1].n =
				recycled[0].n = recycled[1].n = huge[0].n =
					huge[1].n = 0;
	}
	report("copy", "recycled", "ms", &recycled[0], &small[0], BAR_RATIO,
	       1.15);
	report("copy", "recycled/huge-buffers", "ms", &recycled[0], &huge[0],
	       BAR_RATIO, 1.15);
	report("copy", "recycled/cpu", "ms", &recycled[1], &huge[1], BAR_NONE,
	       0);
	report("copy", "fresh", "ms", &fresh[0], &small[0], BAR_RATIO, 1.6);
	report("copy", "fresh/huge-buffers", "ms", &fresh[0], &huge[0],
	       BAR_RATIO, 1.6);
	report("copy", "fresh/cpu", "ms", &fresh[1], &huge[1], BAR_NONE, 0);
	cow_storage_unref(source);
	return 0;
}

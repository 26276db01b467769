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

static void materialize(struct times *t)
{
	struct moment begin = moment_now();
	struct cow_storage *b;
	char *p;

	must(cow_storage_lazy_clone(source, &b));
	must(cow_storage_data_mut_range(b, 0, size, COW_WRITE_BY_COPY, (void **)&p));
	times_add(t, begin);
	if (p[0] != 7 || p[size - 1] != 7)
		die("copy: wrong bytes");
	cow_storage_unref(b);
}

static void bare(char *to, const char *from, struct times *t)
{
	struct moment begin = moment_now();

	memcpy(to, from, size);
	use(to);
	times_add(t, begin);
}

static char *buffer(bool huge, int value)
{
	return memset(map_anonymous(size, huge), value, size);
}

int main(void)
{
	static struct times fresh, recycled, small, huge;
	char *a4, *b4, *a2, *b2;

	size = sized(GIB);
	warm_host(7 * size);
	a4 = buffer(false, 7);
	b4 = buffer(false, 8);
	a2 = buffer(true, 7);
	b2 = buffer(true, 8);
	source = storage_filled(size, 0, 7, NULL);
	for (int i = 0; i < rounds(9) + 1; i++) {
		warming_up = !i;
		cow_trim();
		materialize(&fresh);
		bare(b4, a4, &small);
		materialize(&recycled);
		bare(b2, a2, &huge);
	}
	report("recycled", "ms", &recycled.wall, &small.wall, BAR_RATIO, 1.15);
	report("recycled/huge-buffers", "ms", &recycled.wall, &huge.wall, BAR_RATIO, 1.15);
	report_ratio("recycled/cpu", "ms", &recycled.cpu, &huge.cpu);
	report("fresh", "ms", &fresh.wall, &small.wall, BAR_RATIO, 1.6);
	report("fresh/huge-buffers", "ms", &fresh.wall, &huge.wall, BAR_RATIO, 1.6);
	report_ratio("fresh/cpu", "ms", &fresh.cpu, &huge.cpu);
	cow_storage_unref(source);
	return 0;
}

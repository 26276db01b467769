/* SPDX-License-Identifier: MIT */
/*
 * Lazy clone of a tracked storage: the cost of a reference
 *
 * Bar: at most 50 ns, and the same from 4 KiB to 4 GiB. A batch clones one storage a
 * thousand times and then drops the clones, so its reference count goes up and down. A
 * *pair* clones and drops at once, so the count goes 1, 2, 1. Only the ends of a storage
 * were touched, so large ones are sparse; a clone does not depend on that. The rival is
 * an eager library: malloc + memcpy + free of the same size, up to 64 MiB.
 */
#include <cowshed.h>

#include "bench/common.h"

enum { BATCH = 1000 };

static struct cow_storage *made[BATCH];

static struct cow_storage *storage_of(size_t bytes)
{
	struct cow_storage *s;
	void *p;

	must(cow_storage_new(bytes, NULL, &s));
	must(cow_storage_data_mut(s, &p));
	((char *)p)[0] = 1;
	((char *)p)[bytes - 1] = 1;
	return s;
}

static void batch(struct cow_storage *s, struct series *clone,
                  struct series *unref, struct series *pair)
{
	double t0 = now_ns(), t1, t2, t3;

	for (int i = 0; i < BATCH; i++)
		must(cow_storage_lazy_clone(s, &made[i]));
	t1 = now_ns();
	for (int i = 0; i < BATCH; i++)
		cow_storage_unref(made[i]);
	t2 = now_ns();
	for (int i = 0; i < BATCH; i++) {
		must(cow_storage_lazy_clone(s, &made[0]));
		cow_storage_unref(made[0]);
	}
	t3 = now_ns();
	series_add(clone, (t1 - t0) / BATCH);
	series_add(unref, (t2 - t1) / BATCH);
	series_add(pair, (t3 - t2) / BATCH);
}

static double eager(const char *src, size_t bytes)
{
	int times = bytes <= MIB ? 100 : 1;
	double t0 = now_ns();

	for (int i = 0; i < times; i++) {
		char *p = block_of(bytes, false, -1);

		memcpy(p, src, bytes);
		use(p);
		free(p);
	}
	return (now_ns() - t0) / times;
}

int main(void)
{
	static const size_t sizes[] = { 4 * KIB, 64 * KIB, MIB, 64 * MIB, GIB, 4 * GIB };
	enum { SIZES = COUNT_OF(sizes) };
	static struct series clone[SIZES], unref[SIZES], pair[SIZES], rival[SIZES];
	struct cow_storage *s[SIZES];
	double least = 1e18, most = 0;

	warm_host(4 * 64 * MIB);
	for (int i = 0; i < SIZES; i++)
		s[i] = storage_of(sizes[i]);
	for (int round = -1; round < rounds(21); round++) {
		warming_up = round < 0; /* of the metadata */
		for (int i = 0; i < SIZES; i++) {
			batch(s[i], &clone[i], &unref[i], &pair[i]);
			if (sizes[i] <= 64 * MIB && !warming_up)
				series_add(&rival[i], eager(cow_storage_data(s[i]), sizes[i]));
		}
	}
	for (int i = 0; i < SIZES; i++) {
		const char *size = size_name(sizes[i]);
		double m = series_median(&clone[i]);

		least = m < least ? m : least;
		most = m > most ? m : most;
		report(size, "ns", &clone[i], rival[i].n ? &rival[i] : NULL, BAR_OURS, 50);
		report_ratio(named("%s-unref", size), "ns", &unref[i], NULL);
		report_ratio(named("%s-clone+unref", size), "ns", &pair[i], NULL);
		cow_storage_unref(s[i]);
	}
	/* "The same at all sizes" means: within a quarter. */
	report_one("slowest-size/fastest-size", "x", most / least, BAR_OURS, 1.25);
	return 0;
}

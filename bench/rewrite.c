/* SPDX-License-Identifier: MIT */
/*
 * Rewriting what a snapshot shares, with a write intent
 *
 * A transparent storage of 1 GiB is cloned. Its writer gives an intent and rewrites all of
 * it, while the clone lives. The rival is memcpy between two warm buffers with huge pages.
 * Bars: at most 1.3 times its time if an earlier rewrite left pages, and 1.6 times into
 * fresh memory (after cow_trim()). `alone` is the intent without the writing.
 *
 * Then 300 storages of 2 GiB in all are cloned by one call and rewritten, a hundred times;
 * the clones of one time are freed before the next. `pause` is the call. Bar: at most 5 ms,
 * the first and the hundredth one.
 */
#include <cowshed.h>

#include "bench/common.h"

enum { MANY = 300, TIMES = 100 };

static void rewrite(struct cow_storage *s, size_t bytes, struct series *wall, struct series *alone)
{
	struct cow_storage *clone;
	double t0;
	void *p;

	must(cow_storage_data_mut(s, &p));
	must(cow_storage_lazy_clone(s, &clone));
	t0 = now_ns();
	must(cow_write_intent(&(struct cow_range){ p, bytes }, 1, COW_WRITE_AUTO, NULL));
	series_add(alone, ms_since(t0));
	memset(p, ((char *)p)[0] + 1, bytes);
	series_add(wall, ms_since(t0));
	if (((const char *)cow_storage_data(clone))[bytes - 1] + 1 != ((char *)p)[bytes - 1])
		die("rewrite: wrong bytes");
	cow_storage_unref(clone);
}

static void one(size_t bytes)
{
	static struct series fresh[2], warm[2], bare;
	char *from = memset(map_anonymous(bytes, true), 7, bytes);
	char *to = memset(map_anonymous(bytes, true), 8, bytes);
	struct cow_storage *s = storage_filled(bytes, COW_STORAGE_TRANSPARENT, 7, NULL);

	for (int i = 0; i < rounds(9) + 1; i++) {
		double t0;

		warming_up = !i;
		cow_trim();
		rewrite(s, bytes, &fresh[0], &fresh[1]);
		rewrite(s, bytes, &warm[0], &warm[1]);
		t0 = now_ns();
		memcpy(to, from, bytes);
		use(to);
		series_add(&bare, ms_since(t0));
	}
	report("warm", "ms", &warm[0], &bare, BAR_RATIO, 1.3);
	report("fresh", "ms", &fresh[0], &bare, BAR_RATIO, 1.6);
	report_ratio("warm/alone", "ms", &warm[1], &bare);
	report_ratio("fresh/alone", "ms", &fresh[1], &bare);
	cow_storage_unref(s);
	munmap(from, bytes);
	munmap(to, bytes);
}

static void many(size_t total)
{
	static struct series first, hundredth;
	struct cow_storage *s[MANY], *clones[MANY];
	size_t bytes = total / MANY;

	for (int r = 0; r < rounds(5); r++) {
		for (int i = 0; i < MANY; i++)
			s[i] = storage_filled(bytes, COW_STORAGE_TRANSPARENT, 7, NULL);
		for (int n = 1; n <= TIMES; n++) {
			double t0 = now_ns(), ms;

			must(cow_storages_lazy_clone(s, MANY, NULL, clones));
			ms = ms_since(t0);
			must(cow_storages_write_intent(s, MANY, COW_WRITE_ALL, NULL));
			for (int i = 0; i < MANY; i++) {
				void *p;

				must(cow_storage_data_mut(s[i], &p));
				memset(p, n, bytes);
				cow_storage_unref(clones[i]);
			}
			if (n == 1)
				series_add(&first, ms);
			else if (n == TIMES)
				series_add(&hundredth, ms);
		}
		for (int i = 0; i < MANY; i++)
			cow_storage_unref(s[i]);
		cow_trim();
	}
	report("pause-of-300/first", "ms", &first, NULL, BAR_OURS, 5);
	report("pause-of-300/hundredth", "ms", &hundredth, NULL, BAR_OURS, 5);
}

int main(void)
{
	size_t bytes = sized(GIB);

	warm_host(5 * bytes);
	one(bytes);
	many(2 * bytes);
	return 0;
}

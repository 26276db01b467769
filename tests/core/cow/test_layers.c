/* SPDX-License-Identifier: MIT */
/*
 * Clones of what was written beside a clone
 *
 * A clone freezes the pages of its source, which copies those that it writes
 * from then on. What the next clone does with these depends on how they lie: long
 * runs become a layer, which both map; single pages are copied; most of them: all
 * is.
 */
#include "tests/support/support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* One in a hundred pages written between clones that live on, many times: the
 * layers stay right, and the mappings bounded. */
START_TEST(layers_on_layers)
{
	enum { LAYERS = 60, WORDS = PAGE / sizeof(uint32_t) };
	size_t bytes = 8 * MIB, pages = bytes / PAGE, n, k, page;
	bool scattered = _i;
	struct cow_storage *a = new_storage(bytes, COW_STORAGE_TRANSPARENT);
	struct cow_storage *old[LAYERS];
	uint32_t *p = (uint32_t *)(void *)expose(a);
	static uint32_t model[8 * MIB / PAGE];
	static uint32_t kept[LAYERS][8 * MIB / PAGE];
	uint64_t before = stats_now().fallbacks[COW_FALLBACK_REWRITTEN];
	struct prng prng = prng_make(77 + (uint64_t)_i);
	const uint32_t *q;

	memset(model, 0, sizeof(model));
	memset(p, 0, bytes);
	for (n = 0; n < LAYERS; n++) {
		page = prng_below(&prng, pages);
		for (k = 0; k < pages / 100; k++) {
			page = scattered ? prng_below(&prng, pages)
			                 : (page + 1) % pages;
			p[page * WORDS + n] = (uint32_t)(n * 4096 + k + 1);
			p[page * WORDS] = model[page] = (uint32_t)(n * 31 + k);
		}
		memcpy(kept[n], model, sizeof(model));
		old[n] = lazy(a);
		if (n % 4 == 3)
			old[n - 2] = cow_storage_unref(old[n - 2]);
	}
	for (n = 0; n < LAYERS; n++) {
		if (old[n] == NULL)
			continue;
		q = (const uint32_t *)(const void *)data(old[n]);
		for (page = 0; page < pages; page++)
			must(q[page * WORDS] == kept[n][page]);
	}
	ck_assert_int_lt(footprint_now().maps, 33000);
	/* Single pages don't add up to a copy of all: they become a layer first. */
	if (!UNDER_TSAN) /* its own thread is never quiet */
		ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_REWRITTEN],
		                  before);
	for (page = 0; page < pages; page++)
		must(p[page * WORDS] == model[page]);
	for (n = 0; n < LAYERS; n++)
		cow_storage_unref(old[n]);
	for (page = 0; page < pages; page++)
		must(p[page * WORDS] == model[page]);
	cow_storage_unref(a);
}
END_TEST

/* Written pages here and there are copied into the clone: it needs no mappings for
 * them. Those of a long run become a layer, of both. Too many: a copy of all. */
START_TEST(few_pages_are_patched_in)
{
	enum { BYTES = 64 * MIB, APART = 16 * PAGE, RUN = 1 * MIB };
	struct cow_storage *a = new_storage(BYTES, COW_STORAGE_TRANSPARENT);
	struct cow_storage_info i = { .size = sizeof(i) };
	unsigned char *p = expose(a), *model = new_block(BYTES, 0);
	uint64_t before = stats_now().fallbacks[COW_FALLBACK_REWRITTEN];
	struct cow_storage *first, *second, *third, *all;

	fill(p, BYTES, 7);
	first = lazy(a);
	for (size_t at = 0; at < BYTES; at += APART)
		p[at + 5] ^= 1;
	memset(p + BYTES / 2, 9, RUN);
	memcpy(model, p, BYTES);
	second = lazy(a);
	p[APART] ^= 1;
	third = lazy(a);
	must(cow_storage_get_info(second, &i) == 0);
	ck_assert_uint_eq(i.mappings, 3);
	/* All but the page that adjoins the run. */
	ck_assert_uint_eq(i.bytes_own, (BYTES - RUN) / 16 - PAGE);
	must(cow_storage_get_info(a, &i) == 0);
	ck_assert_uint_eq(i.mappings, UNDER_TSAN ? 1 : 3);
	ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_REWRITTEN], before);

	ck_pattern(data(first), BYTES, 7);
	ck_assert_mem_eq(data(second), model, BYTES);
	p[APART] ^= 1;
	ck_assert_mem_eq(p, model, BYTES);
	ck_assert_mem_eq(data(third), model, APART);
	ck_assert_int_eq(((const unsigned char *)data(third))[APART],
	                 model[APART] ^ 1);

	/* Too many runs, or with larger pages too many bytes. */
	for (size_t at = 0; at < BYTES / 8 * 5; at += PAGE > 4 * KIB ? PAGE : 2 * PAGE)
		p[at] ^= 1;
	memcpy(model, p, BYTES);
	all = lazy(a);
	ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_REWRITTEN],
	                  before + 1);
	ck_assert_uint_ge(stats_now().fallback_bytes[COW_FALLBACK_REWRITTEN], BYTES);
	memset(p, 0, BYTES);
	ck_assert_mem_eq(data(all), model, BYTES);
	ck_pattern(data(first), BYTES, 7);
	cow_storage_unref(first);
	cow_storage_unref(second);
	cow_storage_unref(third);
	cow_storage_unref(all);
	cow_storage_unref(a);
	cow_block_free(model);
}
END_TEST

/* The clone of a storage that was written by page, all of it. The counters know its bytes. */
START_TEST(a_rewritten_view_is_copied)
{
	const size_t bytes = 32 * MIB;
	struct cow_storage *a = new_filled(bytes, 0, 1), *b = lazy(a), *c;
	struct cow_stats before, after;
	void *p;

	ok(cow_storage_data_mut_range(b, 0, bytes, COW_WRITE_BY_PAGE, &p));
	memset(p, 2, bytes);
	c = lazy(b);
	before = stats_now();
	ok(cow_storage_data_mut_range(c, 0, PAGE, COW_WRITE_BY_PAGE, &p));
	after = stats_now();
	ck_assert_uint_eq(after.fallbacks[COW_FALLBACK_REWRITTEN],
	                  before.fallbacks[COW_FALLBACK_REWRITTEN] + 1);
	ck_assert_uint_eq(after.fallback_bytes[COW_FALLBACK_REWRITTEN],
	                  before.fallback_bytes[COW_FALLBACK_REWRITTEN] + bytes);
	ck_bytes(p, bytes, 2);
	cow_storage_unref(c);
	cow_storage_unref(b);
	cow_storage_unref(a);
}
END_TEST

/* Beyond what is copied with the lock, they are a layer: never a copy of all. */
START_TEST(much_in_short_runs_is_a_layer)
{
	const size_t bytes = GIB, run = 15 * PAGE, written = 70 * MIB;
	struct cow_storage *a = new_storage(bytes, COW_STORAGE_TRANSPARENT);
	uint64_t before = stats_now().fallbacks[COW_FALLBACK_REWRITTEN];
	struct cow_storage_info i = { .size = sizeof(i) };
	struct cow_storage *first, *second;
	unsigned char *p = expose(a);
	size_t n = written / run;

	first = lazy(a);
	for (size_t k = 0; k < n; k++)
		memset(p + k * 64 * PAGE, 5, run);
	second = lazy(a);
	must(cow_storage_get_info(second, &i) == 0);
	ck_assert_uint_ge(i.mappings, 2 * n - 1);
	ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_REWRITTEN], before);
	for (size_t k = 0; k < n; k++)
		ck_bytes(data(second) + k * 64 * PAGE, run, 5);
	cow_storage_unref(first);
	cow_storage_unref(second);
	cow_storage_unref(a);
}
END_TEST

static atomic_bool stop;

static void *run_on(void *arg)
{
	while (!atomic_load(&stop))
		sched_yield();
	return arg;
}

/* The file pages under copied ones were given back. */
static bool returned(void *bytes)
{
	void *p = new_block(MIB, 0); /* the helper has something to do */

	cow_block_free(p);
	return stats_now().bytes_shadow_returned >= *(uint64_t *)bytes;
}

/* To copy a page into a clone the kernel reads it from the file, which has none
 * where it was given back: so it is again, and has to go again. */
START_TEST(what_was_given_back_stays_so)
{
	enum { BYTES = 64 * MIB, APART = 10 * PAGE };
	unsigned char *p = new_block(BYTES, 0), *more = new_block(256 * MIB, 0);
	uint64_t given = 0, before = stats_now().bytes_shadow_returned, want;
	struct cow_storage *a, *c;
	pthread_t thread;

	memset(p, 1, BYTES);
	ok(cow_storage_from_ptr(p, NULL, &a));
	must(pthread_create(&thread, NULL, run_on, NULL) == 0); /* no thaw */
	memset(more, 1, 256 * MIB); /* large enough to want a helper */
	c = lazy(a);
	for (size_t at = 0; at < BYTES; at += APART, given += PAGE)
		p[at] = 7;
	cow_storage_unref(c);
	for (int i = 1; i <= 3; i++) {
		want = before + (uint64_t)i * given;
		must(wait_until(returned, &want, 20));
		c = lazy(a);
		ck_assert_int_eq(data(c)[APART], 7);
		ck_assert_int_eq(data(c)[APART + PAGE], 1);
		cow_storage_unref(c);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	cow_storage_unref(a);
	cow_block_free(p);
	cow_block_free(more);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("layers");
	TCase *tcase = add_case(suite, "layers");

	tcase_add_loop_test(tcase, layers_on_layers, 0, 2);
	tcase_add_test(tcase, few_pages_are_patched_in);
	tcase_add_test(tcase, a_rewritten_view_is_copied);
	tcase_add_test(tcase, much_in_short_runs_is_a_layer);
	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, what_was_given_back_stays_so);
	return run_suite(suite);
}

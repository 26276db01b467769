/* SPDX-License-Identifier: MIT */
/*
 * What the page of `cowshed profile` advises: each advice has the cause that the counters name
 */
#include "cli/profile.h"
#include "tests/support/support.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t large = 512 << 20;

static bool has(const char *text, const char *words)
{
	return strstr(text, words) != NULL;
}

/* The advice for these counters, and for a call site that copied `at_site` bytes. The caller
 * frees it. */
static char *advice(const struct cow_stats *stats, uint64_t at_site)
{
	struct cli_site site = { .copied = at_site, .text = "a.py:1 f" };
	struct cli_page page = { .sum = *stats, .records = 1, .sites = &site, .sites_count = 1 };
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	must(out);
	cli_page_advice(out, &page);
	must(fclose(out) == 0);
	return text;
}

static struct cow_stats copies_of(enum cow_fallback reason)
{
	struct cow_stats s = { .blocks_served = 9, .bytes_served = large, .bytes_copied = large,
		               .clones_eager = 8 };

	s.fallbacks[reason] = 8;
	s.fallback_bytes[reason] = large;
	return s;
}

/* Of each cause of copies its own remedy, once, with and without a call site. */
START_TEST(one_remedy_for_copies)
{
	static const struct {
		enum cow_fallback reason;
		const char *says;
	} all[] = {
		{ COW_FALLBACK_BACKING, "--backing memfd" },
		{ COW_FALLBACK_REWRITTEN, "write_intent(x, overwrite=True)" },
		{ COW_FALLBACK_FOREIGN, "cowshed.empty()" },
	};

	for (size_t i = 0; i < 2 * (sizeof all / sizeof all[0]); i++) {
		struct cow_stats s = copies_of(all[i / 2].reason);
		char *text = advice(&s, i % 2 ? large : 0);

		for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
			ck_assert_int_eq(has(text, all[j].says), j == i / 2);
		ck_assert_int_eq(has(text, "a.py:1 f"), i % 2);
		ck_assert(!has(strstr(text, "class=\"try") + 1, "class=\"try"));
		ck_assert(!has(text, "--copies"));
		free(text);
	}
}
END_TEST

START_TEST(copies_without_clones)
{
	struct cow_stats s = { .blocks_served = 1, .bytes_served = large, .bytes_copied = large };
	char *text = advice(&s, 0);

	ck_assert(has(text, "The library copied much"));
	free(text);
}
END_TEST

/* Slow forks of blocks that are anonymous by policy. */
START_TEST(slow_forks)
{
	struct cow_stats s = { .blocks_served = 1, .forks = 1, .fork_ns_max = 20000000 };
	char *text = advice(&s, 0);

	ck_assert(has(text, "-o mmap=1M") && !has(text, "--backing"));
	free(text);
	s.fallbacks[COW_FALLBACK_BACKING] = 1;
	text = advice(&s, 0);
	ck_assert(has(text, "--backing memfd") && !has(text, "mmap=1M"));
	free(text);
}
END_TEST

/* A child that only inherited blocks asked for none. */
START_TEST(inherited_blocks_are_not_asked_for)
{
	struct cow_stats s = { .blocks_served = 3, .blocks_inherited = 3 };
	char *text = advice(&s, 0);

	ck_assert(has(text, "--threshold 64K"));
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("words");
	TCase *tcase = add_case(suite, "words");

	tcase_add_test(tcase, one_remedy_for_copies);
	tcase_add_test(tcase, copies_without_clones);
	tcase_add_test(tcase, slow_forks);
	tcase_add_test(tcase, inherited_blocks_are_not_asked_for);
	return run_suite(suite);
}

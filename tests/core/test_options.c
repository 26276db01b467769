/* SPDX-License-Identifier: MIT */
/*
 * What docs/options.md says of the engine's options that no other test is about
 *
 * The rest: backing and collapse in test_block.c, copies in test_copy_history.c, helper in
 * fault_fork.c, share in test_seal_asked.c, cuda-poison in test_order.c; the shim's own
 * in preload/options.sh.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t bytes = 8 * MIB;

/* ---- window -------------------------------------------------------------- */

START_TEST(window_of_so_many_bytes)
{
	uintptr_t start = 1, end = 1;

	fails(-EINVAL, cow_option_set("window", "1023M"));
	fails(-EINVAL, cow_option_set("window", "many"));
	ok(cow_option_set("window", _i ? "1G" : "5631M"));
	cow_window(&start, &end);
	ck_assert_uint_eq(end - start, 0);
	cow_block_free(new_block(MIB, 0));
	cow_window(&start, &end);
	ck_assert_uint_eq(end - start, (_i ? 1 : 5) * GIB);
	/* It never changes after. */
	fails(-EBUSY, cow_option_set("window", "8G"));
	fails(-EINVAL, cow_option_set("window", "1023M"));
	cow_block_free(new_block(64 * MIB, 0));
	cow_window(&start, &end);
	ck_assert_uint_eq(end - start, (_i ? 1 : 5) * GIB);
}
END_TEST

START_TEST(no_more_than_the_window)
{
	void *p = NULL;

	ok(cow_option_set("window", "1G"));
	cow_block_free(new_block(GIB / 2, 0));
	fails(-ENOMEM, cow_block_new(GIB + PAGE, 0, 0, &p));
	ck_assert_ptr_null(p);
}
END_TEST

/* ---- strict -------------------------------------------------------------- */

static size_t pages_there(const void *p)
{
	static unsigned char there[8 * 1024 * 1024 / 4096];
	size_t n = 0;

	must(mincore((void *)(uintptr_t)p, bytes, there) == 0);
	for (size_t i = 0; i < bytes / PAGE; i++)
		n += there[i] & 1;
	return n;
}

/* Not by huge pages, which are made ahead of the program in any case. */
START_TEST(strict_commits_at_once)
{
	struct cow_storage *s;
	unsigned char *p;

	ok(cow_option_set("collapse", "no"));
	ok(cow_option_set("backing", _i ? "anon" : "memfd"));
	if (_i) /* one touch may bring many then */
		ok(cow_option_set("helper", "no"));
	p = new_block(bytes, 0);
	ck_assert_uint_eq(pages_there(p), 0);
	cow_block_free(p);
	s = new_storage(bytes, COW_STORAGE_STRICT);
	ck_assert_uint_eq(pages_there(data(s)), bytes / PAGE);
	cow_storage_unref(s);
	cow_trim();
	ok(cow_option_set("strict", "yes"));
	p = new_block(bytes, 0);
	ck_assert_uint_eq(pages_there(p), bytes / PAGE);
	cow_block_free(p);
	cow_trim();
	s = new_storage(bytes, 0);
	ck_assert_uint_eq(pages_there(data(s)), bytes / PAGE);
	cow_storage_unref(s);
	cow_trim();
	ok(cow_option_set("strict", "off"));
	p = new_block(bytes, 0);
	ck_assert_uint_eq(pages_there(p), 0);
	cow_block_free(p);
	fails(-EINVAL, cow_option_set("strict", "perhaps"));
}
END_TEST

/* ---- warm, decay --------------------------------------------------------- */

/* Where no helper runs it is done inside calls that allocate and free. */
static bool warm_at_most(void *arg)
{
	const size_t *most = arg;

	cow_block_free(new_block(PAGE, 0));
	return stats_now().bytes_warm <= *most;
}

static void free_touched(int n)
{
	unsigned char *p[8];

	must(n <= 8);
	for (int i = 0; i < n; i++) {
		p[i] = new_block(bytes, 0);
		memset(p[i], 1, bytes);
	}
	for (int i = 0; i < n; i++)
		cow_block_free(p[i]);
}

START_TEST(warm_limits_what_stays)
{
	size_t most = MIB; /* what the question itself leaves */

	ok(cow_option_set("helper", _i ? "no" : "yes"));
	ok(cow_option_set("decay", "3600000"));
	free_touched(1);
	ck_assert_uint_ge(stats_now().bytes_warm, bytes);
	ok(cow_option_set("warm", "0"));
	must(wait_until(warm_at_most, &most, 30));
	/* More than that, and less than there is. */
	ok(cow_option_set("warm", "12M"));
	free_touched(3);
	most = 12 * MIB;
	must(wait_until(warm_at_most, &most, 30));
	ck_assert_uint_ge(stats_now().bytes_warm, 4 * MIB);
	fails(-EINVAL, cow_option_set("warm", "-1"));
}
END_TEST

START_TEST(decay_in_milliseconds)
{
	size_t most = MIB;

	ok(cow_option_set("helper", _i ? "no" : "yes"));
	fails(-EINVAL, cow_option_set("decay", "3600001"));
	ok(cow_option_set("decay", "3600000"));
	free_touched(1);
	ck_assert_uint_ge(stats_now().bytes_warm, bytes);
	ok(cow_option_set("decay", "1"));
	must(wait_until(warm_at_most, &most, 30));
}
END_TEST

/* ---- mistakes ------------------------------------------------------------ */

static void wrong(int r, const char *list, const char *part)
{
	const char *at = NULL;
	size_t n = 0;

	fails(r, cow_options_check(list, &at, &n));
	ck_assert_uint_eq(n, strlen(part));
	ck_assert_mem_eq(at, part, n);
	ck_assert_ptr_eq(at, strstr(list, part));
}

START_TEST(mistakes_are_found)
{
	struct cow_settings s = { .size = sizeof(s) };
	char text[400] = "x=1, report=";

	ok(cow_options_check("", NULL, NULL));
	ok(cow_options_check(" ,, heal=3 ,threshold = 8M,\tmmap=0,", NULL, NULL));
	ok(cow_options_check("quiet=signal,report=/tmp/a b,devices=", NULL, NULL));
	wrong(-ENOENT, "heal=3, thresold=8M", "thresold=8M");
	wrong(-EINVAL, "mmap=1X ,foo=bar", "mmap=1X");
	wrong(-EINVAL, "heal= 3 4", "heal= 3 4");
	wrong(-EINVAL, " heal ,decay=1", "heal");
	wrong(-EINVAL, "heal=3,=7", "=7");
	wrong(-ENOENT, "a-key-that-is-longer-than-any-other=7", "a-key-that-is-longer-than-any-other=7");
	memset(text + strlen(text), 'y', 256);
	wrong(-EINVAL, text + 5, text + 5);
	text[5 + 7 + 255] = '\0';
	ok(cow_options_check(text + 5, NULL, NULL));
	/* Nothing was set. */
	ok(cow_settings_read(0, &s));
	ck_assert_str_eq(s.options, "");
	ok(cow_options_check("backing=anon,helper=no,share=yes,window=1G,warm=0,decay=3,strict=1,"
	                     "collapse=0,border=fork,copies=lazy,cuda-poison=yes,heal=7", NULL, NULL));
	ok(cow_settings_read(0, &s));
	ck_assert_str_eq(s.options, "");
	ok(cow_option_set("window", "5G"));
}
END_TEST

START_TEST(settings_from_outside)
{
	struct cow_settings s = { .size = sizeof(s) };

	fails(-EINVAL, cow_settings_read(0, NULL));
	s.size = 0;
	fails(-EINVAL, cow_settings_read(0, &s));
	s.size = sizeof(s);
	fails(-ENOENT, cow_settings_read(getpid(), &s));
	ok(cow_option_set("heal", "7"));
	ok(cow_option_set("decay", "500"));
	fails(-EINVAL, cow_option_set("decay", "fast"));
	cow_block_free(new_block(MIB, 0));
	ok(cow_option_set("heal", "8")); /* the last value counts */
	ok(cow_settings_read(getpid(), &s));
	ck_assert_str_eq(s.options, "decay=500,heal=8");
	ck_assert_str_eq(s.refused, "");
	ck_assert_str_eq(s.version, cow_version());
	/* A shorter struct gets the members that it has. */
	memset(&s, 'x', sizeof(s));
	s.size = sizeof(s.size) + sizeof(s.version);
	ok(cow_settings_read(getpid(), &s));
	ck_assert_str_eq(s.version, cow_version());
	ck_assert_int_eq(s.options[0], 'x');
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("options");
	TCase *tcase = add_bare_case(suite, "options");

	tcase_add_loop_test(tcase, window_of_so_many_bytes, 0, 2);
	tcase_add_test(tcase, no_more_than_the_window);
	tcase_add_loop_test(tcase, strict_commits_at_once, 0, 2);
	tcase_add_loop_test(tcase, warm_limits_what_stays, 0, 2);
	tcase_add_loop_test(tcase, decay_in_milliseconds, 0, 2);
	tcase_add_test(tcase, mistakes_are_found);
	tcase_add_test(tcase, settings_from_outside);
	return run_suite(suite);
}

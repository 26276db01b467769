/* SPDX-License-Identifier: MIT */
/*
 * The functions of libc that our libraries bring (memfd/bytes.c, memfd/text.c), against loops that
 * can't be wrong. This program is linked with them, so its own calls reach them.
 */
#undef _FORTIFY_SOURCE
#include "memfd/vdso.h"
#include "memfd/wait.h"
#include "tests/support/support.h"

#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 12288, ROUNDS = 60000, EDGE = 64 };

static unsigned char a[ROOM + 2 * EDGE], b[ROOM + 2 * EDGE];
static uint32_t seed = 1;

static uint32_t some(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

/* Not inlined, and not known to the compiler. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static void *(*volatile move)(void *, const void *, size_t) = memmove;
static void *(*volatile set)(void *, int, size_t) = memset;
static int (*volatile compare)(const void *, const void *, size_t) = memcmp;

static void slow_move(unsigned char *to, const unsigned char *from, size_t n)
{
	if (to < from)
		for (size_t i = 0; i < n; i++)
			to[i] = from[i];
	else
		while (n--)
			to[n] = from[n];
}

static void must_be_same(void)
{
	for (size_t i = 0; i < sizeof(a); i++)
		ck_assert_uint_eq(a[i], b[i]);
}

/* Short ones, those around a line and a page, and any. */
static size_t length(void)
{
	switch (some(3)) {
	case 0:
		return some(300);
	case 1:
		return 4096 - 40 + some(80);
	default:
		return some(ROOM / 2);
	}
}

START_TEST(memory)
{
	for (int i = 0; i < ROUNDS; i++) {
		size_t n = length(), from = EDGE + some((uint32_t)(ROOM - n));
		size_t to = some(2) ? EDGE + some((uint32_t)(ROOM - n))
		                    : EDGE + (from - EDGE + some(40)) % (ROOM - n);
		int value = (int)some(256);

		if (i % 100 == 0)
			for (size_t k = 0; k < sizeof(a); k++)
				a[k] = b[k] = (unsigned char)some(256);
		switch (some(4)) {
		case 0:
			ck_assert_ptr_eq(move(a + to, a + from, n), a + to);
			slow_move(b + to, b + from, n);
			break;
		case 1:
			if (to + n <= from || from + n <= to) {
				ck_assert_ptr_eq(copy(a + to, a + from, n), a + to);
				slow_move(b + to, b + from, n);
			}
			break;
		case 2:
			ck_assert_ptr_eq(set(a + to, value, n), a + to);
			for (size_t k = 0; k < n; k++)
				b[to + k] = (unsigned char)value;
			break;
		default:
			ck_assert_int_eq(compare(a + to, b + to, n), 0);
			if (n) {
				size_t at = to + some((uint32_t)n);

				b[at] ^= 0x80;
				ck_assert_int_eq(compare(a + to, b + to, n) > 0, a[at] > b[at]);
				ck_assert_int_eq(compare(a + to, b + to, n) < 0, a[at] < b[at]);
				b[at] ^= 0x80;
			}
		}
		if (i % 16 == 0)
			must_be_same();
	}
	must_be_same();
}
END_TEST

START_TEST(texts)
{
	static const char *volatile s = "cgroup:memory:/x";
	static size_t (*volatile length_of)(const char *) = strlen;
	static size_t (*volatile length_most)(const char *, size_t) = strnlen;
	static size_t (*volatile before)(const char *, const char *) = strcspn;
	static char *(*volatile first)(const char *, int) = strchr;
	static char *(*volatile last)(const char *, int) = strrchr;
	static char *(*volatile part)(const char *, const char *) = strstr;
	static int (*volatile order)(const char *, const char *) = strcmp;
	static int (*volatile order_most)(const char *, const char *, size_t) = strncmp;
	char room[16];

	ck_assert_uint_eq(length_of(s), 16);
	ck_assert_uint_eq(length_of(""), 0);
	ck_assert_uint_eq(length_most(s, 3), 3);
	ck_assert_uint_eq(length_most(s, 30), 16);
	ck_assert_uint_eq(before(s, "/:"), 6);
	ck_assert_uint_eq(before(s, "?"), 16);
	ck_assert_ptr_eq(first(s, ':'), s + 6);
	ck_assert_ptr_eq(first(s, '\0'), s + 16);
	ck_assert_ptr_null(first(s, '?'));
	ck_assert_ptr_eq(last(s, ':'), s + 13);
	ck_assert_ptr_eq(last(s, '\0'), s + 16);
	ck_assert_ptr_null(last(s, '?'));
	ck_assert_ptr_eq(part(s, ":memory:"), s + 6);
	ck_assert_ptr_eq(part(s, ""), s);
	ck_assert_ptr_eq(part(s, "/x"), s + 14);
	ck_assert_ptr_null(part(s, "/xy"));
	ck_assert_int_eq(order("ab", "ab"), 0);
	ck_assert_int_lt(order("ab", "abc"), 0);
	ck_assert_int_gt(order("\xff", "a"), 0);
	ck_assert_int_eq(order_most("abc", "abd", 2), 0);
	ck_assert_int_lt(order_most("abc", "abd", 3), 0);
	ck_assert_int_eq(order_most("", "x", 0), 0);
	ck_assert_str_eq(strcpy(room, "a"), "a");
	ck_assert_str_eq(strcat(room, "bc"), "abc");
	ck_assert_str_eq(strncat(room, "defg", 2), "abcde");
}
END_TEST

/* The clock is the kernel's monotonic one, by its image in memory and by a call. */
START_TEST(clocks)
{
	for (int i = 0; i < 1000; i++) {
		uint64_t before = cow__now(), between, after;
		struct timespec t;

		must(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) == 0);
		between = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
		after = cow__now();
		ck_assert_uint_le(before, between);
		ck_assert_uint_le(between, after);
	}
#if !defined(COW_SANITIZED)
	ck_assert(cow__vdso_clock() != NULL || !getauxval(AT_SYSINFO_EHDR));
#endif
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bytes");
	TCase *tcase = add_case(suite, "bytes");

	tcase_add_test(tcase, memory);
	tcase_add_test(tcase, texts);
	tcase_add_test(tcase, clocks);
	return run_suite(suite);
}
